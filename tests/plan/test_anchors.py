"""Cursors as the store keeps them, and the cache that makes any step near."""

from __future__ import annotations

import json
import threading

import pytest
from headrace.proto.errors import DataLossError
from headrace.server.plan.cursor import RECENT, Anchors, Cursor, empty, from_json
from headrace.server.plan.plan import Plan
from small import phase, plan, spec, weights

RUN = spec(phase({"a": 0.5, "b": 0.5}, 400))
TOKENS = {"a": 4000, "b": 100}


def fresh(anchors: tuple[tuple[int, str], ...] = ()) -> Plan:
    return Plan(RUN, plan(RUN, TOKENS).facts, (), anchors)


def test_round_trip_is_exact() -> None:
    text = fresh().anchor(123)
    assert from_json(text, ("a", "b")).to_json() == text
    big = json.loads(text)
    big["domains"]["a"][3] = (1 << 63) - 1
    assert from_json(json.dumps(big), ("a", "b")).state[0, 3] == (1 << 63) - 1


def damaged() -> list[str]:
    good = json.loads(fresh().anchor(123))
    row = good["domains"]["a"]
    return [
        "",
        "[]",
        "{}",
        json.dumps({**good, "schema": 2}),
        json.dumps({**good, "domains": {**good["domains"], "z": row}}),
        json.dumps({**good, "domains": {"a": row[:-1]}}),
        json.dumps({**good, "domains": {"a": [*row[:2], row[4] + 1, *row[3:]]}}),
        json.dumps({**good, "domains": {"a": [-1, *row[1:]]}}),
    ]


@pytest.mark.parametrize("text", damaged(), ids=range(len(damaged())))
def test_damaged_anchors_are_refused(text: str) -> None:
    with pytest.raises(DataLossError, match="delete the anchors of the run"):
        fresh(((123, text),)).draw(200)


def test_anchors_are_read_only_when_needed() -> None:
    plans = fresh(((123, "damaged"), (150, fresh().anchor(150))))
    assert plans.anchor(200) == fresh().anchor(200)
    assert plans.anchor(100) == fresh().anchor(100)


def test_only_the_latest_few_are_remembered() -> None:
    cache = Anchors(empty(("a",)))
    for step in range(1, 100):
        cache.remember(Cursor(step=step, domains=("a",), state=empty(("a",)).state))
    assert cache.nearest(1000).step == 99
    assert cache.nearest(99 - RECENT).step == 0


def test_an_anchor_beyond_a_change_is_dropped_and_one_before_is_kept() -> None:
    stored = ((100, fresh().anchor(100)), (300, fresh().anchor(300)))
    changed = fresh(stored).with_events(weights((), 200, a=0.9, b=0.1))
    alone = Plan(RUN, changed.facts, weights((), 200, a=0.9, b=0.1))
    assert changed.anchor(350) == alone.anchor(350)
    wrong = fresh(((100, "damaged"), (300, "damaged"))).with_events(weights((), 200, a=0.9, b=0.1))
    with pytest.raises(DataLossError):
        wrong.anchor(350)


def test_threads_get_the_same_answers() -> None:
    shared, answers = fresh(), {}

    def ask(first: int) -> None:
        for step in range(first, 400, 7):
            answers[first, step] = shared.draw(step).windows.tolist()

    threads = [threading.Thread(target=ask, args=(first,)) for first in range(7)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers == {(step % 7, step): fresh().draw(step).windows.tolist() for step in range(400)}
