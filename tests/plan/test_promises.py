"""What a stream promises: no gap, no repeat, passes that are permutations, shares that hold, one seed one stream."""

from __future__ import annotations

import random
import re
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import numpy as np
import pytest
from headrace.proto.errors import OutOfRangeError, UsageError
from headrace.server.plan.facts import ViewFacts
from headrace.server.plan.forecast import make_forecast
from headrace.server.plan.plan import Plan
from headrace.server.plan.spec import DomainPolicy, Phase, Point
from small import facts, phase, plan, spec, weights, windows_of

TOKENS = {"a": 400, "b": 90, "c": 37}


def swapped(seed: int = 1) -> Plan:
    """Three domains, weights changed twice, one of the changes with an end."""
    run = spec(phase({"a": 0.5, "b": 0.3, "c": 0.2}, 200), seed=seed)
    log = weights((), 31, a=0.1, b=0.1, c=0.8)
    return plan(run, TOKENS, weights(log, 60, 90, a=0.0, b=0.9, c=0.1))


@pytest.mark.parametrize("name", ["a", "b", "c"])
def test_indices_have_no_gap_and_no_repeat_across_swaps(name: str) -> None:
    stream = swapped()
    windows = stream.facts.view(name, 4, "concat").windows
    found = windows_of(stream, name, range(200))
    assert [(p, i) for p, i, _ in found] == [divmod(n, windows) for n in range(len(found))]


@pytest.mark.parametrize("name", ["b", "c"])
def test_each_pass_is_a_permutation_and_two_differ(name: str) -> None:
    stream = swapped()
    windows = stream.facts.view(name, 4, "concat").windows
    found = [window for _, _, window in windows_of(stream, name, range(200))]
    passes = [found[i : i + windows] for i in range(0, len(found) - windows + 1, windows)]
    assert len(passes) > 5
    assert all(sorted(one) == list(range(windows)) for one in passes)
    assert len({tuple(one) for one in passes}) == len(passes)


def test_another_seed_is_another_stream() -> None:
    def stream(seed: int) -> list[object]:
        draws = [swapped(seed).draw(step) for step in range(50)]
        return [(draw.domains.tolist(), draw.windows.tolist()) for draw in draws]

    assert stream(1) == stream(1)
    assert stream(1) != stream(2)


def test_a_domain_more_reseeds_no_other() -> None:
    """Keys hold the domain's name: the windows of `b` come in one order whatever else is in the mix."""
    few = plan(spec(phase({"b": 1.0}, 30)), {"b": 90})
    more = plan(spec(phase({"a": 1.0, "b": 1.0, "c": 3.0}, 200)), TOKENS)
    mine, theirs = windows_of(few, "b", range(30)), windows_of(more, "b", range(200))
    assert mine[:200] == theirs[: len(mine[:200])]


@pytest.mark.parametrize("k", [2, 5, 24, 60])
@pytest.mark.parametrize("batch", [1, 7, 64, 1024])
def test_realized_shares_stay_by_their_targets(k: int, batch: int) -> None:
    """Window counts from the slots themselves, with swaps: within a window ahead and H_k - 1 behind at every step."""
    rng = random.Random(k * 10_000 + batch)
    names = [f"d{i:02}" for i in range(k)]
    run = spec(phase({name: rng.random() ** 3 + 0.001 for name in names}, 60, batch=batch))
    log = ()
    for step in (10, 25, 40):
        raw = {name: rng.random() ** 3 + 0.001 for name in names}
        log = weights(log, step, **{name: part / sum(raw.values()) for name, part in raw.items()})
    stream = plan(run, dict.fromkeys(names, 40_000), log)
    behind, bound = np.zeros(k), sum(1 / i for i in range(1, k + 1)) - 1
    for step in range(60):
        behind += stream.shares(step) / 2**32 * batch - np.bincount(stream.draw(step).domains, minlength=k)
        assert behind.min() > -1
        assert behind.max() <= bound + 1e-9


def test_weights_are_parts_of_real_tokens() -> None:
    """`thin` has windows that are a quarter full, so it gets four times the windows."""
    run = spec(phase({"full": 0.5, "thin": 0.5}, 1000, batch=10, packing="best_fit"))
    views = {
        ("full", 4, "best_fit"): ViewFacts(windows=1000, real_tokens=4000),
        ("thin", 4, "best_fit"): ViewFacts(windows=1000, real_tokens=1000),
    }
    stream = Plan(run, replace(facts({"full": 4000, "thin": 1000}, 4), views=views))
    tokens = stream.cursor(1000).tokens
    assert abs(int(tokens[0]) - int(tokens[1])) <= 8
    assert stream.shares(0).tolist() == [858993459, 3435973837]


