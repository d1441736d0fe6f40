"""What a pusher gone wild costs the trainers: a thousand changes of weights a second against one server.

    python tests/bench/bench_pushes.py [--quick] [--json]

One process reads a sealed step over and over, another asks for changes at the rate given, each in time slots of its own
so that a slow answer makes no change fewer. The reads are timed alone, while the pusher pushes against another server
beside (the control: what the cores lack for four processes), and while it pushes against the one that is read. Blocks
of the three take turns; figures are medians over the rounds. Printed: changes taken and refused by the server that is
read, CPU seconds a second of all four processes, p50 and p99 of the reads, and the p99 as a ratio to those of the other
two kinds of block.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import multiprocessing
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path

import grpc
import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from bench_serve import cpu_seconds
from corpora import build_small_corpus
from headrace.proto.v1 import control_pb2, control_pb2_grpc
from rig import Raw, Trainer, serving, write_run

RATE = 1000
WEIGHTS = {"a": 0.2, "b": 0.3, "c": 0.5}


async def push(address: str, seconds: float) -> Counter[str]:
    """Status codes of `RATE` changes a second; and those that have no answer at the end."""
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
        codes["without an answer"] = sum(task.cancel() for task in asked)
        await asyncio.gather(*asked, return_exceptions=True)
    return codes


def pusher(address: str, wishes: Connection) -> None:
    """Pushes for as many seconds as it is told, again and again; the codes and its CPU seconds each time."""
    while seconds := wishes.recv():
        begun = time.process_time()
        codes = asyncio.run(push(address, seconds))
        wishes.send((codes, time.process_time() - begun))


@dataclass(frozen=True, kw_only=True)
class Block:
    """Times of the reads in milliseconds, codes of the changes, and CPU seconds a second of each process."""

    times: list[float]
    codes: Counter[str]
    cpu: dict[str, float]

    def p(self, q: int) -> float:
        return float(np.percentile(self.times, q))


class Reader:
    """Reads from one server, one read after the other, while a pusher works against it or another, or none does."""

    def __init__(self, raw: Raw, run_id: str, pids: dict[str, int]) -> None:
        self._raw, self._run_id, self._pids = raw, run_id, pids

    def block(self, seconds: float, wishes: Connection | None = None) -> Block:
        if wishes is not None:
            wishes.send(seconds + 1)
            time.sleep(0.5)
        before = {name: cpu_seconds(pid) for name, pid in self._pids.items()}
        own, times, begun = time.process_time(), list[float](), time.perf_counter()
        while (asked := time.perf_counter()) < begun + seconds:
            self._raw("GetBatch", run_id=self._run_id, step=0, first_slot=0, rows=8)
            times.append(1000 * (time.perf_counter() - asked))
        cpu = {name: (cpu_seconds(pid) - before[name]) / seconds for name, pid in self._pids.items()}
        cpu["reader"] = (time.process_time() - own) / seconds
        codes, pushing = wishes.recv() if wishes is not None else (Counter(), 0.0)
        return Block(times=times, codes=codes, cpu={**cpu, "pusher": pushing / (seconds + 1)})


KINDS = ("alone", "control", "meanwhile")


def figures_of(rounds: list[dict[str, Block]]) -> dict[str, float]:
    """Medians over the rounds."""

    def median(figure: Callable[[dict[str, Block]], float]) -> float:
        return statistics.median(figure(one) for one in rounds)

    codes = sum((one["meanwhile"].codes for one in rounds), Counter[str]())
    figures = {f"changes {code}": float(count) for code, count in codes.items()}
    for kind in KINDS:
        figures |= {
            f"CPU of the {name}, {kind}": median(lambda r, n=name, k=kind: r[k].cpu[n]) for name in rounds[0][kind].cpu
        }
        figures |= {f"read p{q} {kind}, ms": median(lambda r, q=q, k=kind: r[k].p(q)) for q in (50, 99)}
    figures["p99 ratio to alone"] = median(lambda r: r["meanwhile"].p(99) / r["alone"].p(99))
    figures["p99 ratio of the control to alone"] = median(lambda r: r["control"].p(99) / r["alone"].p(99))
    return figures | {"p99 ratio to the control": median(lambda r: r["meanwhile"].p(99) / r["control"].p(99))}


@contextlib.contextmanager
def pushing(address: str) -> Iterator[Connection]:
    """A pusher process against a server."""
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    process = context.Process(target=pusher, args=(address, there))
    process.start()
    try:
        yield here
    finally:
        here.send(0)
        process.join()


def measure(seconds: float, rounds: int) -> dict[str, float]:
    folder = Path(tempfile.mkdtemp(prefix="headrace-pushes-"))
    corpus = build_small_corpus(folder)
    with contextlib.ExitStack() as stack:
        servers, wishes = [], []
        for name in ("read", "beside"):
            (place := folder / name).mkdir()
            servers.append(stack.enter_context(serving(place, [write_run(place, corpus, steps=10**6)])))
            wishes.append(stack.enter_context(pushing(servers[-1].address)))
            raw = stack.enter_context(Raw(servers[-1].address))
            opened = Trainer(raw).open().take(2).opened
            if name == "read":
                reader, run_id = raw, opened.run_id
        pids = {
            f"server that is {name}": server.process.pid
            for name, server in zip(("read", "beside"), servers, strict=True)
        }
        reads = Reader(reader, run_id, pids)
        reads.block(1.0, wishes[0])
        reads.block(1.0, wishes[1])
        done = [
            {kind: reads.block(seconds, of) for kind, of in zip(KINDS, (None, wishes[1], wishes[0]), strict=True)}
            for _ in range(rounds)
        ]
    return figures_of(done)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="seconds instead of a minute")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    figures = measure(*((2.5, 5) if options.quick else (12.0, 5)))
    if options.json:
        print(json.dumps(figures))
        return
    for name, value in figures.items():
        print(f"{name:<40} {value:12.2f}")


if __name__ == "__main__":
    main()
