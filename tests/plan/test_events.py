"""The log: audit chain, plan hash, which event holds, and the one validator."""

from __future__ import annotations

import dataclasses
import json
import math
from pathlib import Path
from typing import Any

import pytest
from headrace.proto.errors import ConflictError, DataLossError, UsageError
from headrace.server.plan import log
from headrace.server.plan.log import CancelBody, Event, WeightsBody
from headrace.server.plan.plan import Plan
from headrace.server.plan.spec import Point
from headrace.server.plan.validate import check_event
from hypothesis import given, settings
from hypothesis import strategies as st
from small import event, phase, plan, spec, weights

TOKENS = {"a": 4000, "b": 4000}
RUN = spec(
    phase({"a": 0.5, "b": 0.5}, 50, name="p0"),
    phase({"a": 0.25, "b": 0.75}, 50, name="p1", seq_len=8),
)


def with_log(events: tuple[Event, ...]) -> Plan:
    return plan(RUN, TOKENS, events)


def weight_of_a(events: tuple[Event, ...], step: int) -> float:
    return round(with_log(events).weights(step)["a"], 6)


# ---- one event more


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 119), st.none() | st.integers(1, 60), st.integers(0, 4)), min_size=1, max_size=9)
)
def test_a_plan_that_takes_events_one_by_one_is_the_plan_of_the_whole_log(
    drawn: list[tuple[int, int | None, int]],
) -> None:
    """Phases and points of schedules between, ranges within ranges, before each other and beyond the last phase."""
    ramp = (Point(at=0, weights={"a": 1, "b": 1}, curve="linear"), Point(at=25, weights={"a": 3, "b": 1}))
    run = spec(
        phase({"a": 0.5, "b": 0.5}, 30, name="p0"),
        phase({}, 50, name="p1", points=ramp),
        phase({"a": 0.1, "b": 0.9}, 30, name="p2", seq_len=8),
    )
    grown, events = plan(run, TOKENS), ()
    for from_step, length, part in drawn:
        for step in (0, 29, 60, 109):
            grown.draw(step)  # what it has worked out by now must not outlive what it follows from
        until = None if length is None else from_step + length
        events = weights(events, from_step, until, a=part / 4, b=1 - part / 4)
        grown = grown.with_events(events)
        whole = plan(run, TOKENS, events)
        assert grown.timeline == whole.timeline
        assert (grown.events, grown.live, grown.holding) == (whole.events, whole.live, whole.holding)
        assert [grown.hash(step) for step in range(0, 111, 5)] == [whole.hash(step) for step in range(0, 111, 5)]
        assert (grown.end, grown.end_reason) == (whole.end, whole.end_reason)
        for step in (0, 28, 29, 30, 54, 79, 80, 109):
            assert grown.weights(step) == whole.weights(step)
            assert (grown.state(step) == whole.state(step)).all()
            assert (grown.draw(step).windows == whole.draw(step).windows).all()


def test_a_log_that_goes_another_way_is_not_taken_for_a_longer_one() -> None:
    short = weights((), 10, a=1, b=0)
    other = weights(weights((), 10, a=0, b=1), 20, a=0.5, b=0.5)
    assert with_log(short).with_events(other).timeline == with_log(other).timeline


# ---- the chain


def test_bodies_round_trip() -> None:
    for body in (WeightsBody(weights={"b": 0.1, "a": 0.9}, loss_weights={"a": 2.0}), CancelBody(sequence=3)):
        assert log.body_from_json(body.kind, log.body_to_json(body)) == body


@pytest.mark.parametrize(
    "change",
    [
        {"from_step": 11},
        {"until_step": 99},
        {"author": "you"},
        {"reason": "no"},
        {"time_us": 8},
        {"previous_hash": b"x" * 32},
    ],
)
def test_any_change_breaks_the_chain(change: dict[str, Any]) -> None:
    events = weights(weights(weights((), 10, a=1, b=0), 20, a=0, b=1), 30, a=0.5, b=0.5)
    assert log.verify(events) == events[-1].hash
    broken = (events[0], dataclasses.replace(events[1], **change), events[2])
    with pytest.raises(DataLossError, match="breaks at event 2"):
        log.verify(broken)


def test_an_event_taken_out_breaks_the_chain() -> None:
    events = weights(weights(weights((), 10, a=1, b=0), 20, a=0, b=1), 30, a=0.5, b=0.5)
    with pytest.raises(DataLossError, match="event 3"):
        log.verify((events[0], events[2]))