def test_a_domain_keeps_its_credit_while_it_has_no_weight() -> None:
    run = spec(phase({"a": 0.7, "b": 0.3}, 100, batch=1))
    stream = plan(run, {"a": 4000, "b": 4000}, weights((), 2, 50, a=1.0, b=0.0))
    assert stream.cursor(2).credit.tolist() == stream.cursor(50).credit.tolist()
    assert stream.cursor(2).credit.tolist() != [0, 0]


def test_small_sets_wrap_and_count_their_epochs() -> None:
    """65, 63 and 1 rows: no padding by repeats, epochs = served / size."""
    for rows in (65, 63, 1):
        stream = plan(spec(phase({"a": 1.0}, 65, batch=1)), {"a": rows * 4})
        windows = [window for _, _, window in windows_of(stream, "a", range(65))]
        assert sorted(windows[:rows]) == list(range(rows))
        assert int(stream.cursor(65).tokens[0]) == 65 * 4


def test_tiny_weights_get_their_part_of_a_long_run() -> None:
    """0.999/0.001 and 1/1e-9 with a domain of 3 rows."""
    for weight in (0.001, 1e-9):
        stream = plan(spec(phase({"a": 1 - weight, "b": weight}, 10_000, batch=1)), {"a": 40_000, "b": 12})
        served = int(stream.cursor(10_000).tokens[1]) / 4
        assert abs(served - weight * 10_000) < 1


def test_a_mix_goes_on_when_a_domain_is_used_up() -> None:
    """600 and 200 rows at 0.7/0.3: the share stays in every window of 200 rows."""
    stream = plan(spec(phase({"a": 0.7, "b": 0.3}, 250)), {"a": 600 * 4, "b": 200 * 4})
    counts = [np.bincount(stream.draw(step).domains, minlength=2)[0] for step in range(250)]
    for start in range(225):
        assert abs(sum(counts[start : start + 25]) - 140) <= 1


def test_far_steps_do_not_overflow() -> None:
    """2^31, 2^32 and 2^40 with 1,024 windows of 2,048 tokens, from step 0, without an anchor."""
    weights = {"a": 0.5, "b": 0.25, "c": 0.25}
    stream = plan(spec(phase(weights, (1 << 40) + 2, seq_len=2048, batch=1024)), dict.fromkeys(weights, 10**9))
    for step in (2**31 - 1, 2**31, 2**31 + 1, 2**32, 2**40):
        draw = stream.draw(step)
        assert np.bincount(draw.domains).tolist() == [512, 256, 256]
        assert int(draw.windows.max()) < 488282
        assert int(stream.cursor(step).tokens[0]) == pytest.approx(step * 512 * 2048, rel=1e-5)
    again = Plan(stream.spec, stream.facts, (), [(2**40, stream.anchor(2**40))])
    assert again.draw(2**40).windows.tolist() == stream.draw(2**40).windows.tolist()
    with pytest.raises(OutOfRangeError, match=str(2**40 + 1)):
        stream.draw(2**40 + 2)


def test_a_run_longer_than_64_bits_is_refused() -> None:
    with pytest.raises(UsageError, match="2\\^62"):
        spec(phase({"a": 1}, 1 << 41, seq_len=2048, batch=1024))


# ---- passes


def test_a_new_seq_len_opens_a_new_pass_at_the_next_window() -> None:
    """`b` has no weight in the middle phase, so its pass of seq_len 4 goes on in the third."""
    shapes = [("p0", 4, {"a": 1, "b": 1}), ("p1", 8, {"a": 1}), ("p2", 4, {"a": 1, "b": 1})]
    run = spec(*(phase(parts, 3, name=name, seq_len=seq_len) for name, seq_len, parts in shapes))
    stream = plan(run, {"a": 4000, "b": 4000})
    assert [p for p, _, _ in windows_of(stream, "a", range(9))] == [0] * 12 + [1] * 24 + [2] * 12
    assert [i for _, i, _ in windows_of(stream, "b", range(9))] == list(range(24))


