"""Branches: the shared past, the skipped windows, what goes on and what ends, and the oracle's word on random ones."""

from __future__ import annotations

import os
import random
from dataclasses import replace
from typing import Any

import pytest
from headrace.proto.errors import ConflictError, StateMismatchError, UsageError
from headrace.server.plan import log
from headrace.server.plan.branched import BranchedPlan, branch_plan, branch_spec, left_behind
from headrace.server.plan.forecast import make_forecast
from headrace.server.plan.plan import Plan
from headrace.server.plan.spec import RunSpec
from oracle_plan import Oracle
from random_runs import RandomRun, make_events, make_phase, make_run, weights
from small import facts, phase, spec, windows_of
from small import weights as set_weights

TOKENS = {"a": 4000, "b": 400}
RUN = spec(phase({"a": 0.5, "b": 0.5}, 60, name="p0"), phase({"a": 0.25, "b": 0.75}, 40, name="p1"))


def parent(events: tuple[log.Event, ...] = ()) -> Plan:
    return Plan(RUN, facts(TOKENS, 4, 8), events)


def child(of: Plan, events: tuple[log.Event, ...] = (), **changes: Any) -> BranchedPlan:
    made = branch_spec(of, name="child", seal=100, **changes)
    assert RunSpec.from_json(made.to_json()) == made
    plan = branch_plan(made, of.facts, events, (), of)
    assert isinstance(plan, BranchedPlan)
    return plan


def same(a: Plan, b: Plan, steps: range) -> bool:
    draws = ((a.draw(step), b.draw(step)) for step in steps)
    return all(x.windows.tolist() == y.windows.tolist() and x.domains.tolist() == y.domains.tolist() for x, y in draws)


def test_the_past_is_the_parents() -> None:
    of = parent(set_weights((), 10, 90, a=0.9, b=0.1))
    plan = child(of, at=40, phases=[phase({"b": 1.0}, 10, name="anneal", seq_len=8, batch=4)])
    assert same(plan, of, range(40))
    assert [plan.hash(step) == of.hash(step) for step in (0, 39, 40, 41)] == [True, True, True, False]
    assert plan.end == 50
    assert [plan.segment(step) for step in (0, 10, 39, 40)] == [0, 1, 1, 2]
    assert [(s.from_step, s.to_step, s.batch, s.phase) for s in plan.shapes()] == [
        (0, 40, 8, "p0"),
        (40, 50, 4, "anneal"),
    ]
    assert plan.draw(40).domains.tolist() == [1] * 4


def test_a_branch_that_changes_nothing_but_the_seed_of_events_goes_on_as_its_parent() -> None:
    of = parent(set_weights((), 10, 90, a=0.9, b=0.1))
    plan = child(of, at=40)
    assert same(plan, of, range(100))


def test_skip_leaves_the_windows_of_a_spike_unread() -> None:
    of = parent()
    plan = child(of, at=40, skip=7)
    assert windows_of(plan, "a", range(40, 50)) == windows_of(of, "a", range(47, 57))
    for name, gone in plan.skipped.items():
        spike = windows_of(of, name, range(40, 47))
        assert (gone.windows, gone.tokens) == (len(spike), 4 * len(spike)) == (28, 112)
        assert (gone.first, gone.end) == (spike[0][:2], windows_of(of, name, range(47, 48))[0][:2])
    assert sorted(plan.skipped) == ["a", "b"]
    assert any("skips 28 windows (112 tokens) of domain `a`" in warning for warning in make_forecast(plan).warnings)
    assert plan.weights(59)["a"] == 0.5
    assert plan.weights(60)["a"] == 0.25


def test_the_cursor_goes_on_so_nothing_is_read_twice() -> None:
    of = parent()
    plan = child(of, at=40, batch=4)
    found = [(p, i) for p, i, _ in windows_of(plan, "b", range(100))]
    assert found == [divmod(n, 100) for n in range(len(found))]
    assert plan.shape(40).batch == 4


def test_weights_that_hold_end_when_weights_or_phases_change() -> None:
    of = parent(set_weights((), 10, 90, a=0.9, b=0.1))
    assert child(of, at=40).weights(50)["a"] == pytest.approx(0.9)
    assert child(of, at=40, batch=4).weights(50)["a"] == pytest.approx(0.9)
    assert child(of, at=40, weights={"a": 0.2, "b": 0.8}).weights(50)["a"] == pytest.approx(0.2)
    assert child(of, at=40, phases=[phase({"a": 0.3, "b": 0.7}, 20, name="q")]).weights(50)["a"] == pytest.approx(0.3)


def test_what_the_parent_plans_later_is_not_the_childs() -> None:
    of = parent(set_weights((), 45, a=0.9, b=0.1))
    assert child(of, at=40).weights(50)["a"] == 0.5


def test_its_own_events_count_over_inherited_ones() -> None:
    of = parent(set_weights((), 10, 90, a=0.9, b=0.1))
    own = set_weights((), 42, 45, a=0.0, b=1.0)
    plan = child(of, own, at=40)
    assert [round(plan.weights(step)["a"], 6) for step in (41, 42, 44, 45)] == [0.9, 0.0, 0.0, 0.9]
    assert same(child(of, at=40).with_events(own), plan, range(100))


