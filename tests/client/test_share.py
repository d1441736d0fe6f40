"""Ids through memory that loader and server share: the same batches, whoever dies, and in messages where it fails."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from corpora import build_small_corpus
from headrace.client import Loader, Settings, session
from headrace.client.cli.main import main
from headrace.client.ring import Ring
from headrace.client.wire import Bytes, Reply, read_reply
from headrace.native import step_digest
from hypothesis import given
from hypothesis import strategies as st
from rig import Raw, ServerProcess, planned_digests, serving, write_run
from toy_server import Toy, ToyServer

STEPS = 60
QUICK: dict[str, Any] = {"stall_timeout": 60, "open_timeout": 30, "backoff": 0.01, "backoff_max": 0.2}


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_small_corpus(tmp_path_factory.mktemp("corpus"), documents={"a": 2000, "b": 1500, "c": 800})


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with serving(tmp_path_factory.mktemp("server"), []) as started:
        yield started


@pytest.fixture
def run(server: ServerProcess, corpus: Path, tmp_path: Path, request: pytest.FixtureRequest) -> str:
    """A run whose steps are 128 KiB."""
    name = re.sub(r"\W+", "-", request.node.name)
    path = write_run(tmp_path, corpus, name=name, steps=STEPS, seq_len=1024, batch=64)
    with Raw(server.address) as raw:
        raw("CreateRun", spec_toml=path.read_text(), base_dir=str(tmp_path), author="test")
    return name


def planned(server: ServerProcess, run: str, steps: int = STEPS) -> list[bytes]:
    digests = planned_digests(server.store, run, f"0:{steps}")
    return [digests[step] for step in range(steps)]


def loader(address: str, run: str, *, share: bool = True, **more: Any) -> Loader:
    return Loader(address, run, settings=Settings(**{**QUICK, "share": share, **more.pop("settings", {})}), **more)


def mapped(pid: int | str = "self") -> list[str]:
    """Mappings of shared memory in a process, but for those that were there when the test began."""
    lines = Path(f"/proc/{pid}/maps").read_text().splitlines()
    return [line for line in lines if "/memfd:headrace" in line and line not in _before]


_before: list[str] = []


@pytest.fixture(autouse=True)
def before() -> None:
    _before.clear()
    _before.extend(mapped())


def until(true: Callable[[], bool]) -> None:
    end = time.monotonic() + 15
    while not true():
        assert time.monotonic() < end
        time.sleep(0.02)


def take(mine: Loader, steps: int | None = None) -> list[tuple[bytes, bytes]]:
    """(step digest, ids) of the next steps, or of all that are left."""
    batches = list(mine) if steps is None else [next(mine) for _ in range(steps)]
    return [(step_digest(batch.row_digests.tobytes()), batch.token_ids.tobytes()) for batch in batches]


def shared_from_now_on(mine: Loader) -> list[tuple[bytes, bytes]]:
    """The first step, with the memory there when it is returned: only what was asked for by then comes in messages."""
    first = take(mine, 1)
    until(lambda: bool(mapped()))
    return first


def test_the_same_batches_either_way(server: ServerProcess, run: str) -> None:
    with loader(server.address, run, job="j", attempt=0) as mine:
        shared = shared_from_now_on(mine) + take(mine)
        assert mine.stats.bytes_shared > mine.stats.bytes_received / 2
    with loader(server.address, run, share=False, job="j", attempt=1) as mine:
        assert take(mine) == shared
        assert mine.stats.bytes_shared == 0
    assert [digest for digest, _ in shared] == planned(server, run)
    assert not mapped()


@pytest.mark.parametrize("share", [True, False])
def test_rows_are_read_the_fast_way(
    server: ServerProcess, run: str, share: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[Reply] = []

    def noted(data: Bytes, **more: Any) -> Reply:
        read.append(read_reply(data, **more))
        return read[-1]

    monkeypatch.setattr(session, "read_reply", noted)
    with loader(server.address, run, share=share) as mine:
        assert [digest for digest, _ in take(mine)] == planned(server, run)
    assert [reply.part for reply in read] == [None] * len(read)  # the end of the run, and no rows


def test_small_ranges_share_messages_and_memory(server: ServerProcess, run: str) -> None:
    with loader(server.address, run, settings={"message_bytes": 8 << 10, "in_flight": 16}) as mine:
        seen = shared_from_now_on(mine) + take(mine)
        assert [digest for digest, _ in seen] == planned(server, run)
        assert mine.stats.bytes_shared > mine.stats.bytes_received / 2


def test_observers_and_ranks_share_too(server: ServerProcess, run: str) -> None:
    with contextlib.ExitStack() as stack:
        ranks = [
            stack.enter_context(loader(server.address, run, rank=r, world=4, job="j", attempt=0)) for r in (0, 1, 2, 3)
        ]
        observer = stack.enter_context(loader(server.address, run, mode="observe"))
        for step, digest in enumerate(planned(server, run)):
            parts = [next(rank) for rank in ranks]
            assert step_digest(b"".join(part.row_digests.tobytes() for part in parts)) == digest
            assert take(observer, 1)[0][0] == digest
            if step == 0:
                until(lambda: len(mapped()) == 5)
        assert all(mine.stats.bytes_shared for mine in (*ranks, observer))
    assert not mapped()


def test_a_server_that_is_killed_leaves_nothing_and_is_found_again(corpus: Path, tmp_path: Path) -> None:
    run = write_run(tmp_path, corpus, steps=300, seq_len=1024, batch=64)
    with serving(tmp_path, [run]) as server, loader(server.address, "r") as mine:
        seen = []
        for _ in range(3):
            shared = mine.stats.bytes_shared
            while mine.stats.bytes_shared == shared:
                seen += take(mine, 1)
                time.sleep(0.01)
            server.kill()
            server.start()
        assert [digest for digest, _ in seen + take(mine)] == planned(server, "r", 300)
    assert not mapped()
    assert not [name for name in os.listdir("/dev/shm") if "headrace" in name]  # other programs come and go there


TRAINER = """
import sys, time
from headrace.client import Loader
with Loader(sys.argv[1], sys.argv[2], job="j", attempt=0) as mine:
    for batch in mine:
        time.sleep(0.01)
        if mine.stats.bytes_shared:
            print("shared", flush=True)
            sys.stdin.read()