def test_an_event_cannot_end_before_it_begins() -> None:
    with pytest.raises(UsageError, match="cannot end at step 10"):
        weights((), 10, 10, a=1, b=0)


# ---- which event holds


def test_an_event_holds_until_the_next_phase() -> None:
    events = weights((), 10, a=1, b=0)
    assert [weight_of_a(events, step) for step in (9, 10, 49, 50)] == [0.5, 1.0, 1.0, 0.25]


def test_until_may_lie_beyond_the_phase() -> None:
    events = weights((), 10, 60, a=1, b=0)
    assert [weight_of_a(events, step) for step in (9, 49, 50, 59, 60)] == [0.5, 1.0, 1.0, 1.0, 0.25]


def test_the_latest_event_whose_range_holds_the_step_wins() -> None:
    """Nested ranges: when the inner one ends, the outer one holds again. Sequence decides, not the step."""
    events = weights(weights((), 20, 40, a=0.1, b=0.9), 10, 30, a=1, b=0)
    assert [weight_of_a(events, step) for step in (9, 10, 20, 29, 30, 39, 40)] == [0.5, 1, 1, 1, 0.1, 0.1, 0.5]


def test_a_cancelled_event_means_nothing() -> None:
    events = weights((), 10, a=1, b=0)
    cancelled = event(events, CancelBody(sequence=1), 8)
    assert weight_of_a(cancelled, 10) == 0.5
    assert with_log(cancelled).hash(100) == with_log(()).hash(100)
    assert log.verify(cancelled) == cancelled[-1].hash


def test_segments_count_sources_of_weights() -> None:
    events = weights(weights((), 10, 60, a=1, b=0), 20, 30, a=0, b=1)
    segments = [with_log(events).segment(step) for step in (0, 9, 10, 19, 20, 29, 30, 50, 59, 60, 99)]
    assert segments == [0, 0, 1, 1, 2, 2, 3, 3, 3, 4, 4]


def test_loss_weights_hold_with_their_event() -> None:
    body = WeightsBody(weights={"a": 0.5, "b": 0.5}, loss_weights={"a": 0.25})
    stream = with_log(event((), body, 10))
    draw, before = stream.draw(10), stream.draw(9)
    assert set(draw.loss_weights[draw.domains == 0].tolist()) == {0.25}
    assert set(draw.loss_weights[draw.domains == 1].tolist()) == set(before.loss_weights.tolist()) == {1.0}


# ---- the plan hash


def test_the_plan_hash_covers_what_holds_below_a_step() -> None:
    none, one = with_log(()), with_log(weights((), 10, a=1, b=0))
    assert none.hash(10) == one.hash(10) == none.spec_digest
    assert none.hash(11) != one.hash(11)


def test_the_plan_hash_has_no_authors_and_no_numbers_in_it() -> None:
    body = WeightsBody(weights={"a": 1.0, "b": 0.0})
    events = []
    for number, author in ((1, "me"), (2, "you")):
        before = weights((), 5, a=1, b=0) if number == 2 else ()
        before = event(before, CancelBody(sequence=1), 5) if number == 2 else ()
        made = log.append(
            before, body=body, from_step=10, until_step=None, author=author, reason=author, time_us=number
        )
        events.append((*before, made))
    assert with_log(events[0]).hash(99) == with_log(events[1]).hash(99)


def test_with_events_is_the_plan_of_that_log() -> None:
    events = weights(weights((), 30, a=0.9, b=0.1), 60, 70, a=0, b=1)
    grown = with_log(())
    grown.draw(80)
    for count in (1, 2):
        grown = grown.with_events(events[:count])
        for step in (0, 29, 30, 31, 60, 69, 70, 99):
            fresh = with_log(events[:count])
            assert grown.draw(step).windows.tolist() == fresh.draw(step).windows.tolist()
            assert grown.anchor(step) == fresh.anchor(step)
            assert grown.hash(step) == fresh.hash(step)


# ---- the validator


def judged(
    body: log.Body, step: int = 20, until: int | None = None, *, seal: int = 8, before: Any = ()
) -> tuple[str, ...]:
    return check_event(with_log(before), seal, event(before, body, step, until)[-1])


