"""The loader beside raw gRPC: tokens/s, CPU of the trainer's process, its wait a step, memory over many batches.

    python tests/bench/bench_client.py [--quick] [--json]

A server in its own process answers with prepared bytes and does nothing else, so that the client is what is measured.
`raw` is the limit: threads that make the same unary calls and drop the replies. Blocks of the two alternate; figures
are medians. The loader's figures include all it does: checks, digests, the copy into the batch's buffer, confirmation.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc
import numpy as np
from headrace.client import Loader, Settings
from headrace.native import row_digests
from headrace.proto.v1 import data_pb2

SEQ_LEN = 4096
ID_BYTES = 2
OPTIONS = (("grpc.max_receive_message_length", 64 << 20), ("grpc.max_send_message_length", 64 << 20))


def prepared(rows: int) -> bytes:
    """A Batch without its step; the step is appended, which protobuf takes for the same message."""
    ids = np.random.default_rng(0).integers(0, 60_000, (rows, SEQ_LEN + 1)).astype("<u2").tobytes()
    edges = np.tile(np.array([700, 1900, 3300], dtype="<u4"), rows)
    ends = np.arange(3, 3 * rows + 3, 3, dtype="<u4")
    domains, weights = np.zeros(rows, "<u4"), np.ones(rows, "<f4")
    return data_pb2.Batch(
        segment=1,
        rows=rows,
        seq_len=SEQ_LEN,
        token_ids=ids,
        domains=domains.tobytes(),
        edge_ends=ends.tobytes(),
        edges=edges.tobytes(),
        real_ids=np.full(rows, SEQ_LEN + 1, "<u4").tobytes(),
        row_digests=row_digests(ids, (SEQ_LEN + 1) * ID_BYTES, ends, edges, ["a"], domains, weights),
        plan_hash=bytes(32),
        next_plan_hash=bytes(32),
    ).SerializeToString()


def varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


async def serve(batch: int, most: int) -> None:
    """Answers OpenRun and GetBatch for one endless run."""
    from headrace.server.service.malloc import keep_freed_memory

    keep_freed_memory()
    bodies: dict[int, bytes] = {}

    async def open_run(request: Any, context: Any) -> Any:
        answer = data_pb2.OpenRunResponse(run_id="b", lease="l", spec_digest=bytes(32), plan_hash=bytes(32), lead=8)
        answer.next_step = request.state.next_step
        answer.domains.append("a")
        answer.id_bytes, answer.max_rows = ID_BYTES, most
        answer.shapes.add(from_step=answer.next_step, batch=batch, seq_len=SEQ_LEN)
        return answer

    async def get_batch(request: Any, context: Any) -> bytes:
        body = bodies.get(request.rows) or bodies.setdefault(request.rows, prepared(request.rows))
        head = data_pb2.Batch(step=request.step, first_slot=request.first_slot).SerializeToString()
        return b"".join((b"\x0a", varint(len(head) + len(body)), head, body))

    async def other(request: bytes, context: Any) -> bytes:
        return b""

    handlers = {
        "OpenRun": grpc.unary_unary_rpc_method_handler(
            open_run, data_pb2.OpenRunRequest.FromString, data_pb2.OpenRunResponse.SerializeToString
        ),
        "GetBatch": grpc.unary_unary_rpc_method_handler(get_batch, data_pb2.GetBatchRequest.FromString),
        "Confirm": grpc.unary_unary_rpc_method_handler(other),
        "CloseRun": grpc.unary_unary_rpc_method_handler(other),
    }
    server = grpc.aio.server(options=OPTIONS)
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("headrace.v1.DataService", handlers),))
    print(server.add_insecure_port("127.0.0.1:0"), flush=True)
    await server.start()
    await server.wait_for_termination()


class Serving:
    """The server's process."""

    def __init__(self, *, batch: int, most: int = 1 << 20) -> None:
        command = [sys.executable, __file__, "--serve", str(batch), str(most)]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        self.address = f"127.0.0.1:{int(self._process.stdout.readline())}"

    def __enter__(self) -> Serving:
        return self

    def __exit__(self, *exc: object) -> None:
        self._process.kill()
        self._process.wait()


def measured(work: Callable[..., int], *arguments: Any) -> dict[str, float]:
    """Bytes of ids a second, and CPU seconds of this process a GB; `work` says how many bytes it moved."""
    cpu, begun = time.process_time(), time.perf_counter()
    moved = work(*arguments)
    wall, used = time.perf_counter() - begun, time.process_time() - cpu
    return {"bytes_s": moved / wall, "cpu_s_per_gb": used / moved * 1e9}


