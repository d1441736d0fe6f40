"""What a pusher gone wild costs the trainers: a thousand changes of weights a second against one server.

    python tests/bench/bench_pushes.py [--quick] [--json]

One process reads a sealed step over and over, another asks for changes at the rate given, each in time slots of its own
so that a slow answer makes no change fewer. Printed: changes taken and refused, and p50 and p99 of the reads, alone and
meanwhile. The reader, the pusher and the server share the cores of the machine; a part of the ratio is theirs.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import sys
import tempfile
import time
from collections import Counter
from multiprocessing.synchronize import Event
from pathlib import Path

import grpc
import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from corpora import build_small_corpus
from headrace.proto.v1 import control_pb2, control_pb2_grpc
from rig import Raw, Trainer, serving, write_run

RATE = 1000
WEIGHTS = {"a": 0.2, "b": 0.3, "c": 0.5}


async def push(address: str, seconds: float) -> Counter[str]:
    """Status codes of `RATE` changes a second."""
    codes: Counter[str] = Counter()
    async with grpc.aio.insecure_channel(address) as channel:
        control = control_pb2_grpc.ControlServiceStub(channel)

        async def one() -> None:
            try:
                await control.SetWeights(control_pb2.SetWeightsRequest(run="r", weights=WEIGHTS), timeout=20)
                codes["OK"] += 1
            except grpc.RpcError as error:
                codes[error.code().name] += 1

        begun, asked = time.perf_counter(), set()
        for number in range(int(RATE * seconds)):
            await asyncio.sleep(max(0.0, begun + number / RATE - time.perf_counter()))
            asked.add(asyncio.create_task(one()))
        await asyncio.gather(*asked)
    return codes


def pusher(address: str, seconds: float, done: multiprocessing.SimpleQueue[Counter[str]], started: Event) -> None:
    started.set()
    done.put(asyncio.run(push(address, seconds)))


def read(raw: Raw, run_id: str, seconds: float) -> list[float]:
    """Times of reads, in milliseconds, one after the other."""
    times, until = [], time.perf_counter() + seconds
    while (begun := time.perf_counter()) < until:
        raw("GetBatch", run_id=run_id, step=0, first_slot=0, rows=8)
        times.append(1000 * (time.perf_counter() - begun))
    return times


def measure(seconds: float) -> dict[str, float]:
    folder = Path(tempfile.mkdtemp(prefix="headrace-pushes-"))
    run = write_run(folder, build_small_corpus(folder), steps=10**6)
    with serving(folder, [run]) as server, Raw(server.address) as raw:
        run_id = Trainer(raw).open().take(2).opened.run_id
        read(raw, run_id, 1.0)
        alone = read(raw, run_id, seconds)
        context = multiprocessing.get_context("spawn")
        done: multiprocessing.SimpleQueue[Counter[str]] = context.SimpleQueue()
        started = context.Event()
        process = context.Process(target=pusher, args=(server.address, seconds + 1, done, started))
        process.start()
        started.wait()
        time.sleep(0.5)
        meanwhile = read(raw, run_id, seconds)
        codes = done.get()
        process.join()
    figures = {f"changes {code}": float(count) for code, count in codes.items()}
    for name, times in (("alone", alone), ("meanwhile", meanwhile)):
        figures |= {f"read p{q} {name}, ms": float(np.percentile(times, q)) for q in (50, 99)}
    return figures | {"p99 ratio": figures["read p99 meanwhile, ms"] / figures["read p99 alone, ms"]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="five seconds instead of a minute")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    figures = measure(5.0 if options.quick else 60.0)
    if options.json:
        print(json.dumps(figures))
        return
    for name, value in figures.items():
        print(f"{name:<40} {value:12.2f}")


if __name__ == "__main__":
    main()
