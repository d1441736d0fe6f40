"""ADO: the published step to six digits, laws that are found again, and where weight goes."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from headrace.mixer import ado, online
from headrace.mixer.ado import AdoLaw
from headrace.mixer.online import OnlineSpec
from headrace.mixer.reports import Measured, Report
from headrace.proto.errors import UsageError

SPEC = OnlineSpec(rule="ado", least_points=5)
EVEN = dict.fromkeys(("flat", "quick", "slow"), 1 / 3)


def test_one_step_by_the_paper() -> None:
    prior = {"a": 0.6, "b": 0.3, "c": 0.1}
    values = {"a": (2.0, 5.0, 0.3), "b": (1.8, 4.0, 0.25), "c": (1.7, 8.0, 0.4)}
    laws = {n: AdoLaw(floor=floor, scale=scale, exponent=power) for n, (floor, scale, power) in values.items()}
    losses = [law.predict(1000) for law in laws.values()]
    assert losses == pytest.approx([2.629463, 2.511312, 2.204766], abs=5e-7)
    rho = ado.preference(prior, prior, laws, 1000)
    assert list(rho.values()) == pytest.approx([0.711395, 0.236851, 0.051754], abs=5e-7)
    chosen, mean = ado.blend(prior, rho, 1000, fresh=0.1)
    assert list(chosen.values()) == pytest.approx([0.611140, 0.293685, 0.095175], abs=5e-7)
    assert list(mean.values()) == pytest.approx([0.600111, 0.299937, 0.099952], abs=5e-7)


@pytest.mark.parametrize(("floor", "scale", "power"), [(1.8, 40.0, 0.3), (0.5, 900.0, 0.6), (0.0, 9.0, 0.1)])
def test_a_known_law_is_found_again(floor: float, scale: float, power: float) -> None:
    points = [[n, floor + scale * n**-power] for n in range(50_000, 1_000_000, 50_000)]
    found = ado.fit(points)
    assert (found.exponent, found.floor, found.scale) == pytest.approx((power, floor, scale), rel=1e-6, abs=1e-6)
    assert found.error < 1e-9
    assert found.predict(5e6) == pytest.approx(floor + scale * 5e6**-power)


def test_what_does_not_fall_has_no_slope() -> None:
    assert ado.fit([[n, 3.0] for n in (1, 2, 3)]).slope(3) == pytest.approx(0.0, abs=1e-12)
    assert ado.fit([[n, 3.0 + n] for n in (1, 2, 3)]).slope(3) == 0.0  # a loss that rises asks for nothing
    for bad in ([], [[1, 2.0], [2, 1.0]], [[0, 3.0], [1, 2.0], [2, 1.0]], [[1, math.nan], [2, 1.0], [3, 1.0]]):
        with pytest.raises(UsageError, match="at least 3 finite"):
            ado.fit(bad)


def run(windows: int, seed: int = 0) -> list[online.OnlineState]:
    """Windows of 64,000 tokens: `quick` and `slow` fall by laws of their own, `flat` is high and stays there."""
    rng, state, found = np.random.default_rng(seed), online.start(EVEN, SPEC), []
    for window in range(windows):
        n = 64_000 * (window + 0.5)
        true = {"flat": 5.0, "quick": 2 + 300 * n**-0.5, "slow": 2 + 30 * n**-0.5}
        domains = {k: Measured(loss=21_000 * (v + 1e-4 * rng.normal()), tokens=21_000) for k, v in true.items()}
        state = online.advance(online.rebase(state, state.weights), Report(step=100 * window, domains=domains), SPEC)
        state = online.OnlineState(**json.loads(json.dumps(state.to_json())))
        found.append(state)
    return found


def test_weight_goes_where_the_loss_falls_and_not_where_it_is_high() -> None:
    states = run(40)
    assert all(state.weights == EVEN for state in states[:5])  # one report is ignored, five points are needed
    assert states[5].weights != EVEN
    last = states[-1].weights
    assert last["quick"] > 0.7 > 0.15 > last["slow"] > last["flat"] > 0
    assert states[-1].weights == run(40)[-1].weights != run(40, seed=1)[-1].weights


def test_the_history_is_bounded_and_keeps_its_span() -> None:
    points: list[list[float]] = []
    for n in range(1, 2000):
        points = ado.remember(points, float(n), 1.0)
        assert len(points) <= 256
    assert points[0][0] < 40
    assert points[-1][0] == 1999
    assert ado.remember(points, 2000.0, math.nan)[-1][0] == 1999


def test_a_new_domain_waits_for_its_points() -> None:
    state = online.rebase(run(8)[-1], {"flat": 0.2, "new": 0.4, "quick": 0.2, "slow": 0.2})
    domains = {k: Measured(loss=21_000 * 3.0, tokens=21_000) for k in state.weights}
    after = online.advance(state, Report(step=800, domains=domains), SPEC)
    assert after.weights["new"] == pytest.approx(0.4)
    assert sum(after.weights.values()) == pytest.approx(1.0)