def raw_block(address: str, rows: int, calls: int, in_flight: int) -> int:
    """`in_flight` threads make unary calls and drop what they get."""
    with grpc.insecure_channel(address, options=OPTIONS) as channel:
        stub = channel.unary_unary("/headrace.v1.DataService/GetBatch")
        request = data_pb2.GetBatchRequest(step=1, rows=rows).SerializeToString()

        def work() -> None:
            for _ in range(calls // in_flight):
                stub(request)

        threads = [threading.Thread(target=work) for _ in range(in_flight)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    return calls // in_flight * in_flight * rows * (SEQ_LEN + 1) * ID_BYTES


def loader_block(address: str, steps: int, settings: Settings) -> int:
    moved = 0
    with Loader(address, "b", settings=settings) as loader:
        for _ in range(steps):
            moved += next(loader).token_ids.nbytes
    return moved


def throughput(quick: bool) -> list[dict[str, Any]]:
    """Loader and raw calls for several sizes of a rank's step."""
    found = []
    for kib in (1024,) if quick else (128, 1024, 4096):
        rows = max(1, (kib << 10) // ((SEQ_LEN + 1) * ID_BYTES))
        calls = (32 if quick else 256) * 1024 // kib
        settings = Settings(message_bytes=8 << 20)
        blocks: dict[str, list[dict[str, float]]] = {"loader": [], "raw": []}
        with Serving(batch=rows) as server:
            raw_block(server.address, rows, 16, 4)
            for _ in range(1 if quick else 5):
                blocks["loader"].append(measured(loader_block, server.address, calls, settings))
                blocks["raw"].append(measured(raw_block, server.address, rows, calls, settings.in_flight))
        median = {
            name: {key: statistics.median(one[key] for one in several) for key in several[0]}
            for name, several in blocks.items()
        }
        found.append({"kib": kib, **median})
    return found


def waits(quick: bool) -> list[dict[str, float]]:
    """What a trainer waits a step while it computes for a while on each."""
    found = []
    with Serving(batch=32) as server:
        for step_ms in (20.0,) if quick else (20.0, 50.0, 200.0):
            steps = int((0.5 if quick else 4.0) / step_ms * 1e3)
            with Loader(server.address, "b") as loader:
                next(loader)
                before = loader.stats.wait_seconds
                for _ in range(steps):
                    time.sleep(step_ms / 1e3)
                    next(loader)
                wait_ms = (loader.stats.wait_seconds - before) / steps * 1e3
            found.append({"step_ms": step_ms, "wait_ms": wait_ms, "share": wait_ms / step_ms})
    return found


def first_batch(quick: bool) -> float:
    """Seconds from making a loader with a state of step 100,000 to its first batch."""
    state = {"schema": 1, "run_id": "b", "spec_digest": "00" * 32, "plan_hash": "00" * 32, "next_step": 100_000}
    times = []
    with Serving(batch=32) as server:
        for _ in range(3 if quick else 15):
            begun = time.perf_counter()
            loader = Loader(server.address, "b")
            loader.load_state_dict(state)
            assert next(loader).step == 100_000
            times.append(time.perf_counter() - begun)
            loader.close()
    return statistics.median(times)


def memory(quick: bool) -> dict[str, float]:
    """Resident MB early and late over many small batches, and the peak."""
    steps = 2_000 if quick else 100_000
    with Serving(batch=1) as server, Loader(server.address, "b") as loader:
        for _ in range(steps // 10):
            next(loader)
        early = resident()
        for _ in range(steps - steps // 10):
            next(loader)
        late = resident()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {"batches": steps, "early_mb": early, "late_mb": late, "peak_mb": peak}


def resident() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def report(found: dict[str, Any]) -> list[str]:
    """Lines for people."""
    lines = ["  KiB  M tokens/s   of raw gRPC   M tokens/CPU-s   CPU-s/GB (raw)"]
    for row in found["throughput"]:
        ours, raw = row["loader"], row["raw"]
        tokens = 1 / ID_BYTES / 1e6
        lines.append(
            f"{row['kib']:>5} {ours['bytes_s'] * tokens:>11.0f} {ours['bytes_s'] / raw['bytes_s']:>13.0%} "
            f"{1e9 / ours['cpu_s_per_gb'] * tokens:>16.0f}   {ours['cpu_s_per_gb']:.2f} ({raw['cpu_s_per_gb']:.2f})"
        )
    lines += [f"step {w['step_ms']:.0f} ms: waits {w['wait_ms']:.3f} ms ({w['share']:.2%})" for w in found["waits"]]
    lines.append(f"first batch at step 100,000: {found['first_batch_s'] * 1e3:.1f} ms")
    memory = found["memory"]
    lines.append(
        f"{memory['batches']:,} batches: {memory['early_mb']:.1f} MB after a tenth, {memory['late_mb']:.1f} MB at the "
        f"end, peak {memory['peak_mb']:.1f} MB"
    )
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--serve", nargs=2, type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.serve:
        import asyncio

        asyncio.run(serve(*arguments.serve))
        return
    quick = arguments.quick
    found = {
        "throughput": throughput(quick),
        "waits": waits(quick),
        "first_batch_s": first_batch(quick),
        "memory": memory(quick),
    }
    print(json.dumps(found, indent=2) if arguments.json else "\n".join(report(found)))


if __name__ == "__main__":
    main()
