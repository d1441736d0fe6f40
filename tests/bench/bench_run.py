"""A run over the network: resuming far into it, changing its weights, and many clients at once.

    python tests/bench/bench_run.py [--quick] [--json]

One server on SQLite, 60 domains, 1,000 weight changes, and a log and anchors as a run of 10^7 steps leaves them (the
store is written by hand, the steps in between are not served). Measured from a client in another process:

* resume: milliseconds from a state to its first batch (OpenRun and GetBatch) at step 10, 10^4, 10^6 and 10^7: the first
  one of a server that has just been started (at each step, several starts), and again when it has answered there;
* swap: milliseconds to the acknowledgement of a change, and steps from the newest confirmed one to its effect;
* clients: 64 and 512 connections that each ask for one row after the other; p50, p99, and how even their counts are
  (Jain's index: 1 when all got the same; least and most).
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import grpc

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from corpora import build_small_corpus
from headrace.proto.v1 import data_pb2 as pb
from headrace.server.control import runs
from headrace.server.control.log_rows import insert_event
from headrace.server.control.schema import runs as runs_table
from headrace.server.control.store import Store
from headrace.server.plan import log
from headrace.server.plan.log import Event, WeightsBody
from headrace.server.plan.plan import Plan
from headrace.server.service.loading import Opener
from headrace.server.service.view import spread_anchors
from rig import Raw, ServerProcess, Trainer, headrace, serving

NAMES = [f"d{i:02}" for i in range(60)]
SEQ_LEN, BATCH, STEPS, EVENTS = 128, 512, 20_000_000, 1000
State = dict[str, Any]
PLACES = (10, 10_000, 1_000_000, 10_000_000)


def weights(dice: random.Random) -> dict[str, float]:
    raw = {name: dice.random() ** 3 + 1e-4 for name in NAMES}
    return {name: part / sum(raw.values()) for name, part in raw.items()}


def changes(count: int) -> tuple[Event, ...]:
    """Changes of weights, evenly over the steps up to the last place."""
    dice, events = random.Random(2), []
    for number in range(count):
        body, step = WeightsBody(weights=weights(dice)), PLACES[-1] * number // count
        events.append(log.append(events, body=body, from_step=step, until_step=None, author="", reason="", time_us=0))
    return tuple(events)


def make_run(folder: Path) -> tuple[Path, str]:
    """The RUN.toml and the store of a run that has come to the last place."""
    corpus = build_small_corpus(folder, documents=dict.fromkeys(NAMES, 6))
    parts = ", ".join(f"{name} = {part:.6f}" for name, part in weights(random.Random(1)).items())
    path, url = folder / "r.toml", f"sqlite:///{folder}/control.db"
    path.write_text(
        f'[run]\nname = "r"\ncorpus = "{corpus}"\nseed = 7\n[[phase]]\nname = "p"\nsteps = {STEPS}\n'
        f"seq_len = {SEQ_LEN}\nbatch = {BATCH}\nweights = {{ {parts} }}\n"
    )
    assert headrace("run", "create", str(path), "--store", url).returncode == 0
    events = changes(EVENTS)
    store = Store(url, writable=True)
    run = store.runs()[0]
    with store._database.write() as connection:
        for event in events:
            insert_event(connection, run.id, event)
        values = {"head": events[-1].hash, "sequence": len(events), "seal": PLACES[-1] + 8, "confirmed": PLACES[-1]}
        connection.execute(runs_table.update().where(runs_table.c.id == run.id).values(**values))
    anchors = spread_anchors(Opener(store).view("r").plan, PLACES[-1])
    with store._database.write() as connection:
        runs.store_anchors(connection, run.id, anchors)
    store.close()
    return path, url


def milliseconds(work: Callable[[], object]) -> float:
    begun = time.perf_counter()
    work()
    return (time.perf_counter() - begun) * 1e3


def resumed(
    server: ServerProcess, plan: Plan, place: int, attempts: Iterator[int]
) -> tuple[dict[str, Any], list[float]]:
    """A state, and the times from it to its first batch by a server that has just been started, several in a row."""
    server.stop()
    server.start()
    with Raw(server.address) as raw:
        info = raw("GetRun", run="r").run  # the connection is there
        names = {"schema": 1, "run_id": info.run_id, "spec_digest": info.spec_digest}
        state = {**names, "plan_hash": plan.hash(place), "next_step": place}
        trainers = [Trainer(raw, attempt=next(attempts)) for _ in range(4)]
        return state, [milliseconds(lambda trainer=trainer: trainer.open(state).fetch(place)) for trainer in trainers]


def resuming(server: ServerProcess, url: str, starts: int) -> tuple[dict[str, float], State]:
    """First batch after a resume, of servers that have just started and of one that has answered there; a state."""
    store = Store(url, writable=False)
    plan = Opener(store).view("r").plan
    store.close()
    found: dict[str, float] = {}
    attempts = count()
    resumed(server, plan, PLACES[0], attempts)  # this client does it for the first time
    for place in PLACES:
        times = []
        for _ in range(starts):
            state, taken = resumed(server, plan, place, attempts)
            times.append(taken)
        name = f"first batch at step {place}"
        found[f"{name}, new server, ms"] = statistics.median(taken[0] for taken in times)
        found[f"{name}, new server, worst ms"] = max(taken[0] for taken in times)
        found[f"{name}, again, ms"] = statistics.median(one for taken in times for one in taken[1:])
    return found, state


def swapping(server: ServerProcess, state: State, repeats: int) -> dict[str, float]:
    """Changes while steps are taken."""
    dice, acknowledged, effect = random.Random(3), [], []
    with Raw(server.address) as raw:
        trainer = Trainer(raw, attempt=1_000_000).open(state)
        for _ in range(repeats):
            trainer.take(2)
            begun = time.perf_counter()
            answer = raw("SetWeights", run="r", weights=weights(dice))
            acknowledged.append((time.perf_counter() - begun) * 1e3)
            effect.append(answer.event.from_step - trainer.next_step)
    return {
        "swap, ms to its acknowledgement": statistics.median(acknowledged),
        "swap, worst ms": max(acknowledged),
        "swap, steps to its effect": statistics.median(effect),
        "swap, most steps": max(effect),
    }


async def crowd(server: ServerProcess, clients: int, seconds: float) -> dict[str, float]:
    """Connections that each ask for one row of the newest steps, and ask again when they have it."""
    options = (("grpc.use_local_subchannel_pool", 1),)
    counts, times = [0] * clients, []
    service = "/headrace.v1.DataService/"
    channels = [grpc.aio.insecure_channel(server.address, options=options) for _ in range(clients)]
    open_run = channels[0].unary_unary(
        f"{service}OpenRun", pb.OpenRunRequest.SerializeToString, pb.OpenRunResponse.FromString
    )
    opened = await open_run(pb.OpenRunRequest(run="r", mode=pb.OPEN_MODE_OBSERVE))
    request = pb.GetBatchRequest(run_id=opened.run_id, step=PLACES[-1], rows=1).SerializeToString()
    calls = [channel.unary_unary(f"{service}GetBatch") for channel in channels]
    for begin in range(0, clients, 32):  # connect, a few at a time
        await asyncio.gather(*(call(request) for call in calls[begin : begin + 32]))
    until = time.perf_counter() + seconds

    async def ask(number: int) -> None:
        while time.perf_counter() < until:
            begun = time.perf_counter()
            await calls[number](request)
            times.append((time.perf_counter() - begun) * 1e3)
            counts[number] += 1

    await asyncio.gather(*(ask(number) for number in range(clients)))
    await asyncio.gather(*(channel.close() for channel in channels))
    times.sort()
    name = f"{clients} clients"
    return {
        f"{name}, calls a second": len(times) / seconds,
        f"{name}, p50 ms": times[len(times) // 2],
        f"{name}, p99 ms": times[int(len(times) * 0.99)],
        f"{name}, Jain's index": sum(counts) ** 2 / (clients * sum(count * count for count in counts)),
        f"{name}, least calls of one": min(counts),
        f"{name}, most calls of one": max(counts),
    }


def measure(quick: bool) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        path, url = make_run(folder)
        with serving(folder, [path], extra="changes_per_second = 0") as server:
            found, state = resuming(server, url, 1 if quick else 5)
            found |= swapping(server, state, 5 if quick else 50)
            for clients in (64,) if quick else (64, 512):
                found |= asyncio.run(crowd(server, clients, 1.0 if quick else 5.0))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    found = measure(arguments.quick)
    if arguments.json:
        print(json.dumps(found, indent=2))
        return
    for name, value in found.items():
        print(f"{name:45} {value:12.2f}")


if __name__ == "__main__":
    main()
