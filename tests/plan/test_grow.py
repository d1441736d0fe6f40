"""Generations that join a run, documents that leave it, and what may be taken back."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest
from headrace.proto.errors import ConflictError, UnavailableError, UsageError
from headrace.server.plan import log
from headrace.server.plan.facts import GenerationFacts, ViewFacts
from headrace.server.plan.log import CancelBody, Event, GrowBody, MaskBody, WeightsBody
from headrace.server.plan.plan import Plan
from headrace.server.plan.spec import DomainPolicy
from headrace.server.plan.validate import check_event
from small import event, facts, phase, spec, weights, windows_of

NEW, MORE, NEXT = "1" * 64, "2" * 64, "3" * 64
RUN = spec(phase({"a": 0.5, "b": 0.5}, 100))
OPENED = {
    (digest, name): GenerationFacts(
        tokens=size, views={(4, "concat"): ViewFacts(windows=-(-size // 4), real_tokens=size)}
    )
    for digest, name, size in ((MORE, "b", 60), (NEXT, "b", 20), (NEW, "new", 200))
}
TOKENS = {"a": 4000, "b": 120}


def with_log(events: tuple[Event, ...], run: Any = RUN, opened: Any = OPENED) -> Plan:
    return Plan(run, replace(facts(TOKENS, 4), generations=opened), events)


def grow(domain: str, generation: str, join: str = "next_pass") -> GrowBody:
    return GrowBody(domain=domain, generation=generation, join=join, manifest="more/manifest.json")


def test_bodies_round_trip() -> None:
    for body in (grow("b", MORE, "now"), MaskBody(by="source", values=("x.jsonl:3",), domain="a")):
        assert log.body_from_json(body.kind, log.body_to_json(body)) == body


def test_next_pass_waits_for_the_end_of_the_pass() -> None:
    """30 windows of `b` at 4 a step: the pass ends after step 7.5; from then on passes have 45."""
    found = windows_of(with_log(event((), grow("b", MORE), 3)), "b", range(100))
    assert [p for p, _, _ in found[:80]] == [0] * 30 + [1] * 45 + [2] * 5
    assert sorted(w for _, _, w in found[:30]) == list(range(30))
    assert sorted(w for _, _, w in found[30:75]) == list(range(45))


def test_now_mixes_what_is_left_with_the_new_windows() -> None:
    found = windows_of(with_log(event((), grow("b", MORE, "now"), 3)), "b", range(100))
    alone = windows_of(with_log(()), "b", range(100))
    assert found[:12] == alone[:12]
    assert [(p, i) for p, i, _ in found[:46]] == [(0, i) for i in range(45)] + [(1, 0)]
    assert sorted(w for _, _, w in found[:45]) == list(range(45))
    assert any(w >= 30 for _, _, w in found[12:30])


def test_a_second_now_waits_for_the_end_of_the_pass() -> None:
    events = event(event((), grow("b", MORE, "now"), 3), grow("b", NEXT, "now"), 5)
    found = windows_of(with_log(events), "b", range(100))
    assert [p for p, _, _ in found[:96]] == [0] * 45 + [1] * 50 + [2]
    assert sorted(w for _, _, w in found[45:95]) == list(range(50))


def test_a_generation_that_joins_while_the_domain_rests_is_there_when_it_wakes() -> None:
    run = spec(phase({"a": 1.0, "b": 0.0}, 10, name="p0"), phase({"a": 0.5, "b": 0.5}, 40, name="p1"))
    found = windows_of(with_log(event((), grow("b", MORE), 3), run), "b", range(50))
    assert sorted(w for _, _, w in found[:45]) == list(range(45))


def test_caps_count_the_grown_domain() -> None:
    run = spec(phase({"a": 0.5, "b": 0.5}, 100), caps={"b": DomainPolicy(cap=Decimal(2))})
    assert int(with_log((), run).cursor(100).tokens[1]) == 240
    assert int(with_log(event((), grow("b", MORE), 90), run).cursor(100).tokens[1]) > 240
    assert int(with_log(event((), grow("b", MORE), 10), run).cursor(100).tokens[1]) == 360


def test_a_new_domain_is_appended_and_reseeds_no_other() -> None:
    events = weights(event((), grow("new", NEW), 10), 20, a=0.25, b=0.25, new=0.5)
    plan, alone = with_log(events), with_log(weights((), 20, a=0.5, b=0.5))
    assert plan.domains == ("a", "b", "new")
    assert plan.draw(19).windows.tolist() == alone.draw(19).windows.tolist()
    mine = windows_of(plan, "a", range(100))
    assert mine == windows_of(alone, "a", range(100))[: len(mine)]
    assert set(plan.draw(20).domains.tolist()) == {0, 1, 2}
    assert plan.size("new", 20) == 200
    assert plan.cursor(5).domains == plan.domains


def test_a_name_that_sorts_first_still_comes_last() -> None:
    opened = {(NEW, "0"): OPENED[NEW, "new"]}
    plan = with_log(weights(event((), grow("0", NEW), 10), 20, **{"0": 0.5, "a": 0.25, "b": 0.25}), opened=opened)
    assert plan.domains == ("a", "b", "0")
    assert plan.draw(30).domains.tolist().count(2) == 4
    assert plan.cursor(30).domains == ("a", "b", "0")
    again = Plan(plan.spec, plan.facts, plan.events, [(25, plan.anchor(25))])
    assert again.draw(30).windows.tolist() == plan.draw(30).windows.tolist()


def test_anchors_made_before_a_domain_joined_stay_good() -> None:
    before = with_log(())
    anchor = (8, before.anchor(8))
    events = weights(event((), grow("new", NEW), 10), 20, a=0.25, b=0.25, new=0.5)
    plan = Plan(RUN, with_log(()).facts, events, [anchor])
    assert plan.draw(30).windows.tolist() == with_log(events).draw(30).windows.tolist()
    assert before.with_events(events).draw(30).windows.tolist() == plan.draw(30).windows.tolist()


def test_a_generation_that_is_not_open_stops_only_the_steps_from_it_on() -> None:
    plan = with_log(event((), grow("b", MORE), 10), opened={})
    assert plan.draw(9).domains.shape == (8,)
    assert plan.known_until == 10
    assert plan.end == 100
    with pytest.raises(UnavailableError, match="generation 2222222222222222 joins domain `b` at step 10"):
        plan.draw(10)


def test_the_hash_covers_the_generation_but_not_its_path() -> None:
    one, other = grow("b", MORE), replace(grow("b", MORE), manifest="elsewhere")
    assert with_log(event((), one, 10)).hash(50) == with_log(event((), other, 10)).hash(50)
    assert with_log(event((), one, 10)).hash(50) != with_log(event((), grow("b", NEXT), 10)).hash(50)
    assert event((), one, 10)[0].hash != event((), other, 10)[0].hash


# ---- masks


def test_masks_hold_from_their_step_on_and_move_no_window() -> None:
    body = MaskBody(by="source", values=("a.jsonl:7",), domain="a")
    plan = with_log(event((), body, 10))
    assert (plan.masks(9), plan.masks(10)) == ((), (body,))
    assert plan.draw(20).windows.tolist() == with_log(()).draw(20).windows.tolist()
    assert plan.hash(11) != with_log(()).hash(11)
    assert plan.segment(50) == 0


# ---- the validator


def judged(body: log.Body, step: int = 20, before: tuple[Event, ...] = (), opened: Any = OPENED) -> tuple[str, ...]:
    return check_event(with_log(before, opened=opened), 8, event(before, body, step)[-1])


def test_good_events_pass_with_notes() -> None:
    assert judged(grow("b", MORE)) == (
        "domain `b` has 180 tokens from step 20 on; the new ones come with its next pass",
    )
    assert "has no weight in `p`: it is read from the step on" in judged(grow("new", NEW))[0]
    assert judged(MaskBody(by="hash", values=("ab",)))


def test_of_two_that_join_now_the_one_that_may_wait_is_named() -> None:
    at_30 = event((), grow("b", MORE, join="now"), 30)
    for step, which in ((20, "that one"), (40, "this one")):
        assert judged(grow("b", NEXT, join="now"), step, at_30)[1:] == (
            f"event 1 (by me, from step 30) joins `b` now too: within one pass, {which} waits for the end of the pass",
        )
    assert len(judged(grow("b", NEXT, join="now"), 30, at_30)) == 1
    assert len(judged(grow("b", NEXT), 40, at_30)) == 1
    assert len(judged(grow("b", NEXT, join="now"), 40, event((), grow("b", MORE), 30))) == 1


def test_bad_events_are_refused() -> None:
    with pytest.raises(UnavailableError, match="not open here"):
        judged(grow("b", MORE), opened={})
    with pytest.raises(ConflictError, match="in domain `b` already"):
        judged(grow("b", MORE), before=event((), grow("b", MORE), 30))
    base = bytes(32).hex()
    with pytest.raises(ConflictError, match="is the corpus that the run was made with, which domain `b` reads already"):
        judged(grow("b", base), opened={(base, "b"): OPENED[MORE, "b"]})
    with pytest.raises(ConflictError, match="first free step is 8"):
        judged(grow("b", MORE), 7)
    with pytest.raises(UsageError, match="no domain `z`"):
        judged(MaskBody(by="source", values=("x",), domain="z"))
    for wrong in (
        lambda: grow("b", "abc"),
        lambda: grow("b", MORE, "later"),
        lambda: grow("b c", MORE),
        lambda: MaskBody(by="colour", values=("red",)),
        lambda: MaskBody(by="source", values=()),
    ):
        with pytest.raises(UsageError):
            wrong()
    with pytest.raises(UsageError, match="holds for good"):
        event((), grow("b", MORE), 10, 20)


def test_weights_name_the_domains_that_are_there() -> None:
    grown = event((), grow("new", NEW), 20)
    assert judged(WeightsBody(weights={"a": 0.5, "b": 0.5}), 10, grown)
    assert judged(WeightsBody(weights={"a": 0.5, "b": 0.25, "new": 0.25}), 20, grown)
    with pytest.raises(UsageError, match="no weight for `new`"):
        judged(WeightsBody(weights={"a": 0.5, "b": 0.5}), 20, grown)
    with pytest.raises(UsageError, match="domain `new` a weight, but it has no window"):
        judged(WeightsBody(weights={"a": 0.5, "b": 0.25, "new": 0.25}), 10, grown)


def test_a_domain_that_something_names_cannot_be_taken_away() -> None:
    grown = event((), grow("new", NEW), 20)
    assert judged(CancelBody(sequence=1), before=grown)
    named = weights(grown, 30, a=0.5, b=0.25, new=0.25)
    with pytest.raises(ConflictError, match="event 1 brings domain `new`, which event 2 names; cancel that one first"):
        judged(CancelBody(sequence=1), before=named)
    assert judged(CancelBody(sequence=1), before=event(named, CancelBody(sequence=2), 9))
