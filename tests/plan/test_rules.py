"""Rules to the letter that no other test states alone; `README.md` beside this file maps every rule to its tests."""

from __future__ import annotations

import random
import re
from collections import Counter
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction
from pathlib import Path

import pytest
from headrace.native import key, permute
from headrace.proto.errors import OutOfRangeError
from headrace.server.plan.branched import branch_plan, branch_spec
from headrace.server.plan.facts import ViewFacts
from headrace.server.plan.plan import Plan
from headrace.server.plan.spec import DomainPolicy, Point
from headrace.server.plan.whole import NO_WINDOW
from small import facts, phase, plan, spec, windows_of
from small import weights as set_weights

TESTS = Path(__file__).resolve().parents[1]


# ---- rule 1, order


def test_ties_go_to_the_bytewise_smallest_name() -> None:
    """Capitals before small letters, a name before those that it begins."""
    names = ["b", "B", "a", "a-", "a0", "aa"]
    stream = plan(spec(phase(dict.fromkeys(names, 1.0), 12, batch=1)), dict.fromkeys(names, 400))
    dealt = [stream.domains[int(stream.draw(step).domains[0])] for step in range(12)]
    assert dealt[:6] == sorted(names, key=str.encode) == ["B", "a", "a-", "a0", "aa", "b"]


def test_sorted_domains_are_dealt_by_the_permutation_of_the_step() -> None:
    stream = plan(spec(phase({"a": 0.5, "b": 0.3, "c": 0.2}, 20, batch=16)), dict.fromkeys("abc", 4000))
    orders = set()
    for step in range(20):
        domains = stream.draw(step).domains.tolist()
        pi = key(1, "slots", step, "")
        assert [domains[permute(pi, 16, i)] for i in range(16)] == sorted(domains)
        orders.add(tuple(domains))
    assert len(orders) == 20


def test_a_domains_indices_go_to_its_slots_in_slot_order() -> None:
    stream = plan(spec(phase({"a": 0.5, "b": 0.5}, 20, batch=16)), dict.fromkeys("ab", 4000))
    for name in "ab":
        assert [index for _, index, _ in windows_of(stream, name, range(20))] == list(range(160))


# ---- rule 2, shares


def test_shares_are_weight_by_fill_by_largest_remainder() -> None:
    """Against rationals; of two equal remainders the smaller name's is rounded up."""
    weights = {"a": 0.1, "b": 0.2, "c": 0.3, "d": 0.4}
    real = {"a": 4000, "b": 1777, "c": 3001, "d": 1000}
    views = {(name, 4, "best_fit"): ViewFacts(windows=1000, real_tokens=real[name]) for name in weights}
    run = spec(phase(weights, packing="best_fit"))
    stream = Plan(run, replace(facts(real, 4), views=views))
    parts = {name: Fraction(weights[name]) / Fraction(real[name], 4000) for name in weights}
    exact = {name: part / sum(parts.values()) * (1 << 32) for name, part in parts.items()}
    made = {name: int(share) for name, share in exact.items()}
    missing = (1 << 32) - sum(made.values())
    for name in sorted(exact, key=lambda name: made[name] - exact[name])[:missing]:
        made[name] += 1
    assert stream.shares(0).tolist() == list(made.values())
    thirds = plan(spec(phase({"b": 1.0, "a": 1.0, "c": 1.0})), dict.fromkeys("abc", 400))
    assert thirds.shares(0).tolist() == [1431655766, 1431655765, 1431655765]


