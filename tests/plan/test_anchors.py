"""Cursors as the store keeps them, and the cache that makes any step near."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import random
import threading
import time
from dataclasses import replace
from typing import Any

import pytest
from headrace.proto.errors import DataLossError, OutOfRangeError
from headrace.server.plan.anchors import MOST_MARKS, RECENT, Anchors, from_text, to_text
from headrace.server.plan.cursor import Cursor, empty
from headrace.server.plan.log import canonical
from headrace.server.plan.plan import WALK, Plan
from headrace.server.plan.spec import Point
from headrace.server.service.view import spread_anchors
from random_runs import RandomRun, make_run
from small import phase, plan, spec, weights

SLOW = os.environ.get("HEADRACE_SLOW") == "1"
RUN = spec(phase({"a": 0.5, "b": 0.5}, 400))
TOKENS = {"a": 4000, "b": 100}


def fresh(anchors: tuple[tuple[int, str], ...] = ()) -> Plan:
    return Plan(RUN, plan(RUN, TOKENS).facts, (), anchors)


def signed(values: dict[str, Any]) -> str:
    """An anchor of anything, with a digest that is right."""
    body = canonical(values)
    return f"{hashlib.sha256(body.encode()).hexdigest()} {body}"


def document(text: str) -> dict[str, Any]:
    values: dict[str, Any] = json.loads(text.partition(" ")[2])
    return values


def test_round_trip_is_exact() -> None:
    text, basis = fresh().anchor(123), fresh()._hashes.basis(123)
    assert to_text(from_text(text, 123, ("a", "b"), basis), basis) == text
    big = document(text)
    big["domains"]["a"][3] = (1 << 63) - 1
    assert from_text(signed(big), 123, ("a", "b"), basis).state[0, 3] == (1 << 63) - 1


def test_any_byte_that_changes_is_refused() -> None:
    """Every byte in turn, changed and gone, and every cut."""
    stream = fresh()
    text, basis = stream.anchor(123), stream._hashes.basis(123)
    rng = random.Random(len(text))
    for place in range(len(text)):
        for wrong in (chr(ord(text[place]) ^ 1 << rng.randrange(7)) + text[place + 1 :], text[place + 1 :], ""):
            with pytest.raises(DataLossError, match="--forget-anchors"):
                from_text(text[:place] + wrong, 123, stream.names, basis)
    with pytest.raises(DataLossError, match="--forget-anchors"):
        fresh(((123, text[:-1]),)).draw(200)


def is_refused(run: RandomRun, step: int, end: int, text: str) -> bool:
    """Whether a plan with this anchor says so; whatever else it answers, it answers."""
    stream = run.plan(anchors=((step, text),))
    with contextlib.suppress(OutOfRangeError):  # a cap is reached at another step
        try:
            stream.draw(step)
            stream.cursor(end)
        except DataLossError:
            return True
    return False


def test_no_number_makes_the_kernel_panic() -> None:
    """Every field of an anchor whose digest is right, at odd values: an error in words, or an answer."""
    refused = 0
    for run in (make_run(seed) for seed in range(1000 if SLOW else 16)):
        whole = run.plan()
        end = whole.end or 0
        step = end * 2 // 3
        if not step:
            continue
        good = document(whole.anchor(step))
        rng = random.Random(run.seed)
        for name, row in good["domains"].items():
            for place, right in enumerate(row):
                values = {0, 1, right + 1, max(right - 1, 0), right ^ 1 << rng.randrange(64), 1 << 62, (1 << 64) - 1}
                for value in values - {right}:
                    changed = {**good["domains"], name: [*row[:place], value, *row[place + 1 :]]}
                    refused += is_refused(run, step, end, signed({**good, "domains": changed}))
    assert refused > 500


def test_anchors_of_another_step_log_corpus_or_version_are_refused() -> None:
    good = fresh().anchor(123)
    values = document(good)
    row = values["domains"]["a"]
    moved = weights((), 50, a=0.9, b=0.1)
    other = Plan(RUN, replace(fresh().facts, digest=bytes([7]) * 32))
    cases = [
        ("", "its bytes have changed"),
        ("[]", "its bytes have changed"),
        (good.partition(" ")[2], "its bytes have changed"),
        (signed({}), "KeyError"),
        (signed({**values, "schema": 1}), "another version or another step"),
        (fresh().anchor(124), "another version or another step"),
        (Plan(RUN, fresh().facts, moved).anchor(123), "rests on spec and log"),
        (other.anchor(123), "rests on spec and log"),
        (signed({**values, "domains": {**values["domains"], "z": row}}), "domains or fields"),
        (signed({**values, "domains": {"a": row[:-1]}}), "ValueError|domains or fields"),
        (signed({**values, "domains": {"a": [-1, *row[1:]]}}), "OverflowError"),
        (signed({**values, "domains": {**values["domains"], "a": [1, *row[1:]]}}), "credits do not sum to nothing"),
    ]
    for text, why in cases:
        with pytest.raises(DataLossError, match=why):
            fresh(((123, text),)).cursor(123)


def test_anchors_are_read_only_when_needed() -> None:
    plans = fresh(((123, "damaged"), (150, fresh().anchor(150))))
    assert plans.anchor(200) == fresh().anchor(200)
    assert plans.anchor(100) == fresh().anchor(100)


def of_step(step: int) -> Cursor:
    return Cursor(step=step, domains=("a",), state=empty(("a",)).state)


def unread(step: int, text: str) -> Cursor:
    raise AssertionError(f"{step}: {text}")


def test_only_the_latest_few_are_remembered() -> None:
    cache = Anchors(empty(("a",)))
    for step in range(1, 100):
        cache.remember(of_step(step))
    assert cache.nearest(1000, unread).step == 99
    assert cache.nearest(99 - RECENT, unread).step == 0


def test_marks_stay_and_are_thinned_evenly() -> None:
    cache = Anchors(empty(("a",)))
    for step in range(1, 3 * MOST_MARKS):
        cache.remember(of_step(step), mark=True)
    found = [cache.nearest(step, unread).step for step in range(0, 3 * MOST_MARKS, 64)]
    assert len(set(found)) > len(found) // 2
    assert all(step - 64 <= at <= step for at, step in zip(found, range(0, 3 * MOST_MARKS, 64), strict=True))


def test_a_walk_leaves_marks_where_steps_cost_their_time() -> None:
    points = (Point(at=0, weights={"a": 1.0}, curve="linear"), Point(at=99_999, weights={"b": 1.0}))
    stream = plan(spec(phase({}, 100_000, points=points)), TOKENS)
    far = stream.anchor(99_000)
    begin = time.perf_counter()
    stream.cursor(98_000)
    back = time.perf_counter() - begin
    assert back < 0.1, f"{back:.3f} s to go 1,000 steps back; a mark is at most {WALK} steps before"
    assert Plan(stream.spec, stream.facts).anchor(99_000) == far


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


def test_a_run_that_came_without_anchors_gets_at_most_a_thousand() -> None:
    stream = plan(spec(phase({"a": 0.7, "b": 0.3}, 3_000_000)), TOKENS)
    few = spread_anchors(stream, 4500)
    assert [step for step, _ in few] == [1000, 2000, 3000, 4000]
    assert Plan(stream.spec, stream.facts, (), few).anchor(4100) == stream.anchor(4100)
    many = [step for step, _ in spread_anchors(stream, 2_100_000)]
    assert many == list(range(3000, 2_100_001, 3000))
