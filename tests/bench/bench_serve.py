"""Serving over loopback beside raw gRPC: tokens/s, CPU seconds and latency, at several sizes and requests in flight.

    python tests/bench/bench_serve.py [--quick] [--json]

Three processes: our server on a corpus of random text, a server that answers with fresh bytes of the same size and does
nothing else (the limit), and this client, which asks both in the same way: by unary calls, and over one stream with as
many ranges under way, asked for again in one message as half of them are answered. Digests are made and sent,
nothing is checked on this side. Figures are medians over repetitions; blocks of the two servers alternate.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import grpc

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
OPTIONS = (("grpc.max_receive_message_length", 64 << 20), ("grpc.max_send_message_length", 64 << 20))
Figures = dict[str, float]
SEQ_LEN = 4096
BATCH = 512


async def limit_server() -> None:
    """Answers `size` with that many fresh bytes."""
    from headrace.server.service.malloc import keep_freed_memory

    keep_freed_memory()
    source = memoryview(os.urandom(1 << 20) * 6)
    at = 0

    async def get(request: bytes, context: Any) -> bytes:
        nonlocal at
        at = (at + 4096) % (1 << 20)
        return bytes(source[at : at + int(request)])

    server = grpc.aio.server(options=OPTIONS)

    async def stream(requests: AsyncIterator[bytes], context: Any) -> AsyncIterator[bytes]:
        async for request in requests:
            for size in request.split():
                yield await get(size, context)

    methods = {"Get": grpc.unary_unary_rpc_method_handler(get), "Stream": grpc.stream_stream_rpc_method_handler(stream)}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("limit.Limit", methods),))
    print(server.add_insecure_port("127.0.0.1:0"), flush=True)
    await server.start()
    await server.wait_for_termination()


def cpu_seconds(pid: int) -> float:
    """User and system time of a process."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def block(ask: Callable[[], Awaitable[bytes]], in_flight: int, seconds: float, pid: int) -> Figures:
    """Keeps `in_flight` calls under way for some seconds."""
    sizes: list[int] = []
    latencies: list[float] = []
    until = time.perf_counter() + seconds

    async def worker() -> None:
        while time.perf_counter() < until:
            begun = time.perf_counter()
            sizes.append(len(await ask()))
            latencies.append(time.perf_counter() - begun)

    return await timed(lambda: asyncio.gather(*(worker() for _ in range(in_flight))), sizes, latencies, pid)