def test_between_the_points_of_a_schedule_a_weight_may_round_to_no_share() -> None:
    steps = 1 << 40
    points = (Point(at=0, weights={"a": 1.0}, curve="linear"), Point(at=steps - 1, weights={"b": 1.0}))
    stream = plan(spec(phase({}, steps, batch=1, points=points)), dict.fromkeys("ab", 400))
    assert stream.shares(100).tolist() == [1 << 32, 0]
    assert stream.weights(100)["b"] == 0.0
    assert stream.shares(steps // 2).tolist()[1] == pytest.approx(1 << 31, rel=1e-6)


# ---- rule 3, fill and plan tokens


def test_plan_tokens_of_a_window_follow_from_its_place_alone() -> None:
    windows, real = 37, 101
    views = {("a", 4, "best_fit"): ViewFacts(windows=windows, real_tokens=real)}
    stream = Plan(spec(phase({"a": 1.0}, 80, batch=1, packing="best_fit")), replace(facts({"a": real}, 4), views=views))
    for step in range(81):
        whole, index = divmod(step, windows)
        assert int(stream.cursor(step).tokens[0]) == whole * real + index * real // windows


# ---- rule 4, the end of a pass


@pytest.mark.parametrize("windows", [80, 81])
@pytest.mark.parametrize("saved", [9, 10, 11])
def test_a_cursor_saved_around_the_end_of_a_pass_goes_on_exactly(windows: int, saved: int) -> None:
    """A pass of exactly 10 batches, and one of a window more."""
    stream = plan(spec(phase({"a": 1.0}, 40, batch=8)), {"a": windows * 4})
    resumed = Plan(stream.spec, stream.facts, (), [(saved, stream.anchor(saved))])
    found = windows_of(resumed, "a", range(saved, 30))
    assert [(number, index) for number, index, _ in found] == [divmod(n, windows) for n in range(8 * saved, 240)]
    assert found == windows_of(stream, "a", range(30))[8 * saved :]


# ---- rule 6, caps


@pytest.mark.parametrize("cap", ["0.1", "0.5", "0.99", "0.994", "1", "1.01", "1.994", "2.5"])
@pytest.mark.parametrize(("windows", "real"), [(37, 101), (50, 150)])
def test_the_last_window_before_a_cap_keeps_the_tokens_at_or_below_it(cap: str, windows: int, real: int) -> None:
    """Also where a window more would be a single token above it: 149 of 150 at 3 tokens a window."""
    views = {
        ("a", 4, "best_fit"): ViewFacts(windows=windows, real_tokens=real),
        ("b", 4, "best_fit"): ViewFacts(windows=900, real_tokens=3600),
    }
    caps = {"a": DomainPolicy(cap=Decimal(cap))}
    run = spec(phase({"a": 0.5, "b": 0.5}, 300, batch=1, packing="best_fit"), caps=caps)
    stream = Plan(run, replace(facts({"a": real, "b": 3600}, 4), views=views))
    served = len(windows_of(stream, "a", range(300)))

    def tokens(count: int) -> int:
        return count // windows * real + count % windows * real // windows

    assert tokens(served) <= Decimal(cap) * real < tokens(served + 1)


def test_credit_of_a_capped_domain_goes_to_the_others_by_their_shares() -> None:
    """`c` reaches its cap while it is owed something; what it was owed is theirs, in proportion, to the last part."""
    caps = {"c": DomainPolicy(cap=Decimal(1))}
    run = spec(phase({"a": 0.4, "b": 0.27, "c": 0.33}, 20, batch=1), caps=caps)
    stream = plan(run, {"a": 4000, "b": 4000, "c": 8})
    free = plan(spec(phase({"a": 0.4, "b": 0.27, "c": 0.33}, 20, batch=1)), {"a": 4000, "b": 4000, "c": 8})
    last = next(step for step in range(20) if int(stream.cursor(step + 1).tokens[2]) == 8)
    before, after = free.cursor(last + 1).credit, stream.cursor(last + 1).credit
    assert after[2] == 0
    gift = [int(after[i] - before[i]) for i in (0, 1)]
    assert sum(gift) == int(before[2]) != 0
    shares = stream.shares(last)[:2]
    assert gift[0] / gift[1] == pytest.approx(shares[0] / shares[1], rel=1e-8)


# ---- rule 7, the end


@pytest.mark.parametrize("batch", [1, 2, 3, 7, 100, 101])
def test_a_run_ends_before_the_first_step_that_cannot_be_filled(batch: int) -> None:
    """100 windows under a cap that stops, and 100 that are given away when nobody else is there to take the rest."""
    for policy in ("stop", "redistribute"):
        caps = {"b": DomainPolicy(cap=Decimal(1), at_cap=policy)}
        assert plan(spec(phase({"b": 1.0}, 300, batch=batch), caps=caps), {"b": 400}).end == 100 // batch


def test_only_a_branch_goes_beyond_the_end() -> None:
    caps = {"b": DomainPolicy(cap=Decimal(1), at_cap="stop")}
    of = plan(spec(phase({"a": 0.5, "b": 0.5}, 300), caps=caps), {"a": 4000, "b": 400})
    assert of.end == 25
    child = branch_plan(branch_spec(of, name="on", at=25, seal=25, domains={}), of.facts, (), (), of)
    assert child.end == 300
    assert child.draw(24).windows.tolist() == of.draw(24).windows.tolist()
    assert len(child.draw(25).windows) == 8
    with pytest.raises(OutOfRangeError):
        of.draw(25)


# ---- far steps


@pytest.mark.parametrize("seed", range(12))
def test_a_far_step_is_where_a_walk_of_small_strides_comes_to(seed: int) -> None:
    """Strides of 7 steps are never leapt over; `d0` rests for a while and keeps its credit."""
    dice = random.Random(seed)
    names = [f"d{number}" for number in range(dice.choice((2, 5, 24)))]
    parts = {name: dice.random() ** 2 + 0.02 for name in names}
    run = spec(phase(parts, 4000, batch=dice.choice((1, 7, 64))))
    resting = {name: part for name, part in parts.items() if name != "d0"}
    rest = {name: resting.get(name, 0.0) / sum(resting.values()) for name in names}
    events = set_weights((), 900, 2900, **rest)
    tokens = dict.fromkeys(names, 4000)
    walked, leapt = plan(run, tokens, events), [plan(run, tokens, events) for _ in range(4)]
    for step in range(0, 4000, 7):
        walked.cursor(step)
    for stream, step in zip(leapt, (895, 2499, 2905, 3990), strict=True):
        assert stream.anchor(step) == walked.anchor(step), f"seed {seed}, step {step}"


# ---- P2, said of a whole run with every kind of pass end


def test_within_a_pass_each_window_reaches_at_most_one_slot() -> None:
    caps = {"a": DomainPolicy(cap=Decimal("2.5"))}
    phases = (
        phase({"a": 0.5, "b": 0.5}, 60, name="p0"),
        phase({"a": 0.5, "b": 0.5}, 33, name="p1", seq_len=8),
        phase({"a": 0.1, "b": 0.9}, 60, name="p2"),
    )
    for order in ("full", "blocks", "none"):
        stream = plan(spec(*phases, caps=caps, order=order, block_tokens=64), {"a": 700, "b": 300})
        for name in "ab":
            slots = Counter(
                (number, stream.shape(step).seq_len, window)
                for step in range(stream.end or 0)
                for number, _, window in windows_of(stream, name, range(step, step + 1))
            )
            assert max(slots.values()) == 1, (order, name)
            assert not any(window == NO_WINDOW for _, _, window in slots)


# ---- the table


def test_the_table_of_rules_names_tests_that_exist() -> None:
    text = (Path(__file__).parent / "README.md").read_text()
    named = re.findall(r"`(\w+/test_\w+\.py)::(test_\w+)`", text)
    assert len(named) > 60
    for file, test in named:
        assert f"def {test}(" in (TESTS / file).read_text(), f"{file}::{test} is in the table and not in the tests"
    rules = {int(rule) for rule in re.findall(r"^\| (\d+) \|", text, re.MULTILINE)}
    assert rules == set(range(1, 17))
