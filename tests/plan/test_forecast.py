"""The forecast against worked examples, and against the stream it foretells."""

from __future__ import annotations

from decimal import Decimal

import pytest
from headrace.server.plan.forecast import Forecast, make_forecast
from headrace.server.plan.forecast_text import forecast_lines
from headrace.server.plan.plan import Plan
from headrace.server.plan.scaling import effective_tokens, loss
from headrace.server.plan.spec import DomainPolicy
from random_runs import make_run
from small import facts, phase, plan, spec

NAMES = ("web", "code", "math", "wiki", "books")
SIZES = dict(zip(NAMES, (3000, 200, 25, 100, 500), strict=True))
WEIGHTS = dict(zip(NAMES, (0.5, 0.2, 0.1, 0.08, 0.12), strict=True))
SCALE = 1000  # tokens for each billion of the book


def foretold(budget: int, caps: dict[str, DomainPolicy] | None = None) -> Forecast:
    """A run of `budget` billion tokens of the book's five domains."""
    run = spec(phase(WEIGHTS, budget * SCALE // 40, seq_len=4, batch=10), caps=caps)
    return make_forecast(Plan(run, facts({name: size * SCALE for name, size in SIZES.items()}, 4)))


def epochs(forecast: Forecast) -> dict[str, float]:
    return {domain.name: domain.epochs for domain in forecast.domains}


def test_epochs_of_a_worked_example() -> None:
    expected = dict(zip(NAMES, (0.25, 1.5, 6.0, 1.2, 0.36), strict=True))
    forecast = foretold(1500)
    assert epochs(forecast) == pytest.approx(expected, abs=1e-3)
    assert any("`math` is read 6.00 times" in warning for warning in forecast.warnings)
    assert not any("`code` is read" in warning for warning in forecast.warnings)


def test_epochs_of_two_phases_add_up() -> None:
    """An anneal: 0.04 x 1700 + 0.25 x 300 of 30 are 4.766667 epochs."""
    run = spec(
        phase({"math": 0.04, "web": 0.96}, 1700 * SCALE // 40, batch=10),
        phase({"math": 0.25, "web": 0.75}, 300 * SCALE // 40, batch=10, name="anneal"),
    )
    forecast = make_forecast(Plan(run, facts({"math": 30 * SCALE, "web": 3000 * SCALE}, 4)))
    assert epochs(forecast)["math"] == pytest.approx(4.766667, abs=1e-3)
    assert [round(p.tokens["math"] / SCALE) for p in forecast.phases] == [68, 75]
    assert sum(p.epochs["math"] for p in forecast.phases) == pytest.approx(epochs(forecast)["math"])


def test_first_exhausted_is_a_cap_of_one_with_stop() -> None:
    caps = dict.fromkeys(NAMES, DomainPolicy(cap=Decimal(1), at_cap="stop"))
    forecast = foretold(1500, caps)
    assert forecast.end * 40 / SCALE == pytest.approx(250, abs=0.1)
    assert "`math`" in forecast.end_reason
    assert any("1250000 tokens short" in warning for warning in forecast.warnings)


def test_all_exhausted_needs_as_many_tokens_as_the_slowest_domain() -> None:
    """Hugging Face's `all_exhausted` would run to max n / w = 6,000, with math at 24 epochs."""
    forecast = foretold(6000)
    assert epochs(forecast)["math"] == pytest.approx(24, abs=1e-3)
    assert min(epochs(forecast).values()) == pytest.approx(1, abs=1e-3)


def test_caps_give_the_projection_onto_them() -> None:
    caps = dict.fromkeys(NAMES, DomainPolicy(cap=Decimal(4)))
    expected = dict(zip(NAMES, (0.259259, 1.555556, 4.0, 1.244444, 0.373333), strict=True))
    forecast = foretold(1500, caps)
    assert epochs(forecast) == pytest.approx(expected, abs=1e-3)
    math = next(domain for domain in forecast.domains if domain.name == "math")
    assert math.capped_at is not None
    assert math.capped_at * 40 / SCALE == pytest.approx(1000, abs=0.2)


def test_infeasible_caps_end_the_run_and_name_what_is_missing() -> None:
    """Weights 0.5 and 0.5 with caps of 0.3 of the budget each: 0.4 of it is missing."""
    caps = dict.fromkeys(("a", "b"), DomainPolicy(cap=Decimal("0.3")))
    forecast = make_forecast(plan(spec(phase({"a": 0.5, "b": 0.5}, 1000), caps=caps), {"a": 32_000, "b": 32_000}))
    assert forecast.end == 600
    assert "12800 tokens short" in forecast.warnings[0]


def test_unread_windows_at_a_new_seq_len() -> None:
    run = spec(phase({"a": 1}, 3, name="p0"), phase({"a": 1}, 2, name="p1", seq_len=8))
    forecast = make_forecast(plan(run, {"a": 400}))
    assert [(u.step, u.windows, u.tokens) for u in forecast.domains[0].unread] == [(3, 76, 304)]


def test_wrap_and_cap_steps_are_those_of_the_stream() -> None:
    for seed in range(60):
        run = make_run(seed)
        forecast = make_forecast(run.plan())
        stream = run.plan()
        for place, domain in enumerate(forecast.domains):
            used_up = [
                step
                for step in range(forecast.end)
                for d, index, left in [
                    (stream.draw(step), stream.cursor(step + 1).indices, stream.cursor(step + 1).windows)
                ]
                if any(d.domains == place)
                and (index[place] == left[place] or len({int(p) for p in d.passes[d.domains == place]}) > 1)
            ]
            assert domain.wraps_at == (used_up[0] if used_up else None), f"seed {seed}, {domain.name}"
            assert domain.tokens == int(stream.cursor(forecast.end).tokens[place])


def test_deviation_is_the_largest_credit_seen() -> None:
    for seed in range(20):
        run = make_run(seed)
        stream = run.plan()
        forecast = make_forecast(run.plan())
        credits = [stream.cursor(step).credit for step in range(forecast.end + 1)]
        for place, domain in enumerate(forecast.domains):
            assert domain.ahead * 2**32 == max(-min(int(c[place]) for c in credits), 0), f"seed {seed}"
            assert domain.behind * 2**32 == max(max(int(c[place]) for c in credits), 0), f"seed {seed}"


def test_value_of_repeated_tokens() -> None:
    """D' / U, and losses that the authors print."""
    for repeats, worth in (
        (2, 1.968199),
        (4, 3.725673),
        (6, 5.268944),
        (8, 6.624119),
        (16, 10.582457),
        (40, 15.167465),
    ):
        assert effective_tokens(repeats, 1) == pytest.approx(worth, abs=1e-6)
    assert effective_tokens(0.5, 1) == 0.5
    assert loss(6.34e9, 242e9, 25e9) == pytest.approx(2.2256440889984477, rel=1e-12)
    assert loss(8.67e9, 178e9, 25e9) == pytest.approx(2.2269634075087867, rel=1e-12)


def test_the_table_has_a_line_for_each_domain() -> None:
    lines = forecast_lines(foretold(1500))
    math = next(line for line in lines if line.startswith("math"))
    assert math.split()[:5] == ["math", "25.00K", "150.00K", "6.000", "87.8%"]
    assert sum(line.startswith("warning: ") for line in lines) == 1


def test_tokens_and_epochs_are_told_by_phase() -> None:
    run = spec(phase({"a": 1, "b": 1}, 5, name="p0"), phase({"a": 1, "b": 3}, 4, name="p1", seq_len=8))
    lines = forecast_lines(make_forecast(plan(run, {"a": 800, "b": 400})))
    at = lines.index("tokens by phase")
    assert lines[at + 1].split() == ["domain", "p0", "[0,", "5)", "p1", "[5,", "9)", "all"]
    assert [line.split() for line in lines[at + 2 : at + 4]] == [["a", "80", "64", "144"], ["b", "80", "192", "272"]]
    at = lines.index("epochs by phase")
    assert [line.split() for line in lines[at + 2 : at + 4]] == [
        ["a", "0.100", "0.080", "0.180"],
        ["b", "0.200", "0.480", "0.680"],
    ]


def test_weights_that_do_not_sum_to_one_are_said() -> None:
    """A slip (0.7 + 0.3 + 0.1) is not told from parts (50 and 50) by the file: both are said as they are taken."""
    slip = {"a": 0.7, "b": 0.3, "c": 0.1}
    run = spec(phase({"a": 0.7, "b": 0.2, "c": 0.1}, 5, name="good"), phase(slip, 4, name="slip"))
    forecast = make_forecast(plan(run, {"a": 800, "b": 400, "c": 400}))
    assert forecast.notes == (
        "weights of phase `slip` sum to 1.1 and are taken as parts: a 0.6364, b 0.2727, c 0.09091",
    )
    assert f"note: {forecast.notes[0]}" in forecast_lines(forecast)


def test_a_domain_smaller_than_a_window_is_read_with_padding_and_named() -> None:
    """One document of 5 tokens at rows of 2,048, at weight 0.3 and alone: counted exactly, and said before it runs."""
    mixed = spec(phase({"a": 0.7, "tiny": 0.3}, 1000, seq_len=2048, batch=8))
    stream = plan(mixed, {"a": 400_000, "tiny": 5})
    tokens = dict(zip(stream.domains, map(int, stream.cursor(1000).tokens), strict=True))
    assert tokens["tiny"] / sum(tokens.values()) == pytest.approx(0.3, abs=0.02)
    warnings = make_forecast(stream).warnings
    assert any("windows of domain `tiny` are 0.2% full in phase `p`" in warning for warning in warnings)
    assert any("`tiny` is read" in warning for warning in warnings)
    assert not any("windows of domain `a`" in warning for warning in warnings)
    alone = plan(spec(phase({"tiny": 1.0}, 5, seq_len=2048, batch=2)), {"tiny": 5})
    assert int(alone.cursor(5).tokens[0]) == 5 * 10
    assert make_forecast(alone).domains[0].epochs == 10.0