def test_a_branch_of_a_branch() -> None:
    of = parent()
    middle = child(of, set_weights((), 45, 80, a=0.9, b=0.1), at=40)
    last = branch_plan(branch_spec(middle, name="last", at=50, seal=60), of.facts, (), (), middle)
    assert same(last, middle, range(100))
    assert [last.hash(step) == middle.hash(step) for step in (40, 50, 51)] == [True, True, False]
    assert last.hash(40) == of.hash(40)


def test_only_what_is_sealed_can_be_branched() -> None:
    with pytest.raises(ConflictError, match=r"can begin at steps 0 to 33 \(sealed: 40, skip: 7\), not at 34"):
        branch_spec(parent(), name="c", at=34, skip=7, seal=40)
    with pytest.raises(UsageError, match="new phases bring their own"):
        branch_spec(parent(), name="c", at=34, seal=40, batch=3, phases=[phase({"a": 1})])


def test_another_parent_is_refused() -> None:
    of = parent()
    made = branch_spec(of, name="c", at=40, seal=40)
    other = Plan(replace(RUN, seed=2), of.facts)
    with pytest.raises(StateMismatchError, match="spec digest"):
        branch_plan(made, of.facts, (), (), other)
    changed = parent(set_weights((), 20, a=0.9, b=0.1))
    with pytest.raises(StateMismatchError, match="plan hash"):
        branch_plan(made, of.facts, (), (), changed)


def test_the_digest_stands_for_all_of_the_past() -> None:
    digests = {
        branch_spec(of, name=name, at=at, seal=99, skip=skip).digest(bytes(32))
        for of in (parent(), parent(set_weights((), 20, a=0.9, b=0.1)))
        for name in ("c", "d")
        for at, skip in ((40, 0), (41, 0), (40, 1))
    }
    assert len(digests) == 6


def plain(run: RunSpec, events: tuple[log.Event, ...], of: Oracle, **changes: Any) -> Oracle:
    made = RandomRun(seed=0, spec=run, facts=facts({}), events=events).oracle()
    return replace(made, tokens=of.tokens, views=of.views, generations=of.generations, **changes)


@pytest.mark.parametrize("seed", range(300 if os.environ.get("HEADRACE_SLOW") else 24))
def test_random_branches_equal_the_oracle(seed: int) -> None:
    run = make_run(seed)
    of = run.plan()
    end = of.end or 0
    if end < 3:
        return
    rng = random.Random(seed)
    at = rng.randrange(end - 1)
    skip = rng.randrange(min(end - at, 6))
    names = sorted(run.facts.tokens)
    phases = [make_phase(rng, number + 10, names) for number in range(2)] if rng.random() < 0.5 else None
    changed = weights(rng, names) if phases is None and rng.random() < 0.3 else None
    made = branch_spec(of, name="c", at=at, skip=skip, seal=at + skip, phases=phases, weights=changed)
    own = tuple(make_events(rng, made, names, [], first=at))
    plan = branch_plan(made, run.facts, own, (), of)

    past = run.oracle()
    for step in past:
        if step.number + 1 == at + skip:
            break
    inherited = [
        {**event, "from_step": min(event["from_step"], at), "sequence": event["sequence"] - 1000}
        for event in past.events
        if event["from_step"] < (at + skip if event["kind"] == "grow" else at)
        and (event["kind"] == "grow" or (phases is None and changed is None))
    ]
    mine = plain(made, own, past)
    domains = past.domains if at + skip else {}
    twin = replace(mine, events=[*inherited, *mine.events], first=at, domains=domains)
    steps = list(twin)
    for step in steps:
        draw = plan.draw(step.number)
        columns = (draw.domains, draw.passes, draw.indices, draw.windows)
        slots = [(plan.domains[d], int(p), int(i), int(w)) for d, p, i, w in zip(*columns, strict=True)]
        assert slots == step.slots, f"seed {seed}, step {step.number}"
    assert plan.end == at + len(steps), f"seed {seed}"


# ---- what is left behind


@pytest.mark.parametrize(
    ("changes", "left"),
    [
        ({"at": 40}, [(2, 45, 50)]),
        ({"at": 40, "weights": {"a": 0.5, "b": 0.5}}, [(1, 40, 45), (1, 50, 80), (2, 45, 50)]),
        ({"at": 40, "phases": [phase({"b": 1.0}, 10, name="p9")]}, [(1, 40, 45), (1, 50, 80), (2, 45, 50)]),
        ({"at": 46}, []),
        ({"at": 85, "weights": {"a": 0.5, "b": 0.5}}, []),
    ],
)
def test_what_a_branch_leaves_behind_is_what_it_has_other_weights_for(
    changes: dict[str, Any], left: list[tuple[int, int, int]]
) -> None:
    of = parent(set_weights(set_weights((), 10, 80, a=0.9, b=0.1), 45, 50, a=0.3, b=0.7))
    plan = child(of, **changes)
    branch = plan.spec.branch
    assert branch is not None
    told = [(event.sequence, *steps) for event, ranges in left_behind(of, branch) for steps in ranges]
    assert told == left
    gone = {step for _, first, end in told for step in range(first, end)}
    for step in range(plan.first, min(plan.timeline.steps, 100)):
        theirs, ours = of.timeline.at(step).source.event, plan.timeline.at(step).source.event
        assert (step in gone) == (theirs is not None and theirs != ours)
