"""The projection onto caps, floor and largest step: published values, its defining property, and infeasible bounds."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from headrace.mixer.caps import Bounds, epoch_caps, project
from headrace.mixer.epochs import epochs
from headrace.mixer.result import finish, load
from headrace.mixer.simplex import normalise
from headrace.proto.errors import ConfigError, UsageError
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize

NAMES = ("web", "code", "math", "books", "multi")
POOL = dict(zip(NAMES, (3000, 200, 25, 100, 500), strict=True))
RAW = dict(zip(NAMES, (0.5, 0.2, 0.1, 0.08, 0.12), strict=True))


def test_four_epochs() -> None:
    caps = epoch_caps(POOL, 1500, 4)
    assert caps == pytest.approx(dict(zip(NAMES, (8, 0.533333, 0.066667, 0.266667, 1.333333), strict=True)), abs=5e-7)
    weights, report = project(RAW, Bounds(caps=caps))
    expected = dict(zip(NAMES, (0.518519, 0.207407, 0.066667, 0.082963, 0.124444), strict=True))
    assert weights == pytest.approx(expected, abs=5e-7)
    realized = dict(zip(NAMES, (0.259259, 1.555556, 4.0, 1.244444, 0.373333), strict=True))
    assert epochs(weights, POOL, 1500) == pytest.approx(realized, abs=5e-7)
    assert [(bound.domain, bound.kind) for bound in report.bound] == [("math", "cap")]
    assert report.moved == pytest.approx(0.1 - 0.066667, abs=1e-6)


def test_infeasible_caps_name_the_shortfall() -> None:
    with pytest.raises(UsageError, match=r"shortfall of 0\.4 "):
        project({"a": 0.5, "b": 0.5}, Bounds(caps={"a": 0.3, "b": 0.3}))
    with pytest.raises(UsageError, match=r"shortfall of 0\.7 "):  # b has room, but the method gave it no weight
        project({"a": 1, "b": 0}, Bounds(caps={"a": 0.3}))
    with pytest.raises(UsageError, match=r"0\.2 above 1"):
        project({"a": 1, "b": 1}, Bounds(floor=0.6))


def test_a_cap_counts_what_was_served() -> None:
    assert epoch_caps({"a": 100}, 50, 2, served={"a": 180}) == {"a": pytest.approx(0.4)}
    assert epoch_caps({"a": 100}, 50, 2, served={"a": 300}) == {"a": 0.0}


@given(seed=st.integers(0, 2**32 - 1), k=st.integers(2, 40))
def test_the_result_is_the_nearest_within_the_bounds(seed: int, k: int) -> None:
    rng = np.random.default_rng(seed)
    names = [f"d{i}" for i in range(k)]
    raw = dict(zip(names, rng.dirichlet(np.full(k, 0.3)) + 1e-12, strict=True))
    caps = dict(zip(names, 1.2 / k + rng.random(k), strict=True))
    bounds = Bounds(caps=caps, floor=float(rng.random() * 0.9 / k))
    weights, _ = project(raw, bounds)
    found, start = np.array([weights[n] for n in names]), np.array([normalise(raw, place="t")[n] for n in names])
    high = np.array([min(caps[n], 1.0) for n in names])
    assert found.sum() == pytest.approx(1.0, abs=1e-9), f"seed {seed}"
    assert (found <= high + 1e-12).all()
    assert (found >= bounds.floor - 1e-12).all()
    # Optimality of the KL projection: log(w/raw) is one constant inside, below it at a cap, above it at the floor.
    ratio = np.log(found / start)
    inside = (found < high - 1e-9) & (found > bounds.floor + 1e-9)
    if inside.any():
        constant = float(np.median(ratio[inside]))
        assert ratio[inside] == pytest.approx(constant, abs=1e-6)
        assert (ratio[found >= high - 1e-9] <= constant + 1e-6).all()
        assert (ratio[found <= bounds.floor + 1e-9] >= constant - 1e-6).all()


def test_ten_thousand_domains() -> None:
    rng = np.random.default_rng(0)
    raw = {f"d{i}": float(part) for i, part in enumerate(rng.dirichlet(np.full(10_000, 0.1)))}
    weights, report = project(raw, Bounds(largest_share=2e-4, floor=1e-5))
    assert sum(weights.values()) == pytest.approx(1.0, abs=1e-9)
    assert max(weights.values()) <= 2e-4 + 1e-12
    assert min(weights.values()) >= 1e-5 - 1e-15
    assert {bound.kind for bound in report.bound} == {"share", "floor"}


def test_a_general_solver_agrees() -> None:
    caps = epoch_caps(POOL, 1500, 4)
    raw = np.array([RAW[name] for name in NAMES])
    solved = minimize(
        lambda w: float(np.sum(w * np.log(w / raw))),
        raw,
        method="SLSQP",
        bounds=[(1e-9, min(caps[name], 1.0)) for name in NAMES],
        constraints={"type": "eq", "fun": lambda w: w.sum() - 1},
        options={"ftol": 1e-14},
    )
    weights, _ = project(RAW, Bounds(caps=caps))
    assert solved.x == pytest.approx([weights[name] for name in NAMES], abs=1e-5)


def test_largest_step_wins_over_a_cap_and_says_so() -> None:
    previous = {"a": 0.8, "b": 0.2}
    weights, report = project(previous, Bounds(caps={"a": 0.3}, largest_change=0.05, previous=previous))
    assert weights == pytest.approx({"a": 0.75, "b": 0.25})
    assert "`a` is still above its cap" in report.notes[0]
    weights, report = project({"a": 0.1, "b": 0.9}, Bounds(largest_change=0.05, previous=previous))
    assert weights == pytest.approx({"a": 0.75, "b": 0.25})
    assert {bound.kind for bound in report.bound} == {"step"}


def test_floor_rescues_an_underflow_but_not_an_excluded_domain() -> None:
    weights, report = project({"a": 1.0, "b": 0.0, "c": 0.0}, Bounds(floor=0.01, excluded=frozenset({"c"})))
    assert weights == pytest.approx({"a": 0.99, "b": 0.01, "c": 0.0})
    assert [bound.kind for bound in report.bound if bound.domain == "b"] == ["floor"]


def test_bounds_check_themselves() -> None:
    wrong: dict[str, float]
    for wrong in ({"floor": -0.1}, {"largest_share": 0.0}, {"largest_change": 0.0}, {"floor": float("nan")}):
        with pytest.raises(UsageError):
            Bounds(**wrong)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="`x` is not in the mixture"):
        project({"a": 1}, Bounds(caps={"x": 0.1}))
    with pytest.raises(UsageError, match="previous weights"):
        project({"a": 1}, Bounds(largest_change=0.1))


def test_a_result_file_keeps_everything(tmp_path: Path) -> None:
    path = tmp_path / "mix.json"
    bounds = Bounds(caps=epoch_caps(POOL, 1500, 4))
    result = finish("manual", RAW, bounds, parameters={"by": "hand"}, inputs={"pool": "ab"}, warnings=("careful",))
    result.save(path)
    assert load(path) == result
    assert load(path).to_json() == path.read_text() == result.to_json()
    assert "math = 0.0666" in result.to_toml()
    path.write_text(path.read_text().replace('"moved"', '"mowed"'))
    with pytest.raises(ConfigError, match="damaged"):
        load(path)
    with pytest.raises(ConfigError, match="no such file"):
        load(tmp_path / "other.json")
