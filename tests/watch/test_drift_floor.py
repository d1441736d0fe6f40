"""Divergences are what their formulas say, floors are what chance gives, and nothing that does not drift alarms."""

from __future__ import annotations

import os

import numpy as np
import pytest
import simulated
from headrace.server.watch.drift.divergence import PSI_OF_JSD, jsd, psi, shares
from headrace.server.watch.drift.floor import Sample, chi_square_quantile, noise_floor
from headrace.server.watch.drift.near_duplicates import HEAD, History, document_keys, expected_rate
from headrace.server.watch.drift.rule import IN_A_ROW, THRESHOLDS
from headrace.server.watch.drift.series import HELD, Series
from hypothesis import given
from hypothesis import strategies as st

SLOW = os.environ.get("HEADRACE_SLOW") == "1"
counts = st.lists(st.integers(0, 1000), min_size=2, max_size=20).filter(any)


@given(counts, counts)
def test_jsd_is_symmetric_between_0_and_1_and_0_for_equal_ones(left: list[int], right: list[int]) -> None:
    size = max(len(left), len(right))
    p, q = (shares(each + [0] * (size - len(each))) for each in (left, right))
    assert jsd(p, q) == pytest.approx(jsd(q, p), abs=1e-12)
    assert 0 <= jsd(p, q) <= 1
    assert jsd(p, p) == psi(p, p) == 0
    assert psi(p, q) >= 0


def test_known_values() -> None:
    assert jsd(np.array([1.0, 0.0]), np.array([0.0, 1.0])) == 1
    # By hand: p = (1/2, 1/2), q = (1, 0), m = (3/4, 1/4).
    assert jsd(np.array([0.5, 0.5]), np.array([1.0, 0.0])) == pytest.approx(0.311278, abs=1e-6)
    assert psi(np.array([0.5, 0.5]), np.array([0.4, 0.6])) == pytest.approx(0.1 * np.log(1.25) + 0.1 * np.log(1.2))
    near, base = np.array([0.301, 0.699]), np.array([0.3, 0.7])
    assert psi(near, base) == pytest.approx(PSI_OF_JSD * jsd(near, base), rel=1e-2)


@pytest.mark.parametrize(("freedom", "known"), [(1, 6.635), (4, 13.277), (10, 23.209), (60, 88.379)])
def test_chi_square_quantile(freedom: float, known: float) -> None:
    assert chi_square_quantile(freedom) == pytest.approx(known, rel=0.02)


def test_tokens_of_one_window_are_no_independent_sample() -> None:
    """The floor of clustered windows is far above that of as many independent tokens, as their JSD is."""
    base = simulated.zipf(64)
    floors = {}
    for name, draw in {
        "alike": simulated.multinomial(base, 4096),
        "clustered": simulated.clustered(base, 4096, 20.0),
    }.items():
        random = np.random.default_rng(3)
        values, bounds = zip(
            *((float(jsd(sample.shares, base)), noise_floor(sample, base)) for sample in _samples(draw, random, 200)),
            strict=True,
        )
        floors[name] = np.median(bounds)
        assert 0.6 < np.quantile(values, 0.99) / np.median(bounds) < 1.3, name
    assert floors["clustered"] > 50 * floors["alike"]


def _samples(draw: simulated.Draw, random: np.random.Generator, number: int) -> list[Sample]:
    return [Sample(draw(random, 64)) for _ in range(number)]


@pytest.mark.parametrize("name", simulated.DOMAINS)
def test_what_does_not_drift_raises_no_alarm(name: str) -> None:
    """Stated: at most one alarm in 10,000 intervals of a series, against either; 3 % of figures pass their floor."""
    feature, draw = simulated.DOMAINS[name]
    shares_ = simulated.population(draw, np.random.default_rng(1), units=200_000 if SLOW else 15_000)
    intervals = 10_000 if SLOW else 80
    seed = 11
    for units in (32, 128) if SLOW else (64,):
        random = np.random.default_rng(seed)
        series = Series(feature, shares_, least_units=1)
        figures = [each for number in range(intervals) for each in series.add(draw(random, units), number, number + 1)]
        alarms = sum(figure.alarm for figure in figures)
        assert alarms <= 2 * intervals // 10_000, f"{alarms} alarms in {intervals} intervals, seed {seed}"
        passed = np.mean([figure.jsd > figure.floor for figure in figures])
        assert passed <= (0.03 if SLOW else 0.06), f"{passed:.3f} of the figures are above their floor, seed {seed}"


