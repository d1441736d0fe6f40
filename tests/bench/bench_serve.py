"""Serving over loopback beside raw gRPC and a naive server: tokens/s, tokens per CPU-second and latency.

    python tests/bench/bench_serve.py [--quick] [--json] [--kib 16 128 1024 4096]

Our server on a corpus of random text with ids of four bytes, the two peers of `serve_peers.py`, and this client, which
asks all in the same way. `calls` are unary; `stream` is one stream with as many ranges under way, asked for again in
one message as half of them are answered; `shared` is the same with the ids in shared memory, copied from there;
`packed` has as many *messages* of 1 MiB under way as the others have ranges, as our loader has when its trainer waits.
Digests are made and sent, nothing is checked on this side. CPU-seconds are
those of server and client together. Figures are medians over rounds; a round takes all of them in turn.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import itertools
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from corpora import build_small_corpus
from headrace.client.ring import Ring
from headrace.client.session import PACK_BYTES
from headrace.client.share import fetch
from headrace.client.wire import read_share, split
from headrace.proto.v1 import data_pb2 as pb
from headrace.server.service.malloc import keep_freed_memory
from rig import serving, write_run
from serve_peers import BATCH, OPTIONS, SEQ_LEN, STEPS

Figures = dict[str, float]
SERVICE = "/headrace.v1.DataService/"
SEALED = 8


def cpu_seconds(pid: int) -> float:
    """User and system time of a process."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def calls_block(ask: Callable[[], Awaitable[bytes]], in_flight: int, seconds: float) -> list[float]:
    """Keeps `in_flight` calls under way for some seconds; the latency of each."""
    latencies: list[float] = []
    until = time.perf_counter() + seconds

    async def worker() -> None:
        while (begun := time.perf_counter()) < until:
            await ask()
            latencies.append(time.perf_counter() - begun)

    await asyncio.gather(*(worker() for _ in range(in_flight)))
    return latencies