def test_tokens_count_what_an_unfinished_pass_served() -> None:
    run = spec(phase({"a": 1}, 3, name="p0"), phase({"a": 1}, 2, name="p1", seq_len=8))
    assert int(plan(run, {"a": 4000}).cursor(5).tokens[0]) == 3 * 8 * 4 + 2 * 8 * 8


# ---- caps


def test_redistribute_gives_weight_and_credit_to_the_others() -> None:
    caps = {"b": DomainPolicy(cap=Decimal(2))}
    stream = plan(spec(phase({"a": 0.5, "b": 0.25, "c": 0.25}, 300), caps=caps), {"a": 4000, "b": 400, "c": 4000})
    cursor = stream.cursor(300)
    assert int(cursor.tokens[1]) == 800
    assert int(cursor.credit[1]) == 0
    late = np.bincount(stream.draw(299).domains, minlength=3)
    assert late[1] == 0
    assert sum(int(tokens) for tokens in cursor.tokens) == 300 * 8 * 4
    assert int(cursor.tokens[0]) == pytest.approx(2 * int(cursor.tokens[2]), abs=420)


def test_a_capped_domain_that_comes_back_gets_no_burst() -> None:
    """At seq_len 8 the cap leaves no room, at 4 a few windows again; they come at the domain's own share."""
    caps = {"b": DomainPolicy(cap=Decimal(1))}
    run = spec(
        phase({"a": 0.5, "b": 0.5}, 60, name="p0", seq_len=8), phase({"a": 0.5, "b": 0.5}, 9, name="p1"), caps=caps
    )
    stream = plan(run, {"a": 40_000, "b": 1004})
    assert int(stream.cursor(60).credit[1]) == 0
    assert np.bincount(stream.draw(60).domains, minlength=2)[1] <= 4


def test_stop_ends_before_the_step_that_needs_more() -> None:
    caps = {"b": DomainPolicy(cap=Decimal(1), at_cap="stop")}
    stream = plan(spec(phase({"a": 0.5, "b": 0.5}, 300), caps=caps), {"a": 4000, "b": 400})
    assert stream.end == 25
    assert "`b` has reached its cap of 1 epochs" in stream.end_reason
    assert int(stream.cursor(25).tokens[1]) == 400
    with pytest.raises(OutOfRangeError, match="`b` has reached its cap"):
        stream.draw(25)


def test_the_end_is_known_where_a_ramp_begins_with_a_capped_domain_alone() -> None:
    """At step 50 only `a` has weight, and it is at its cap; that `b` gets some at step 51 does not help."""
    points = (
        Point(at=0, weights={"a": 1.0}),
        Point(at=50, weights={"a": 1.0}, curve="linear"),
        Point(at=99, weights={"b": 1.0}),
    )
    caps = {"a": DomainPolicy(cap=Decimal(4))}
    stream = plan(spec(phase({}, 100, points=points), caps=caps), {"a": 400, "b": 400})
    assert stream.end == 50
    assert "`a`" in stream.end_reason


def test_caps_are_decimals() -> None:
    """0.1 epochs of 30 tokens are 3 tokens; as a binary float it would be a hair more, as 0.3 / 3 a hair less."""
    caps = {"b": DomainPolicy(cap=Decimal("0.7"))}
    stream = plan(spec(phase({"a": 0.5, "b": 0.5}, 50, seq_len=1, batch=1), caps=caps), {"a": 400, "b": 10})
    assert int(stream.cursor(50).tokens[1]) == 7


# ---- schedules


def test_a_linear_schedule_passes_its_points() -> None:
    points = (
        Point(at=0, weights={"a": 1.0, "b": 0.0}, curve="linear"),
        Point(at=50, weights={"a": 0.0, "b": 1.0}),
    )
    stream = plan(spec(phase({}, 100, points=points)), {"a": 4000, "b": 4000})
    for step in range(100):
        assert stream.weights(step)["b"] == pytest.approx(min(step / 50, 1), abs=1e-9)
    counts = [np.bincount(stream.draw(step).domains, minlength=2)[1] for step in range(100)]
    assert sum(counts[:50]) == pytest.approx(8 * sum(step / 50 for step in range(50)), abs=1)
    assert counts[50:] == [8] * 50


