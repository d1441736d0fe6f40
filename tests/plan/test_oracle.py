"""The plan against its plain-Python twin, on random runs.

They have phases, schedules, events that nest and are taken back, generations that join, caps, both draws, both orders.
"""

from __future__ import annotations

import os
import random

import pytest
from headrace.proto.errors import OutOfRangeError
from headrace.server.plan.plan import Plan
from random_runs import RandomRun, make_run

RUNS = 3000 if os.environ.get("HEADRACE_SLOW") else 80


def slots_of(plan: Plan, step: int) -> list[tuple[str, int, int, int]]:
    draw = plan.draw(step)
    columns = (draw.domains, draw.passes, draw.indices, draw.windows)
    return [(plan.domains[d], int(p), int(i), int(w)) for d, p, i, w in zip(*columns, strict=True)]


def cursor_of(plan: Plan, step: int) -> dict[str, tuple[int, int, int, int]]:
    cursor = plan.cursor(step)
    columns = (cursor.credit, cursor.passes, cursor.indices, cursor.tokens)
    rows = ((int(c), int(p), int(i), int(t)) for c, p, i, t in zip(*columns, strict=True))
    return dict(zip(plan.domains, rows, strict=True))


def check(run: RandomRun) -> int:
    """Every step of the run by both; returns how many there are."""
    plan, oracle = run.plan(), run.oracle()
    count = 0
    for step in oracle:
        assert slots_of(plan, step.number) == step.slots, f"seed {run.seed}, step {step.number}"
        assert cursor_of(plan, step.number) == step.cursor, f"seed {run.seed}, step {step.number}"
        assert dict(zip(plan.domains, map(int, plan.shares(step.number)), strict=True)) == step.shares
        assert plan.loss_weights(step.number) == step.loss_weights
        count += 1
    assert plan.end == count, f"seed {run.seed}: {plan.end_reason}"
    with pytest.raises(OutOfRangeError):
        plan.draw(count)
    if oracle.ended is not None and count < run.spec.steps:
        assert f"`{oracle.ended}`" in plan.end_reason, f"seed {run.seed}"
    return count


@pytest.mark.parametrize("seed", range(RUNS))
def test_plan_equals_oracle(seed: int) -> None:
    check(make_run(seed))


@pytest.mark.parametrize("seed", range(0, RUNS, 10))
def test_any_step_from_any_anchor(seed: int) -> None:
    """Cursors reached step by step, in one leap, and from random anchors are the same."""
    run = make_run(seed)
    end = run.plan().end
    assert end is not None
    whole = run.plan()
    in_steps = [whole.anchor(step) for step in range(end + 1)]
    rng = random.Random(seed)
    for step in rng.sample(range(end + 1), min(5, end + 1)):
        assert run.plan().anchor(step) == in_steps[step]
        anchor = rng.randint(0, step)
        assert run.plan(anchors=((anchor, in_steps[anchor]),)).anchor(step) == in_steps[step]