async def stream_block(
    call: Any, message: Callable[[int], bytes], count: Callable[[bytes], int], in_flight: int, seconds: float
) -> list[float]:
    """Keeps `in_flight` ranges under way in one stream; `message` asks for some, `count` says how many came."""
    latencies: list[float] = []
    asked = [time.perf_counter()] * in_flight
    until, free = asked[0] + seconds, 0
    await call.write(message(in_flight))
    while asked:
        answers = count(await call.read())
        now = time.perf_counter()
        latencies += [now - begun for begun in asked[:answers]]
        del asked[:answers]
        free += answers
        if now < until and free >= max(1, in_flight // 2):
            asked += [now] * free
            await call.write(message(free))
            free = 0
    return latencies


@dataclass(frozen=True, kw_only=True)
class Way:
    """One way to ask one server: `run(in_flight, seconds)` gives the latencies of the ranges that were answered."""

    name: str
    pid: int
    run: Callable[[int, float], Awaitable[list[float]]]


async def timed(way: Way, tokens: int, in_flight: int, seconds: float) -> Figures:
    """Figures of one block of ranges that have so many tokens each."""
    server, client, begun = cpu_seconds(way.pid), time.process_time(), time.perf_counter()
    latencies = sorted(await way.run(in_flight, seconds))
    wall = time.perf_counter() - begun
    cpu = cpu_seconds(way.pid) - server + time.process_time() - client
    return {
        "tokens_s": tokens * len(latencies) / wall,
        "tokens_cpu_s": tokens * len(latencies) / cpu,
        "p50_us": latencies[len(latencies) // 2] * 1e6,
        "p99_us": latencies[int(len(latencies) * 0.99)] * 1e6,
    }


def ours(channel: grpc.aio.Channel, pid: int, opened: Any, rows: int) -> Iterator[Way]:
    """The three ways to our server."""
    row_bytes = (SEQ_LEN + 1) * opened.id_bytes
    names = {"run_id": opened.run_id, "lease": opened.lease}
    get_batch = channel.unary_unary(f"{SERVICE}GetBatch")

    def a_range() -> dict[str, int]:
        slot = random.randrange(BATCH // rows) * rows
        return {"step": random.randrange(SEALED), "first_slot": slot, "rows": rows}

    def ask() -> Awaitable[bytes]:
        return get_batch(pb.GetBatchRequest(**names, **a_range()).SerializeToString())

    async def stream(in_flight: int, seconds: float, share: bool = False) -> list[float]:
        pack_bytes = min(PACK_BYTES, in_flight * rows * row_bytes // 2)  # as our loader says
        places = Places(rows * row_bytes, in_flight)

        def message(number: int) -> bytes:
            ranges = [pb.RowRange(**a_range(), share_at=places.take() if share else 0) for _ in range(number)]
            return pb.StreamBatchesRequest(ranges=ranges).SerializeToString()

        def count(data: bytes) -> int:
            answers = len(split(data))
            for _ in range(answers if share else 0):
                places.read()
            return answers

        call = channel.stream_stream(f"{SERVICE}StreamBatches")()
        with contextlib.closing(_Cancel(call)):
            first = pb.StreamBatchesRequest(**names, pack_bytes=pack_bytes, share_bytes=places.bytes if share else 0)
            await call.write(first.SerializeToString())
            if share:
                await places.fetch(await call.read())
            return await stream_block(call, message, count, in_flight, seconds)

    yield Way(name="headrace stream", pid=pid, run=stream)
    yield Way(name="headrace shared", pid=pid, run=lambda depth, seconds: stream(depth, seconds, share=True))
    each = PACK_BYTES // (rows * row_bytes)
    if each > 1:
        yield Way(name="headrace packed", pid=pid, run=lambda depth, seconds: stream(depth * each, seconds))
        yield Way(
            name="headrace packed shared", pid=pid, run=lambda depth, seconds: stream(depth * each, seconds, share=True)
        )
    yield Way(name="headrace calls", pid=pid, run=lambda depth, seconds: calls_block(ask, depth, seconds))


class Places:
    """Shared memory for ranges of one size; what arrives in it is copied out, as a loader does."""

    def __init__(self, size: int, in_flight: int) -> None:
        self.bytes = 64 + (in_flight + 1) * (size + 64) // 64 * 64
        self._size = size
        self._ring = Ring(64, self.bytes)
        self._asked: deque[int] = deque()
        self._copy = np.empty(size, np.uint8)

    async def fetch(self, answer: bytes) -> None:
        said = read_share(answer)
        assert said is not None
        assert not said.refused
        memory = await asyncio.to_thread(fetch, said, self.bytes)
        self._memory = np.frombuffer(memory, np.uint8)

    def take(self) -> int:
        self._asked.append(self._ring.take(self._size))
        assert self._asked[-1]
        return self._asked[-1]

    def read(self) -> None:
        at = self._asked.popleft()
        self._copy[:] = self._memory[at : at + self._size]
        self._ring.free()


@dataclass(frozen=True)
class _Cancel:
    call: Any

    def close(self) -> None:
        self.call.cancel()


def raw(channel: grpc.aio.Channel, pid: int, rows: int) -> Iterator[Way]:
    """Bare messages as large as ours."""
    size = str(rows * (SEQ_LEN + 1) * 4).encode()
    get = channel.unary_unary("/peer.Peer/Get")

    async def stream(in_flight: int, seconds: float) -> list[float]:
        call = channel.stream_stream("/peer.Peer/Stream")()
        with contextlib.closing(_Cancel(call)):
            return await stream_block(call, lambda n: b" ".join([size] * n), lambda data: 1, in_flight, seconds)

    yield Way(name="raw gRPC stream", pid=pid, run=stream)
    yield Way(name="raw gRPC calls", pid=pid, run=lambda depth, seconds: calls_block(lambda: get(size), depth, seconds))


def naive(channel: grpc.aio.Channel, pid: int, rows: int) -> Iterator[Way]:
    """Calls as those of ours."""
    get = channel.unary_unary("/peer.Peer/Get")

    def ask() -> Awaitable[bytes]:
        return get(b"%d %d %d" % (random.randrange(STEPS), random.randrange(BATCH // rows) * rows, rows))

    yield Way(name="naive calls", pid=pid, run=lambda depth, seconds: calls_block(ask, depth, seconds))


async def measure(
    server: Any, peers: dict[str, tuple[int, int]], *, sizes: tuple[int, ...], depths: tuple[int, ...], quick: bool
) -> list[dict[str, Any]]:
    """All sizes, depths and ways; `peers` have (pid, port)."""
    rows: list[dict[str, Any]] = []
    async with contextlib.AsyncExitStack() as stack:
        addresses = {"ours": server.address, **{name: f"127.0.0.1:{port}" for name, (_, port) in peers.items()}}
        channels = {
            name: await stack.enter_async_context(grpc.aio.insecure_channel(address, options=OPTIONS))
            for name, address in addresses.items()
        }
        open_run = channels["ours"].unary_unary(
            f"{SERVICE}OpenRun", pb.OpenRunRequest.SerializeToString, pb.OpenRunResponse.FromString
        )
        opened = await open_run(pb.OpenRunRequest(run="r", mode=pb.OPEN_MODE_TRAIN))
        assert opened.id_bytes == 4
        for kib, in_flight in itertools.product(sizes, depths):
            count = max(1, (kib << 10) // (4 * (SEQ_LEN + 1)))
            ways = (
                *ours(channels["ours"], server.process.pid, opened, count),
                *raw(channels["raw"], peers["raw"][0], count),
                *naive(channels["naive"], peers["naive"][0], count),
            )
            found: dict[str, list[Figures]] = {way.name: [] for way in ways}
            for number in range(2 if quick else 4):  # the first warms up
                for way in ways:
                    figures = await timed(way, count * SEQ_LEN, in_flight, 0.4 if quick else 0.6 if number else 0.2)
                    if number:
                        found[way.name].append(figures)
            for name, blocks in found.items():
                median = {key: statistics.median(one[key] for one in blocks) for key in blocks[0]}
                rows.append({"kib": kib, "in_flight": in_flight, "way": name, **median})
    return rows


def table(rows: list[dict[str, Any]]) -> list[str]:
    """Lines for people; each of ours beside its limit."""
    lines = ["  KiB  in flight  way                    M tokens/s  of raw gRPC  M tokens/CPU-s   p50 us   p99 us"]
    for row in rows:
        same = {other["way"]: other for other in rows if all(other[key] == row[key] for key in ("kib", "in_flight"))}
        limit = same[f"raw gRPC {'calls' if row['way'].endswith('calls') else 'stream'}"]
        lines.append(
            f"{row['kib']:>5} {row['in_flight']:>10}  {row['way']:<22}{row['tokens_s'] / 1e6:>11.1f} "
            f"{row['tokens_s'] / limit['tokens_s']:>12.0%} {row['tokens_cpu_s'] / 1e6:>15.0f} "
            f"{row['p50_us']:>8.0f} {row['p99_us']:>8.0f}"
        )
    return lines


@contextlib.contextmanager
def peer(name: str) -> Iterator[tuple[int, int]]:
    """A peer's process: (pid, port)."""
    command = [sys.executable, str(Path(__file__).with_name("serve_peers.py")), name]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process.pid, int(process.stdout.readline())
        finally:
            process.terminate()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="two sizes with 4 in flight, one round")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--kib", type=int, nargs="+", default=[16, 128, 1024, 4096], help="sizes of a range")
    arguments = parser.parse_args()
    keep_freed_memory()
    sizes, depths = ((128, 1024), (4,)) if arguments.quick else (tuple(arguments.kib), (1, 4, 8))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        documents = {"a": 40_000, "b": 20_000, "c": 9_000}
        corpus = build_small_corpus(folder, documents=documents, extra_tokens=70_000)  # ids need four bytes
        run = write_run(folder, corpus, seq_len=SEQ_LEN, batch=BATCH)
        with serving(folder, [run]) as server, peer("raw") as bare, peer("naive") as simple:
            peers = {"raw": bare, "naive": simple}
            rows = asyncio.run(measure(server, peers, sizes=sizes, depths=depths, quick=arguments.quick))
    print(json.dumps(rows, indent=2) if arguments.json else "\n".join(table(rows)))


if __name__ == "__main__":
    main()