def test_a_cosine_schedule_is_slow_at_both_ends() -> None:
    points = (
        Point(at=0, weights={"a": 1.0, "b": 0.0}, curve="cosine"),
        Point(at=64, weights={"a": 0.0, "b": 1.0}),
    )
    stream = plan(spec(phase({}, 100, points=points)), {"a": 4000, "b": 4000})
    for step in range(65):
        assert stream.weights(step)["b"] == pytest.approx((1 - np.cos(np.pi * step / 64)) / 2, abs=2e-5)


def test_multinomial_draws_wander_and_balanced_ones_do_not() -> None:
    weights = {"a": 0.5, "b": 0.3, "c": 0.2}
    counts = {}
    for draw in ("balanced", "multinomial"):
        stream = plan(spec(phase(weights, 1000), draw=draw), {"a": 4000, "b": 4000, "c": 4000})
        counts[draw] = [int(tokens) // 4 for tokens in stream.cursor(1000).tokens]
    assert counts["balanced"] == [4000, 2400, 1600]
    assert counts["multinomial"] != counts["balanced"]
    # Five standard deviations of a binomial.
    assert counts["multinomial"][0] == pytest.approx(4000, abs=5 * (8000 * 0.25) ** 0.5)


def test_order_none_reads_the_corpus_as_it_lies() -> None:
    stream = plan(spec(phase({"a": 1.0}, 20), order="none"), {"a": 400})
    assert [window for _, _, window in windows_of(stream, "a", range(20))] == [n % 100 for n in range(160)]


# ---- the order `blocks`


def in_blocks(*phases: Phase, tokens: int = 4000, block: int = 160) -> Plan:
    return plan(spec(*phases, order="blocks", block_tokens=block), {"a": tokens})


def test_blocks_are_read_one_after_the_other() -> None:
    """1,000 windows in groups of 40: each group is read to its end, in a keyed order, and shuffled inside."""
    windows = [window for _, _, window in windows_of(in_blocks(phase({"a": 1.0}, 125)), "a", range(125))]
    assert sorted(windows) == list(range(1000))
    groups = [window // 40 for window in windows]
    order = list(dict.fromkeys(groups))
    assert groups == [group for group in order for _ in range(40)]
    assert order != sorted(order)
    assert windows[:40] != sorted(windows[:40])


def test_blocks_go_on_at_the_next_group_when_seq_len_changes() -> None:
    """Nothing is read twice and at most one group stays unread, whatever the step of the change."""
    for steps in (1, 7, 30, 60):
        stream = in_blocks(
            phase({"a": 1.0}, steps, name="p0"), phase({"a": 1.0}, 40, name="p1", seq_len=16), tokens=4000
        )
        short = windows_of(stream, "a", range(steps))
        long = [slot for slot in windows_of(stream, "a", range(steps, steps + 40)) if slot[0] == 0]
        read = [token for _, _, w in short for token in range(4 * w, 4 * w + 4)]
        read += [token for _, _, w in long for token in range(16 * w, 16 * w + 16)]
        assert len(read) == len(set(read))
        unread = set(range(4000)) - set(read)
        assert len({token // 160 for token in unread}) <= 1
        forecast = make_forecast(stream)
        assert sum(one.tokens for one in forecast.domains[0].unread) == len(unread)


def test_blocks_need_a_seq_len_that_divides_a_group() -> None:
    with pytest.raises(UsageError, match="seq_len 4 does not divide block_tokens 10"):
        in_blocks(phase({"a": 1.0}), block=10)


def test_the_step_by_hand_in_the_readme() -> None:
    text = (Path(__file__).resolve().parents[2] / "server/plan/README.md").read_text()
    stream = plan(spec(phase({"a": 0.5, "b": 0.3, "c": 0.2}, 5, batch=4)), dict.fromkeys("abc", 4000))
    rows = [line.split("|")[1:-1] for line in text.splitlines() if re.match(r"\| \d+ \|", line)]
    assert len(rows) == 5
    for step, before, counts, after in rows:
        credit = stream.cursor(int(step)).credit + stream.shares(int(step)) * 4
        assert [float(part) for part in before.split(",")] == pytest.approx(credit / 2**32, abs=1e-6)
        dealt = np.bincount(stream.draw(int(step)).domains, minlength=3)
        assert [int(part) for part in counts.split(",")] == dealt.tolist()
        assert [float(part) for part in after.split(",")] == pytest.approx(
            stream.cursor(int(step) + 1).credit / 2**32, abs=1e-6
        )