async def stream_block(call: Any, message: Callable[[int], bytes], in_flight: int, seconds: float, pid: int) -> Figures:
    """Keeps `in_flight` ranges under way in one stream for some seconds; `message` asks for a number of them."""
    sizes: list[int] = []
    latencies: list[float] = []
    refill = max(1, in_flight // 2)

    async def run() -> None:
        asked = [time.perf_counter()] * in_flight
        until = asked[0] + seconds
        await call.write(message(in_flight))
        while asked[0] < until:
            for _ in range(refill):
                sizes.append(len(await call.read()))
                latencies.append(time.perf_counter() - asked.pop(0))
            asked += [time.perf_counter()] * refill
            await call.write(message(refill))
        for _ in asked:
            await call.read()

    return await timed(run, sizes, latencies, pid)


async def timed(run: Callable[[], Awaitable[Any]], sizes: list[int], latencies: list[float], pid: int) -> Figures:
    """Figures of what `run` has moved."""
    server, client, begun = cpu_seconds(pid), time.process_time(), time.perf_counter()
    await run()
    wall = time.perf_counter() - begun
    cpu = cpu_seconds(pid) - server + time.process_time() - client
    latencies.sort()
    return {
        "bytes_s": sum(sizes) / wall,
        "cpu_s_per_gb": cpu / sum(sizes) * 1e9,
        "p50_us": latencies[len(latencies) // 2] * 1e6,
        "p99_us": latencies[int(len(latencies) * 0.99)] * 1e6,
    }


async def measure(ours: Any, limit: subprocess.Popen[str], limit_port: int, quick: bool) -> list[dict[str, Any]]:
    """All sizes and depths, both servers in turn."""
    from headrace.proto.v1 import data_pb2 as pb

    rows: list[dict[str, Any]] = []
    async with (
        grpc.aio.insecure_channel(ours.address, options=OPTIONS) as channel,
        grpc.aio.insecure_channel(f"127.0.0.1:{limit_port}", options=OPTIONS) as bare,
    ):
        service = "/headrace.v1.DataService/"
        open_run = channel.unary_unary(
            f"{service}OpenRun", pb.OpenRunRequest.SerializeToString, pb.OpenRunResponse.FromString
        )
        opened = await open_run(pb.OpenRunRequest(run="r", mode=pb.OPEN_MODE_TRAIN))
        get_batch = channel.unary_unary(f"{service}GetBatch")
        get_limit = bare.unary_unary("/limit.Limit/Get")
        row_bytes = (SEQ_LEN + 1) * opened.id_bytes
        sizes = (128, 1024) if quick else (16, 128, 1024, 4096)
        for kib in sizes:
            count = max(1, min(BATCH, opened.max_rows, (kib << 10) // row_bytes))

            def a_range(count: int = count) -> dict[str, int]:
                slot = random.randrange(BATCH // count) * count
                return {"step": random.randrange(8), "first_slot": slot, "rows": count}

            def ours_ask(a_range: Callable[[], dict[str, int]] = a_range) -> Awaitable[bytes]:
                request = pb.GetBatchRequest(run_id=opened.run_id, lease=opened.lease, **a_range())
                return get_batch(request.SerializeToString())

            def ours_message(number: int, a_range: Callable[[], dict[str, int]] = a_range) -> bytes:
                ranges = [pb.RowRange(**a_range()) for _ in range(number)]
                request = pb.StreamBatchesRequest(run_id=opened.run_id, lease=opened.lease, ranges=ranges)
                return request.SerializeToString()

            size = str(len(await ours_ask())).encode()
            for in_flight in (4,) if quick else (1, 4, 8):
                found: dict[str, list[Figures]] = {
                    f"{server} {way}": [] for way in ("calls", "stream") for server in ("headrace", "raw grpc")
                }
                for _ in range(2 if quick else 5):
                    seconds = 0.5 if quick else 0.8
                    mine, bare_pid = ours.process.pid, limit.pid
                    found["headrace calls"].append(await block(ours_ask, in_flight, seconds, mine))
                    found["raw grpc calls"].append(
                        await block(lambda size=size: get_limit(size), in_flight, seconds, bare_pid)
                    )
                    call = channel.stream_stream(f"{service}StreamBatches")()
                    found["headrace stream"].append(await stream_block(call, ours_message, in_flight, seconds, mine))
                    call.cancel()
                    call = bare.stream_stream("/limit.Limit/Stream")()
                    found["raw grpc stream"].append(
                        await stream_block(
                            call, lambda number, size=size: b" ".join([size] * number), in_flight, seconds, bare_pid
                        )
                    )
                    call.cancel()
                for name, blocks in found.items():
                    median = {key: statistics.median(one[key] for one in blocks) for key in blocks[0]}
                    tokens = median["bytes_s"] * (count * SEQ_LEN / int(size))
                    rows.append({"server": name, "kib": kib, "in_flight": in_flight, "tokens_s": tokens, **median})
    return rows


def table(rows: list[dict[str, Any]]) -> list[str]:
    """Lines for people: each of ours beside its limit."""
    lines = [
        "  KiB  in flight   way      M tokens/s   of raw gRPC   M tokens/CPU-s (of raw)   p50/p99 us (raw p50/p99)"
    ]
    for ours, limit in zip(rows[::2], rows[1::2], strict=True):
        per_cpu = ours["tokens_s"] / ours["bytes_s"] * 1e9 / ours["cpu_s_per_gb"]
        lines.append(
            f"{ours['kib']:>5} {ours['in_flight']:>10}   {ours['server'].split()[-1]:<6} "
            f"{ours['tokens_s'] / 1e6:>12.1f} "
            f"{ours['bytes_s'] / limit['bytes_s']:>12.0%} {per_cpu / 1e6:>16.0f} "
            f"({limit['cpu_s_per_gb'] / ours['cpu_s_per_gb']:>5.0%})    "
            f"{ours['p50_us']:.0f}/{ours['p99_us']:.0f} ({limit['p50_us']:.0f}/{limit['p99_us']:.0f})"
        )
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--limit-server", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.limit_server:
        asyncio.run(limit_server())
        return
    from corpora import build_small_corpus
    from headrace.server.service.malloc import keep_freed_memory
    from rig import serving, write_run

    keep_freed_memory()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        corpus = build_small_corpus(folder, documents={"a": 40_000, "b": 20_000, "c": 9_000})
        run = write_run(folder, corpus, seq_len=SEQ_LEN, batch=BATCH)
        command = [sys.executable, __file__, "--limit-server"]
        with serving(folder, [run]) as ours, subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as limit:
            assert limit.stdout is not None
            try:
                rows = asyncio.run(measure(ours, limit, int(limit.stdout.readline()), arguments.quick))
            finally:
                limit.kill()
    print(json.dumps(rows, indent=2) if arguments.json else "\n".join(table(rows)))


if __name__ == "__main__":
    main()
