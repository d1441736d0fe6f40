"""Speed of the plan: `python tests/bench/bench_plan.py [--quick] [--json]`.

60 domains, 10^10 windows, 1,000 weight changes. Medians of several runs; anchors every 1,000 steps as the store keeps
them. Prints nanoseconds a slot and a step, milliseconds to a cursor far into the run, with an anchor and without one,
and what a new event costs.
"""

from __future__ import annotations

import json
import random
import statistics
import sys
import time
from collections.abc import Callable

from headrace.server.plan import log
from headrace.server.plan.facts import CorpusFacts, ViewFacts
from headrace.server.plan.log import Event, WeightsBody
from headrace.server.plan.plan import Plan
from headrace.server.plan.spec import Phase, Point, RunSpec

NAMES = [f"d{i:02}" for i in range(60)]
SEQ_LEN, BATCH, STEPS = 4096, 512, 20_000_000
WINDOWS = 10**10


def weights(rng: random.Random) -> dict[str, float]:
    raw = {name: rng.random() ** 3 + 1e-4 for name in NAMES}
    return {name: part / sum(raw.values()) for name, part in raw.items()}


def corpus() -> CorpusFacts:
    each = WINDOWS // len(NAMES)
    views = {(name, SEQ_LEN, "concat"): ViewFacts(windows=each, real_tokens=each * SEQ_LEN - 7) for name in NAMES}
    tokens = dict.fromkeys(NAMES, each * SEQ_LEN - 7)
    return CorpusFacts(digest=bytes(32), tokens=tokens, vocab_size=50_000, pad_id=0, views=views)


def spec(draw: str = "balanced", *points: Point) -> RunSpec:
    points = points or (Point(at=0, weights=weights(random.Random(1))),)
    phase = Phase(name="p", steps=STEPS, seq_len=SEQ_LEN, batch=BATCH, points=points)
    return RunSpec(name="bench", corpus="c", seed=1, draw=draw, phases=(phase,))


def changes(count: int, reach: int) -> tuple[Event, ...]:
    rng, events = random.Random(2), []
    for number in range(count):
        body = WeightsBody(weights=weights(rng))
        step = reach * number // count
        events.append(log.append(events, body=body, from_step=step, until_step=None, author="", reason="", time_us=0))
    return tuple(events)


def median_ms(work: Callable[[], object], repeats: int) -> float:
    times = []
    for _ in range(repeats):
        begin = time.perf_counter()
        work()
        times.append((time.perf_counter() - begin) * 1e3)
    return statistics.median(times)


def cursors(
    facts: CorpusFacts, events: tuple[Event, ...], stored: list[tuple[int, str]], step: int, repeats: int
) -> Callable[[], object]:
    """Asks plans that have just been made, one a call, for the cursor of a step."""
    plans = [Plan(spec(), facts, events, stored) for _ in range(repeats)]
    return lambda: plans.pop().cursor(step)


def measure(quick: bool) -> dict[str, float]:
    facts, repeats = corpus(), 3 if quick else 9
    found: dict[str, float] = {}
    plan = Plan(spec(), facts)
    steps = iter(range(1000, 1000 + 300 * repeats))
    plan.draw(999)
    found["draw, next step, ns a slot"] = (
        median_ms(lambda: [plan.draw(next(steps)) for _ in range(200)], repeats) * 1e6 / 200 / BATCH
    )
    reach = 10_000 if quick else 200_000
    walk = median_ms(lambda: Plan(spec(), facts).cursor(reach), repeats)
    found["advance, constant weights, ns a step"] = walk * 1e6 / reach
    ramp = (
        Point(at=0, weights=weights(random.Random(1)), curve="cosine"),
        Point(at=STEPS - 1, weights=weights(random.Random(2))),
    )
    found["advance, cosine schedule, ns a step"] = (
        median_ms(lambda: Plan(spec("balanced", *ramp), facts).cursor(1000), repeats) * 1e3
    )
    found["advance, multinomial, ns a step"] = (
        median_ms(lambda: Plan(spec("multinomial"), facts).cursor(1000), repeats) * 1e3
    )
    events = changes(1000, 10_000_000)
    swapped = Plan(spec(), facts, events)
    for step in (10, 10_000, 1_000_000) if quick else (10, 10_000, 1_000_000, 10_000_000):
        stored = [(step - step % 1000, swapped.anchor(step - step % 1000))]
        for at in (step, step + 500):
            found[f"cursor at {at} from an anchor, ms"] = median_ms(
                cursors(facts, events, stored, at, repeats), repeats
            )
    for step in (10_000, 1_000_000, STEPS - 1):
        found[f"cursor at {step} without an anchor, ms"] = median_ms(
            lambda s=step: Plan(spec(), facts).cursor(s), repeats
        )
    found["cursor after 1,000 changes, no anchor, ms"] = median_ms(
        lambda: Plan(spec(), facts, events).cursor(10_000_000), min(repeats, 3)
    )
    found["plan of 1,000 events from nothing, ms"] = median_ms(lambda: Plan(spec(), facts, events), repeats)
    body = WeightsBody(weights=weights(random.Random(3)))
    last = log.append(events, body=body, from_step=10_000_000, until_step=None, author="", reason="", time_us=0)
    found["plan with one event more, ms"] = median_ms(lambda: swapped.with_events((*events, last)), repeats)
    return found


def main() -> None:
    found = measure("--quick" in sys.argv)
    if "--json" in sys.argv:
        print(json.dumps(found))
        return
    for name, value in found.items():
        print(f"{name:45} {value:12.3f}")


if __name__ == "__main__":
    main()