"""


def test_a_trainer_that_is_killed_leaves_nothing(server: ServerProcess, run: str) -> None:
    assert server.process is not None
    command = [sys.executable, "-c", TRAINER, server.address, run]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as trainer:
        assert trainer.stdout is not None
        assert trainer.stdout.readline() == "shared\n"
        assert len(mapped(trainer.pid)) == 1
        assert mapped(server.process.pid)
        trainer.send_signal(signal.SIGKILL)
    until(lambda: not mapped(server.process.pid))
    with loader(server.address, run, job="j", attempt=1) as mine:
        assert [digest for digest, _ in take(mine)] == planned(server, run)


def test_a_fork_and_a_spawn_have_none_of_it(server: ServerProcess, run: str) -> None:
    with loader(server.address, run) as mine:
        seen = shared_from_now_on(mine) + take(mine, 20)
        child = os.fork()
        if not child:
            os._exit(len(mapped()))
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        words = (
            "import os; print([l for l in os.listdir('/proc/self/fd')], open('/proc/self/maps').read().count('memfd'))"
        )
        spawned = subprocess.run([sys.executable, "-c", words], capture_output=True, text=True, close_fds=False)
        assert spawned.stdout.endswith(" 0\n"), spawned
        assert [digest for digest, _ in seen + take(mine)] == planned(server, run)


def test_streams_come_and_go_without_a_trace(server: ServerProcess, run: str) -> None:
    """A fork breaks the stream: each time there is another, with memory of its own."""
    with loader(server.address, run) as mine:
        seen = take(mine, 10)
        descriptors = len(os.listdir("/proc/self/fd"))
        for _ in range(20):
            child = os.fork()
            if not child:
                os._exit(0)
            os.waitpid(child, 0)
            seen += take(mine, 2)
            assert len(mapped()) <= 1
        assert len(os.listdir("/proc/self/fd")) <= descriptors + 4
        assert [digest for digest, _ in seen + take(mine)] == planned(server, run)


def test_a_bit_that_flips_in_the_memory_is_found_and_asked_for_again(server: ServerProcess, run: str) -> None:
    assert server.process is not None
    stop = threading.Event()

    def flip() -> None:
        with open(f"/proc/{server.process.pid}/mem", "r+b", buffering=0) as memory:
            while not stop.is_set():
                for line in mapped(server.process.pid):
                    begin, end = (int(part, 16) for part in line.split()[0].split("-"))
                    for place in range(begin + 64, end, 4096):
                        memory.seek(place)
                        byte = memory.read(1)
                        memory.seek(place)
                        memory.write(bytes([byte[0] ^ 1]))

    with loader(server.address, run) as mine:
        seen = shared_from_now_on(mine)
        flipping = threading.Thread(target=flip)
        flipping.start()
        try:
            while len(seen) < STEPS and not mine.stats.digest_errors:
                seen += take(mine, 1)
        finally:
            stop.set()
            flipping.join()
        assert mine.stats.digest_errors
        assert [digest for digest, _ in seen + take(mine)] == planned(server, run)


def test_a_server_that_shares_nothing(corpus: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "headrace.client")
    run = write_run(tmp_path, corpus, steps=STEPS, seq_len=1024, batch=64)
    with serving(tmp_path, [run], extra="share_bytes = 0") as server, loader(server.address, "r") as mine:
        assert [digest for digest, _ in take(mine)] == planned(server, "r")
        assert mine.stats.bytes_shared == 0
    said = [record.message.split(": ")[1] for record in caplog.records if "shared memory" in record.message]
    assert said == ["the server shares no memory (share_bytes in its SERVER.toml)"]


def memory_check(address: str) -> str:
    checks = json.loads(CliRunner().invoke(main, ["doctor", "--json", "--server", address]).stdout)["checks"]
    found = next(check for check in checks if check["name"] == "memory")
    assert found["status"] == "ok"
    return str(found["found"])


def test_the_doctor_says_which_way_ids_come(server: ServerProcess, run: str, corpus: Path, tmp_path: Path) -> None:
    assert memory_check(server.address) == "ids come through memory shared with the server"
    with serving(tmp_path, [write_run(tmp_path, corpus)], extra="share_bytes = 0") as other:
        assert memory_check(other.address).startswith("ids come in messages: the server shares no memory")


def test_a_server_that_never_heard_of_it() -> None:
    with ToyServer(Toy(streams=True)) as toy, loader(toy.address, "toy") as mine:
        assert len(list(mine)) == 40
        assert mine.stats.bytes_shared == 0


FORWARD = """
import socket, sys, threading

