"""The log-linear law, its solve under caps, candidates for a sweep, and DoGE, against published values."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest
from headrace.mixer import doge
from headrace.mixer.caps import Bounds, epoch_caps
from headrace.mixer.loglinear import Law, divergence, fit, reuse, runs_needed, solve
from headrace.mixer.simplex import vector
from headrace.mixer.swarm import SwarmSpec, swarm
from headrace.proto.errors import UsageError
from scipy.stats import spearmanr

REGMIX = Path(__file__).parents[2] / ".." / "shared" / "data" / "regmix"


def law(*slopes: float) -> Law:
    return Law(floor=0.0, slopes={f"d{i}": slope for i, slope in enumerate(slopes)}, error=0.0)


def test_solve_with_caps_and_a_prior() -> None:
    prior = {"d0": 0.6, "d1": 0.3, "d2": 0.1}
    found = solve([law(-1, -0.2, -2), law(-0.5, -1.5, -0.1)], prior, Bounds(caps={"d0": 1, "d1": 1, "d2": 0.4}))
    assert list(found.weights.values()) == pytest.approx([0.236971, 0.447431, 0.315598], abs=5e-7)
    assert found.objective == pytest.approx(0.427921, abs=5e-7)


def test_without_a_signal_it_is_the_projection_of_the_prior() -> None:
    pool = {"d0": 3000, "d1": 200, "d2": 25, "d3": 100, "d4": 500}
    prior = {"d0": 0.5, "d1": 0.2, "d2": 0.1, "d3": 0.08, "d4": 0.12}
    found = solve([law(0, 0, 0, 0, 0)], prior, Bounds(caps=epoch_caps(pool, 1500, 4)))
    assert list(found.weights.values()) == pytest.approx([0.518519, 0.207407, 0.066667, 0.082963, 0.124444], abs=5e-7)
    assert [bound.domain for bound in found.report.bound] == ["d2"]


def test_the_solution_beats_its_neighbours() -> None:
    rng = np.random.default_rng(5)
    laws = [law(*rng.normal(size=6)) for _ in range(3)]
    prior = {f"d{i}": 1 / 6 for i in range(6)}
    found = solve(
        laws, prior, Bounds(caps=dict.fromkeys(prior, 0.4), floor=0.02), task_weights=[1, 2, 0.5], strength=0.1
    )
    best = vector(found.weights, prior)
    slopes = np.array([[each.slopes[name] for name in prior] for each in laws])
    parts = np.array([1, 2, 0.5]) / 3.5

    def value(p: np.ndarray) -> float:
        return float(parts @ np.exp(slopes @ p)) + 0.1 * divergence(p, np.full(6, 1 / 6))

    for _ in range(300):
        move = rng.normal(size=6) * 0.02
        other = best + move - move.mean()
        if (other >= 0.02).all() and (other <= 0.4).all():
            assert value(other) >= value(best) - 1e-12


def test_a_known_law_is_found_again() -> None:
    rng = np.random.default_rng(1)
    truth = Law(floor=2.0, slopes={"a": 0.5, "b": -1.0, "c": -3.0}, error=0.0)
    mixtures = [dict(zip("abc", rng.dirichlet(np.ones(3)), strict=True)) for _ in range(runs_needed(3))]
    found = fit(mixtures, [truth.predict(m) for m in mixtures])
    assert found.error < 1e-6
    assert found.floor == pytest.approx(2.0, abs=1e-3)
    assert found.slopes == pytest.approx(truth.slopes, abs=1e-2)
    with pytest.raises(UsageError, match="12 runs are advised"):
        fit(mixtures[:3], [1.0, 2.0, 3.0])


def read(name: str) -> tuple[list[str], np.ndarray]:
    with (REGMIX / name).open() as stream:
        rows = list(csv.reader(stream))
    return rows[0][1:], np.array([[float(cell) for cell in row[1:]] for row in rows[1:]])


@pytest.mark.skipif(not REGMIX.exists(), reason="the public tables of RegMix are not here")
def test_it_ranks_the_public_proxy_runs() -> None:
    names, mixtures = read("train_mixture_1m.csv")
    tasks, losses = read("train_pile_loss_1m.csv")
    _, held = read("test_mixture_1m.csv")
    _, truth = read("test_pile_loss_1m.csv")
    assert runs_needed(len(names)) == 54
    rng, ranks = np.random.default_rng(0), []
    for task in ("arxiv", "github", "stackexchange", "pile_cc"):
        column = tasks.index(f"metric/the_pile_{task}_val_loss")
        picks = [np.arange(54)] if task == "pile_cc" else []
        picks += [rng.choice(512, 54, replace=False) for _ in range(3 - len(picks))]
        for pick in picks:
            rows = [dict(zip(names, row, strict=True)) for row in mixtures[pick]]
            found = fit(rows, losses[pick, column].tolist())
            predicted = [found.predict(dict(zip(names, row, strict=True))) for row in held]
            ranks.append(float(spearmanr(predicted, truth[:, column]).statistic))
            if task == "pile_cc" and pick[0] == 0 and pick[-1] == 53:
                assert ranks[-1] >= 0.90
    assert np.mean(ranks) >= 0.92, ranks


def test_reuse_of_a_mixture() -> None:
    found = reuse({"a": 0.25, "b": 0.25, "c": 0.5}, {"old": 0.4, "new": 0.6}, "old")
    assert found == pytest.approx({"a": 0.1, "b": 0.1, "c": 0.2, "new": 0.6})


def test_candidates_of_a_sweep() -> None:
    tokens = {"web": 3000, "code": 250, "math": 30, "books": 80, "multi": 400}
    found = swarm(tokens, SwarmSpec(runs=30))
    assert found == swarm(tokens, SwarmSpec(runs=30))
    assert found != swarm(tokens, SwarmSpec(runs=30, seed=43))
    for candidate in found:
        assert sum(candidate.values()) == pytest.approx(1.0, abs=1e-12)
        assert candidate["math"] <= 15 * 30 / 3760
    with pytest.raises(UsageError, match="of 5 candidates"):
        swarm(tokens, SwarmSpec(runs=5, largest_repeat=0.5))


@pytest.mark.parametrize(
    ("self_term", "expected"),
    [(True, (0.336827, 0.345008, 0.318165)), (False, (0.331965, 0.340029, 0.328006))],
)
def test_doge(self_term: bool, expected: tuple[float, ...]) -> None:
    gradients = np.array([(1, 0), (0.6, 0.8), (0, 0.5)])
    names = ("a", "b", "c")
    state = doge.advance(
        doge.start(dict.fromkeys(names, 1.0)), names, gradients @ gradients.T, doge.DogeSpec(self_term=self_term)
    )
    assert list(state.weights.values()) == pytest.approx(expected, abs=5e-7)
    assert state.average == pytest.approx(state.weights)
    absent = doge.advance(state, ("a", "b"), (gradients @ gradients.T)[:2, :2], doge.DogeSpec())
    assert absent.weights["c"] == state.weights["c"]
