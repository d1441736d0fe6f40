"""Memory shared with a client on this host: the same answers, but for the ids, which lie where they were asked to."""

from __future__ import annotations

import contextlib
import mmap
import os
import re
import resource
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
from headrace.client.share import fetch
from headrace.client.wire import split
from headrace.proto.v1 import data_pb2 as pb
from rig import Raw, ServerProcess, Trainer, serving, write_run
from test_stream_batches import Stream, batch_of, refusal

SIZE = 64 << 10


@pytest.fixture
def trainer(raw: Raw, make_run: Callable[..., str]) -> Trainer:
    return Trainer(raw, make_run(steps=20, batch=8, lead=4)).open()


@pytest.fixture
def stream(server: ServerProcess, trainer: Trainer) -> Iterator[Stream]:
    opened = Stream(server, trainer.opened)
    yield opened
    opened.close()


def offered(stream: Stream, size: int = SIZE) -> pb.Share:
    stream.ask(share_bytes=size)
    answer = pb.GetBatchResponse.FromString(stream.read())
    assert answer.WhichOneof("answer") is None
    return answer.share


@pytest.fixture
def memory(stream: Stream) -> mmap.mmap:
    return fetch(offered(stream), SIZE)


def visit(said: pb.Share) -> tuple[bytes, list[int]]:
    """What the server's socket says to the nonce, and the files that it gives."""
    with socket.socket(socket.AF_UNIX) as visitor:
        visitor.settimeout(10)
        visitor.connect(f"\0{said.socket}")
        visitor.sendall(said.nonce)
        words, files, _, _ = socket.recv_fds(visitor, 4096, 4)
    return words, files


def shared_files(pid: int) -> int:
    """Descriptors of shared memory that a process has."""
    found = 0
    for link in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            found += os.readlink(link).startswith("/memfd:headrace")
    return found


def metric(server: ServerProcess, line: str) -> float:
    text = urlopen(f"http://127.0.0.1:{server.metrics_port}/metrics").read().decode()
    return sum(float(row.split()[-1]) for row in text.splitlines() if row.startswith(line))


def until(true: Callable[[], bool]) -> None:
    end = time.monotonic() + 10
    while not true():
        assert time.monotonic() < end
        time.sleep(0.02)


def test_all_but_the_ids_comes_as_it_would(raw: Raw, trainer: Trainer, stream: Stream, memory: mmap.mmap) -> None:
    row = 33 * trainer.opened.id_bytes
    ranges = [(2, 0, 8, 64), (0, 3, 2, 8 * row + 64), (1, 0, 1), (3, 4, 4, SIZE - 4 * row)]
    stream.ask(*ranges)
    for step, first_slot, rows, *place in ranges:
        wanted = {"step": step, "first_slot": first_slot, "rows": rows}
        alone = raw("GetBatch", run_id=trainer.opened.run_id, lease=trainer.opened.lease, **wanted).batch
        came = pb.Batch.FromString(batch_of(stream.read()))
        assert came.shared == bool(place)
        if place:
            assert not came.token_ids
            came.token_ids = memory[place[0] : place[0] + rows * row]
            came.shared = False
        assert came == alone


def test_answers_with_shared_ids_share_a_message_too(trainer: Trainer, stream: Stream, memory: mmap.mmap) -> None:
    stream.ask(*((2, slot, 1, 64 + 1024 * slot) for slot in range(8)), pack_bytes=1 << 20)
    answers = split(stream.read())
    assert len(answers) == 8
    assert [pb.GetBatchResponse.FromString(bytes(one)).batch.first_slot for one in answers] == list(range(8))


@pytest.mark.parametrize("place", [1, 63, SIZE - 1, SIZE, 1 << 40, (1 << 64) - 1])
def test_a_place_outside_is_refused_and_the_stream_goes_on(
    trainer: Trainer, stream: Stream, memory: mmap.mmap, place: int
) -> None:
    stream.ask((0, 0, 8, place), (0, 0, 8, 64))
    refused = refusal(stream.read())
    assert (refused.code, refused.error) == (3, "UsageError")
    assert "must lie within bytes 64 to 65536" in refused.message
    assert pb.Batch.FromString(batch_of(stream.read())).shared


def test_a_place_is_refused_before_the_memory_was_fetched(trainer: Trainer, stream: Stream) -> None:
    stream.ask((0, 0, 8, 64), share_bytes=SIZE)
    assert pb.GetBatchResponse.FromString(stream.read()).share.nonce
    assert "this stream shares no memory" in refusal(stream.read()).message
    stream.ask((0, 0, 8), share_bytes=SIZE)
    assert "first message of a stream only" in refusal(stream.read()).message