def pump(source, sink):
    while data := source.recv(1 << 16):
        sink.sendall(data)
    sink.shutdown(socket.SHUT_WR)

listening = socket.socket(socket.AF_UNIX)
listening.bind(sys.argv[1])
listening.listen()
print("ready", flush=True)
while True:
    near, _ = listening.accept()
    far = socket.create_connection(("127.0.0.1", int(sys.argv[2])))
    for pair in ((near, far), (far, near)):
        threading.Thread(target=pump, args=pair, daemon=True).start()
"""
ELSEWHERE = """
import logging, sys
from headrace.client import Loader
from headrace.native import step_digest
logging.basicConfig(level=logging.INFO, format="%(message)s")
with Loader("unix:" + sys.argv[1], sys.argv[2]) as mine:
    for batch in mine:
        print(step_digest(batch.row_digests.tobytes()).hex())
    assert mine.stats.bytes_shared == 0
"""


def _why_not() -> str:
    if os.getuid() != 0 or shutil.which("unshare") is None:
        return "a network of its own needs root and unshare"
    tried = subprocess.run(["unshare", "--net", "true"], capture_output=True, check=False)
    return "" if tried.returncode == 0 else "no network namespace can be made here"


@pytest.mark.skipif(bool(_why_not()), reason=_why_not() or "-")
def test_a_forwarded_connection_only_seems_to_be_local(server: ServerProcess, run: str, tmp_path: Path) -> None:
    """Both sides see an address of their own host; the socket for the memory cannot be reached from another network."""
    socket = tmp_path / "socket"
    with subprocess.Popen(
        [sys.executable, "-c", FORWARD, str(socket), str(server.port)], stdout=subprocess.PIPE, text=True
    ) as forwarder:
        assert forwarder.stdout is not None
        assert forwarder.stdout.readline() == "ready\n"
        command = ["unshare", "--net", sys.executable, "-c", ELSEWHERE, str(socket), run]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        forwarder.kill()
    assert done.returncode == 0, done.stderr[-3000:]
    assert [bytes.fromhex(line) for line in done.stdout.split()] == planned(server, run)
    assert done.stderr.count("the server's socket for it cannot be reached from here") == 1


@given(st.lists(st.one_of(st.integers(1, 700), st.none()), max_size=60), st.integers(1, 20))
def test_places_never_overlap(wishes: list[int | None], lines: int) -> None:
    """None gives back what was taken first."""
    ring, taken = Ring(64, 64 + 64 * lines), list[tuple[int, int]]()
    for wish in wishes:
        if wish is None:
            if taken:
                ring.free()
                taken.pop(0)
            continue
        place = ring.take(wish)
        if not place:
            assert taken or wish > 64 * lines
            continue
        assert place % 64 == 0
        assert 64 <= place <= place + wish <= 64 + 64 * lines
        assert all(place + wish <= begin or end <= place for begin, end in taken)
        taken.append((place, place + wish))
