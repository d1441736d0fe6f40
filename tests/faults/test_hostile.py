"""Connections that are not clients: garbage, half-open ones, thousands that come and go. The server stays as it was."""

from __future__ import annotations

import os
import random
import socket
import time
from pathlib import Path

import pytest
from headrace.proto.errors import HeadraceError
from rig import Raw, ServerProcess, Trainer, serving, write_run

SLOW = os.environ.get("HEADRACE_SLOW") == "1"
MANY = 10_000 if SLOW else 300
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"


def resident_mib(server: ServerProcess) -> float:
    assert server.process is not None
    fields = Path(f"/proc/{server.process.pid}/statm").read_text().split()
    return int(fields[1]) * os.sysconf("SC_PAGE_SIZE") / (1 << 20)


def open_files(server: ServerProcess) -> int:
    assert server.process is not None
    return len(os.listdir(f"/proc/{server.process.pid}/fd"))


@pytest.fixture
def server(tmp_path: Path, corpus: Path) -> ServerProcess:
    with serving(tmp_path, [write_run(tmp_path, corpus)]) as started:
        yield started  # type: ignore[misc]


def test_garbage_half_open_and_oversized_frames(server: ServerProcess) -> None:
    """Row 32."""
    seed = random.randrange(1 << 32)
    dice = random.Random(seed)
    with Raw(server.address) as raw:
        trainer = Trainer(raw).open().take(3)
        files, memory = open_files(server), resident_mib(server)
        held = []
        for number in range(MANY // 3):
            connection = socket.create_connection(("127.0.0.1", server.port), timeout=5)
            kind = number % 3
            if kind == 0:
                connection.sendall(dice.randbytes(dice.randrange(1, 2000)))
            elif kind == 1:
                connection.sendall(PREFACE[: dice.randrange(len(PREFACE))])  # and then nothing more
            else:
                connection.sendall(PREFACE + b"\xff\xff\xff\x01\x05\x00\x00\x00\x01" + dice.randbytes(500))
            held.append(connection)
        begun = time.monotonic()
        trainer.take(5)
        assert time.monotonic() - begun < 10, f"seed {seed}"
        for connection in held:
            connection.close()
        until = time.monotonic() + 30
        while open_files(server) > files + 5 and time.monotonic() < until:
            time.sleep(0.2)
        assert open_files(server) <= files + 5, f"seed {seed}"
        assert resident_mib(server) < memory + 64
        trainer.take(5)


def test_clients_that_come_and_go(server: ServerProcess) -> None:
    """Connections that fetch and drop, half of them in the middle of a call, leave neither files nor memory behind."""
    with Raw(server.address) as raw:
        trainer = Trainer(raw).open().take(3)
        trainer.settle()
        known = {"run_id": trainer.opened.run_id, "step": 1, "first_slot": 0, "rows": 8}
        files, memory = open_files(server), 0.0
        for number in range(MANY):
            with Raw(server.address) as one:
                try:
                    one("GetBatch", **known, timeout=0.002 if number % 2 else 10)
                except HeadraceError as error:
                    assert error.exit_code == 75, error  # noqa: PT017
            if number == MANY // 3:
                memory = resident_mib(server)
        time.sleep(1)
        assert open_files(server) <= files + 5
        assert resident_mib(server) < memory + 32
        trainer.take(5)


def test_many_idle_connections(server: ServerProcess) -> None:
    """Row 31: they cost little, and calls beside them are answered."""
    with Raw(server.address) as raw:
        trainer = Trainer(raw).open().take(3)
        memory = resident_mib(server)
        held = []
        for _ in range(MANY):
            connection = socket.create_connection(("127.0.0.1", server.port), timeout=5)
            connection.sendall(PREFACE + b"\x00\x00\x00\x04\x00\x00\x00\x00\x00")
            held.append(connection)
        trainer.take(10)
        assert resident_mib(server) < memory + 32 + MANY * 0.03
        for connection in held:
            connection.close()