def test_a_change_that_lasts_alarms_against_both_and_is_then_taken_as_new() -> None:
    old, new = simulated.zipf(64), np.roll(simulated.zipf(64), 5)
    series = Series("vocabulary", old)
    random = np.random.default_rng(2)
    alarms: dict[str, list[int]] = {"reference": [], "previous": []}
    for number in range(40):
        draw = simulated.clustered(old if number < 10 else new, 512, 50.0)
        for figure in series.add(draw(random, 64), number, number + 1):
            if figure.alarm:
                alarms[figure.against].append(number)
    assert alarms["reference"] == list(range(10 + IN_A_ROW - 1, 40))
    assert alarms["previous"] == list(range(10 + IN_A_ROW - 1, 10 + HELD))


def test_a_rare_domain_gathers_windows_until_they_are_enough() -> None:
    series = Series("vocabulary", simulated.zipf(64))
    random = np.random.default_rng(2)
    draw = simulated.multinomial(simulated.zipf(64), 100)
    found = [series.add(draw(random, 10), 8 * number, 8 * number + 8) for number in range(8)]
    assert [len(each) for each in found] == [0, 0, 0, 1, 0, 0, 0, 2]
    assert (found[3][0].from_step, found[3][0].to_step, found[3][0].samples) == (0, 32, 40)
    assert found[7][0].from_step == 32


def test_losses_alarm_only_when_they_rise() -> None:
    def alarms(levels: list[float]) -> int:
        series = Series("loss", None, only_rising=True, least_units=16)
        random = np.random.default_rng(4)
        count = 0
        for number, level in enumerate(levels):
            bins = np.clip((random.normal(level, 0.05, 32) / 0.125).astype(np.int64), 0, 127)
            count += sum(figure.alarm for figure in series.add(np.eye(128, dtype=np.int64)[bins], number, number + 1))
        return count

    assert alarms([5 - 0.1 * number for number in range(30)]) == 0
    assert alarms([3.0] * 10 + [4.0] * 5) > 0


def test_document_keys_and_history() -> None:
    random = np.random.default_rng(5)
    text = random.integers(0, 5000, HEAD).astype(np.uint32)
    others = random.integers(0, 5000, (300, HEAD)).astype(np.uint32)
    changed = np.array([np.where(np.arange(HEAD) == at, 5001, text) for at in range(0, HEAD, 2)], np.uint32)
    whole = np.full(1, HEAD)
    (key,) = document_keys(text[None], whole)
    assert len({key, *document_keys(others, np.full(300, HEAD))}) == 301
    near = np.mean(document_keys(changed, np.full(len(changed), HEAD)) == key)
    assert 0.6 < near < 0.9  # 5 of 124 runs differ: J = 119 / 129, J^4 = 0.72
    short = document_keys(np.stack([text] * 6), np.array([1, 2, 3, 5, 50, 50]))
    assert len(set(short)) == 5
    assert short[4] == document_keys(np.where(np.arange(HEAD) < 50, text, 7)[None], np.array([50]))[0]
    history = History(2)
    assert [history.repeats(key, window) for key, window in [(1, 7), (1, 7), (1, 8), (2, 9), (3, 9), (1, 9)]] == [
        False,
        False,  # the same window again: another epoch
        True,
        False,
        False,
        False,  # forgotten
    ]
    assert expected_rate(1000, 100, 500) == pytest.approx(0.1)
    assert expected_rate(1, 0, 500) == 0
    assert set(THRESHOLDS) == {"document_length", "near_duplicate", "loss", "token_rank", "vocabulary", "script"} | {
        "bytes_per_token",
        "byte_fallback",
    }