def test_good_weights_pass_and_say_how_long_they_hold() -> None:
    assert judged(WeightsBody(weights={"a": 0.3, "b": 0.7})) == ("holds for steps 20 to 49",)
    assert judged(WeightsBody(weights={"a": 0.3, "b": 0.7}), until=60) == ("holds for steps 20 to 59",)
    assert judged(WeightsBody(weights={"a": 0.3 + 1.9e-6, "b": 0.7}))


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ({"a": 0.3}, "no weight for `b`; name every domain"),
        ({"a": 0.3, "b": 0.7, "c": 0.0}, "weight for `c`, which the run has not"),
        ({"a": 1.1, "b": -0.1}, "weight of `b` must be a finite number of at least 0"),
        ({"a": math.nan, "b": 0.5}, "weight of `a` must be a finite number"),
        ({"a": math.inf, "b": 0.5}, "weight of `a` must be a finite number"),
        ({"a": 70.0, "b": 30.0}, "weights sum to 100, not to 1"),
        ({"a": 0.3 + 2.1e-6, "b": 0.7}, "weights sum to 1.0000021, not to 1"),
        ({"a": 0.0, "b": 0.0}, "weights sum to 0, not to 1"),
        ({"a": "0.5", "b": 0.5}, "weight of `a` is not a number"),
        ({"a": None, "b": 1}, "weight of `a` is not a number"),
        ({"a": True, "b": 1}, "weight of `a` is not a number"),
        ({"a": 1e308, "b": 1e308}, "weights sum to"),
        ({"a": 1e-320, "b": 1}, "weight of `a` in phase `p0` .* never be served"),
        ({}, "no weight for `a`, `b`"),
    ],
)
def test_bad_weights_are_refused_and_the_domain_named(parts: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        judged(WeightsBody(weights=parts))


def test_minus_zero_is_zero() -> None:
    assert judged(WeightsBody(weights={"a": -0.0, "b": 1.0}))
    assert with_log(weights((), 20, a=-0.0, b=1.0)).weights(20) == {"a": 0.0, "b": 1.0}


def test_loss_weights_are_judged_too() -> None:
    with pytest.raises(UsageError, match="loss weight of `a` must be a finite"):
        judged(WeightsBody(weights={"a": 0.5, "b": 0.5}, loss_weights={"a": math.nan}))
    with pytest.raises(UsageError, match="loss weight for `c`, which the run has not"):
        judged(WeightsBody(weights={"a": 0.5, "b": 0.5}, loss_weights={"c": 1.0}))


def test_a_sealed_step_is_refused_with_the_first_free_one() -> None:
    with pytest.raises(ConflictError, match=r"step 7 is sealed .* first free step is 8"):
        judged(WeightsBody(weights={"a": 0.5, "b": 0.5}), 7)
    assert judged(WeightsBody(weights={"a": 0.5, "b": 0.5}), 8)


def test_nothing_holds_beyond_the_end() -> None:
    with pytest.raises(ConflictError, match="the run ends at step 100"):
        judged(WeightsBody(weights={"a": 0.5, "b": 0.5}), 100)


def test_cancel_only_what_lies_at_or_above_the_seal() -> None:
    before = weights((), 20, a=1, b=0)
    assert judged(CancelBody(sequence=1), before=before, seal=20)
    with pytest.raises(ConflictError, match="event 1 holds from step 20, which is sealed; the first free step is 21"):
        judged(CancelBody(sequence=1), before=before, seal=21)
    with pytest.raises(ConflictError, match="event 2 is not in the log"):
        judged(CancelBody(sequence=2), before=before)
    gone = event(before, CancelBody(sequence=1), 8)
    with pytest.raises(ConflictError, match="cancelled already"):
        judged(CancelBody(sequence=1), before=gone)


def cases() -> list[Any]:
    beside = (parent / "shared/cases/inputs/MX-03/cases.json" for parent in Path(__file__).resolve().parents)
    file = next((path for path in beside if path.exists()), None)
    return json.loads(file.read_text()) if file else []


@pytest.mark.skipif(not cases(), reason="the case inputs are not beside this checkout")
def test_weight_vectors_of_the_cases() -> None:
    for case in cases():
        raw = json.loads(case["raw"])
        if isinstance(raw, list):
            continue
        names = sorted(raw) or ["a"]
        stream = plan(spec(phase(dict.fromkeys(names, 1.0))), dict.fromkeys(names, 4000))
        numbers = raw and all(type(value) in (int, float) and 0 <= value < 2 for value in raw.values())
        good = bool(numbers) and abs(sum(raw.values()) - 1) <= 2e-6 and case["name"] != "tiny"
        try:
            check_event(stream, 8, event((), WeightsBody(weights=raw), 10)[-1])
            accepted = True
        except UsageError:
            accepted = False
        assert accepted is good, case["name"]