def test_the_client_can_neither_write_nor_cut_the_memory(stream: Stream) -> None:
    _, [file] = visit(offered(stream))
    try:
        with pytest.raises(PermissionError):
            os.ftruncate(file, 0)
        with pytest.raises(PermissionError):
            os.pwrite(file, b"x", 64)
        with pytest.raises(PermissionError):
            mmap.mmap(file, SIZE)
    finally:
        os.close(file)


def test_who_has_no_nonce_is_given_nothing(stream: Stream) -> None:
    said = offered(stream)
    for nonce in (b"x" * 16, said.nonce[:8], b""):
        with socket.socket(socket.AF_UNIX) as visitor:
            visitor.settimeout(10)
            visitor.connect(f"\0{said.socket}")
            visitor.sendall(nonce)
            visitor.shutdown(socket.SHUT_WR)
            assert socket.recv_fds(visitor, 4096, 1)[:2] == (b"", [])
    words, files = visit(said)
    assert (words, len(files)) == (b"\0", 1)
    os.close(files[0])
    assert visit(said) == (b"", [])  # once


def test_a_client_that_goes_away_while_it_comes_is_told_with_its_run(server: ServerProcess, stream: Stream) -> None:
    said = offered(stream)
    with socket.socket(socket.AF_UNIX) as visitor:
        visitor.connect(f"\0{said.socket}")
        visitor.shutdown(socket.SHUT_RD)
        visitor.sendall(said.nonce)
        until(lambda: "who came for shared memory was not served: [Errno 32]" in server.log.read_text())
    assert re.search(r"run \S+: who came for shared memory was not served: \[Errno 32\]", server.log.read_text())


def test_visitors_that_say_nothing_do_not_keep_others_out(stream: Stream) -> None:
    said = offered(stream)
    with contextlib.ExitStack() as stack:
        for _ in range(80):  # more than are heard at once: each has two seconds
            silent = stack.enter_context(socket.socket(socket.AF_UNIX))
            silent.settimeout(20)
            silent.connect(f"\0{said.socket}")
        _, [file] = visit(said)
    os.close(file)


def test_memory_goes_with_its_stream(server: ServerProcess, trainer: Trainer) -> None:
    assert server.process is not None
    before = shared_files(server.process.pid)
    for _ in range(100):
        stream = Stream(server, trainer.opened)
        memory = fetch(offered(stream), SIZE)
        stream.ask((0, 0, 8, 64))
        assert pb.Batch.FromString(batch_of(stream.read())).shared
        assert any(memory[64:256])
        stream.close()
        memory.close()
    until(lambda: shared_files(server.process.pid) == before)
    assert metric(server, 'headrace_shares_total{result="given"}') >= 100


def test_only_so_much_is_shared(tmp_path: Path, corpus: Path) -> None:
    run = write_run(tmp_path, corpus)
    with serving(tmp_path, [run], extra=f"share_bytes = {SIZE}") as server, Raw(server.address) as raw:
        opened = Trainer(raw).open().opened
        first, second, third = (Stream(server, opened) for _ in range(3))
        assert offered(first, SIZE).nonce
        refused = offered(second, 1).refused
        assert refused == f"{SIZE} bytes of memory are shared by now, 1 more would be above {SIZE}"
        second.ask((0, 0, 8))
        assert len(pb.Batch.FromString(batch_of(second.read())).token_ids) == 8 * 33 * opened.id_bytes
        first.close()
        until(lambda: metric(server, 'headrace_shares_total{result="left"}') == 1)
        assert offered(third, SIZE).nonce
        assert metric(server, 'headrace_shares_total{result="full"}') == 1
    log = server.log.read_text()
    assert log.count("raise share_bytes in SERVER.toml") == 1


def test_a_server_may_share_nothing(tmp_path: Path, corpus: Path) -> None:
    with (
        serving(tmp_path, [write_run(tmp_path, corpus)], extra="share_bytes = 0") as server,
        Raw(server.address) as raw,
    ):
        stream = Stream(server, Trainer(raw).open().opened)
        assert offered(stream).refused == "the server shares no memory (share_bytes in its SERVER.toml)"


def test_a_client_that_does_not_ask_is_told_nothing(trainer: Trainer, stream: Stream) -> None:
    stream.ask((0, 0, 8))
    answer: Any = pb.GetBatchResponse.FromString(stream.read())
    assert not answer.HasField("share")
    assert not answer.batch.shared


def test_who_comes_while_files_are_short_is_given_memory_later(server: ServerProcess, stream: Stream) -> None:
    said = offered(stream)
    assert server.process is not None
    pid = server.process.pid
    before = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    log = server.log.read_text()
    with socket.socket(socket.AF_UNIX) as first:
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (0, before[1]))
        try:
            first.connect(f"\0{said.socket}")
            until(lambda: "has to wait: Too many open files" in server.log.read_text().removeprefix(log))
        finally:
            resource.prlimit(pid, resource.RLIMIT_NOFILE, before)
    _, files = visit(said)
    assert len(files) == 1
    os.close(files[0])
