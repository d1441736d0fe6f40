"""Who makes a change is told which scheduled events it hides or brings back, and over which steps."""

from __future__ import annotations

import random
from typing import Any

import pytest
from headrace.server.plan import log
from headrace.server.plan.hidden import handovers, in_words, kept
from headrace.server.plan.log import Body, CancelBody, Event, MaskBody, WeightsBody
from headrace.server.plan.timeline import make_timeline, phase_starts, weight_range
from headrace.server.plan.validate import check_event
from oracle_plan import Oracle
from random_runs import RandomRun, make_run, plain_event
from random_runs import weights as random_weights
from small import event, phase, plan, spec, weights

RUN = spec(phase({"a": 0.5, "b": 0.5}, 50, name="p0"), phase({"a": 0.25, "b": 0.75}, 50, name="p1"))
EVEN = WeightsBody(weights={"a": 0.5, "b": 0.5})


def notes(before: tuple[Event, ...], body: Body, step: int, until: int | None = None) -> list[str]:
    """What is said beyond the first note."""
    run = plan(RUN, {"a": 4000, "b": 4000}, before)
    return list(check_event(run, 8, event(before, body, step, until)[-1])[1:])


def outer() -> tuple[Event, ...]:
    return weights((), 20, 80, a=1, b=0)


# ---- weights


@pytest.mark.parametrize(
    ("first", "until", "said"),
    [
        (10, 90, "hides steps 20 to 79 of event 1 (by me, from step 20), which keeps no step"),
        (10, 30, "hides steps 20 to 29 of event 1 (by me, from step 20), which keeps steps 30 to 79"),
        (60, 90, "hides steps 60 to 79 of event 1 (by me, from step 20), which keeps steps 20 to 59"),
        (40, 41, "hides step 40 of event 1 (by me, from step 20), which keeps steps 20 to 39 and steps 41 to 79"),
        (40, None, "hides steps 40 to 49 of event 1 (by me, from step 20), which keeps steps 20 to 39 and steps 50 to"),
    ],
)
def test_what_a_range_hides_of_another_is_said(first: int, until: int | None, said: str) -> None:
    assert [note[: len(said)] for note in notes(outer(), EVEN, first, until)] == [said]


@pytest.mark.parametrize(("first", "until"), [(8, 20), (80, 90), (80, None)])
def test_ranges_that_only_touch_hide_nothing(first: int, until: int | None) -> None:
    assert notes(outer(), EVEN, first, until) == []


def test_an_event_that_was_hidden_before_loses_nothing() -> None:
    assert [note.split(" (")[0] for note in notes(weights(outer(), 30, 60, a=0, b=1), EVEN, 40, 50)] == [
        "hides steps 40 to 49 of event 2"
    ]


def test_of_many_events_the_first_are_named_and_the_rest_is_counted() -> None:
    many: tuple[Event, ...] = ()
    for step in range(20, 32):
        many = weights(many, step, step + 1, a=1, b=0)
    said = notes(many, EVEN, 10)
    assert len(said) == 9
    assert said[-1].startswith("hides steps of 4 events more")


def test_a_cancel_says_what_holds_instead() -> None:
    both = weights(outer(), 60, 90, a=0, b=1)
    assert notes(both, CancelBody(sequence=2), 8) == [
        "weights of steps 60 to 79 come from event 1 (by me, from step 20) instead",
        "weights of steps 80 to 89 come from the schedule of the phase instead",
    ]
    hidden = weights(outer(), 10, 90, a=0, b=1)
    assert notes(hidden, CancelBody(sequence=1), 8) == ["later events hide all of event 1, so no weight changes"]


def test_ranges_in_words() -> None:
    assert in_words([]) == "no step"
    assert in_words([(1, 2), (4, 9), (11, 12)]) == "step 1, steps 4 to 8 and step 11"
    assert in_words([(2 * n, 2 * n + 1) for n in range(10)]).endswith("step 14 and 2 ranges more")


# ---- the plain oracle's word


def oracle_of(run: RandomRun, events: tuple[Event, ...]) -> Oracle:
    live = sorted(log.live(events), key=lambda event: event.sequence)
    plain = RandomRun(seed=run.seed, spec=run.spec, facts=run.facts, events=events).oracle()
    plain.events = [plain_event(event) for event in live]
    return plain


def number(event: dict[str, Any] | None) -> int | None:
    return None if event is None else int(event["sequence"])


@pytest.mark.parametrize("seed", range(60))
def test_handovers_are_those_of_the_oracle(seed: int) -> None:
    """Step by step: who gives the weights before and after an event is added, and after one is taken away."""
    rng = random.Random(f"hidden {seed}")
    run = make_run(seed)
    names = sorted(run.facts.tokens)
    steps = sum(phase.steps for phase in run.spec.phases)
    events: tuple[Event, ...] = ()
    for _ in range(rng.randint(1, 7)):
        first = rng.randrange(steps)
        until = rng.choice((None, first + rng.randint(1, steps)))
        events = event(events, WeightsBody(weights=random_weights(rng, names)), first, until)
    gone = rng.choice(events)
    for before, after, changed in (
        (events[:-1], events, events[-1]),
        (events, tuple(other for other in events if other != gone), gone),
    ):
        timelines = [make_timeline(run.spec, log_) for log_ in (before, after)]
        old, new = oracle_of(run, before), oracle_of(run, after)
        held = weight_range(changed, phase_starts(run.spec))
        said = {
            step: (one.before.sequence if one.before else None, one.after.sequence if one.after else None)
            for one in handovers(timelines[0], timelines[1], held)
            for step in range(one.first, one.end)
        }
        givers = {step: (number(old.event(step)), number(new.event(step))) for step in range(steps)}
        assert said == {step: pair for step, pair in givers.items() if pair[0] != pair[1]}
        for other in after:
            own = [step for step in range(steps) if givers[step][1] == other.sequence]
            told = kept(timelines[1], weight_range(other, phase_starts(run.spec)))
            assert [step for first, end in told for step in range(first, end)] == own


# ---- masks


def test_a_mask_that_comes_before_a_scheduled_one_says_so() -> None:
    later = event((), MaskBody(by="source", values=("x", "y"), domain="a"), 40)
    assert notes(later, MaskBody(by="source", values=("x",)), 20) == [
        "comes before event 1 (by me, from step 40), and takes down `x` already from step 20 on"
    ]
    assert notes(later, MaskBody(by="source", values=("y", "x", "z"), domain="a"), 20) == [
        "comes before event 1 (by me, from step 40), and takes down all of it already from step 20 on"
    ]
    assert notes(later, MaskBody(by="source", values=("x",), domain="b"), 20) == []
    assert notes(later, MaskBody(by="hash", values=("x",)), 20) == []
