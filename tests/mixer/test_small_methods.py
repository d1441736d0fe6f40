"""MixMin and Aioli: published steps to six digits, and what must hold of any input."""

from __future__ import annotations

import numpy as np
import pytest
from headrace.mixer import aioli
from headrace.mixer.mixmin import loss, mixmin
from headrace.proto.errors import UsageError


def test_mixmin_by_the_paper() -> None:
    found = mixmin({"a": np.array([-1.0, -3.0, -2.0]), "b": np.array([-3.0, -1.0, -2.5])})
    assert list(found.weights.values()) == pytest.approx([0.598443, 0.401557], abs=5e-7)
    assert found.loss == pytest.approx(1.775718, abs=5e-7)


@pytest.mark.parametrize("seed", range(4))
def test_mixmin_finds_the_least_loss(seed: int) -> None:
    rng = np.random.default_rng(seed)
    table = -rng.gamma(2.0, 1.0, size=(4, 60))
    found = mixmin(dict(zip("abcd", table, strict=True)), steps=5000, tolerance=1e-6)
    best = found.loss
    for _ in range(200):
        assert loss(table, rng.dirichlet(np.ones(4))) >= best - 1e-6


def test_mixmin_takes_the_source_that_the_target_comes_from() -> None:
    rng = np.random.default_rng(3)
    good, bad = -rng.gamma(2.0, 0.5, size=200), -rng.gamma(2.0, 3.0, size=200)
    found = mixmin({"bad": bad, "good": good, "never": np.full(200, -np.inf)}, steps=1000)
    assert found.weights["good"] > 0.95
    assert found.weights["never"] < 1e-6
    huge = mixmin({"a": np.array([-5000.0, -1.0]), "b": np.array([-1.0, -5000.0])})  # sequences, not tokens
    assert huge.weights == pytest.approx({"a": 0.5, "b": 0.5})


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ({"a": [-1.0], "b": [-1.0, -2.0]}, "same target examples"),
        ({"a": []}, "same target examples"),
        ({"a": [float("nan")]}, "NaN"),
        ({"a": [0.5]}, "above 0"),
        ({"a": [-np.inf], "b": [-np.inf]}, "know each example"),
    ],
)
def test_mixmin_refuses_what_are_no_log_probabilities(table: dict[str, list[float]], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        mixmin({name: np.array(row) for name, row in table.items()})


FALLS = {"a": {"a": 0.10, "b": 0.02}, "b": {"a": -0.01, "b": 0.20}}


def test_aioli_by_the_paper() -> None:
    matrix = aioli.normalised(FALLS)
    assert matrix.ravel().tolist() == pytest.approx([0.314286, 0.085714, 0.0, 0.6], abs=5e-7)
    found = aioli.advance({"a": 1.0, "b": 1.0}, FALLS, eta=0.2)
    assert list(found.values()) == pytest.approx([0.481437, 0.518563], abs=5e-7)
    further = aioli.advance(found, FALLS, eta=0.2)
    assert further["b"] > found["b"]  # it goes on from the weights that it has


def test_aioli_solves_the_smoothing_back_out() -> None:
    rng = np.random.default_rng(4)
    pure = {i: {j: float(rng.normal()) for j in "abc"} for i in "abc"}
    mixed = {i: {j: sum((0.7 if j == k else 0.15) * pure[i][k] for k in "abc") for j in "abc"} for i in "abc"}
    found = aioli.unmix(mixed, 0.7)
    for name in "abc":
        assert found[name] == pytest.approx(pure[name])
    for bad, said in ((1 / 3, "concentration"), (1.1, "concentration")):
        with pytest.raises(UsageError, match=said):
            aioli.unmix(mixed, bad)


def test_aioli_refuses_what_does_not_fit() -> None:
    with pytest.raises(UsageError, match="falls of `a`"):
        aioli.advance({"a": 1.0, "b": 1.0}, {"a": {"a": 0.1}, "b": {"a": 0.1, "b": 0.2}})
    with pytest.raises(UsageError, match="not finite"):
        aioli.normalised({"a": {"a": float("nan")}})
    with pytest.raises(UsageError, match="weights name a, c"):
        aioli.advance({"a": 1.0, "c": 1.0}, FALLS)
    even = {i: dict.fromkeys("ab", 0.0) for i in "ab"}
    assert aioli.advance({"a": 0.3, "b": 0.7}, even) == pytest.approx({"a": 0.3, "b": 0.7})
