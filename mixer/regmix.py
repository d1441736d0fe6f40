"""RegMix: predict losses of mixtures from measured ones by regression, and take the mean of the best of many draws
(Liu et al., ICLR 2025, arXiv 2407.01492).

    loss ~ regressor(weights);   100,000 draws of Dirichlet(prior);   the answer is the mean of the 128 best predicted

Regressors: `linear` (least squares with a slight ridge) and `trees` (`headrace.mixer.trees`); `best` takes the one that
ranks better in five-fold cross-validation: which one leads at how many runs is no constant.
What holds: draws within the bounds are preferred to others, equal seeds give equal answers, the best measured mixture
is named beside the predicted one, because the least of many predictions flatters itself. What was given up: the
released recipe's stop on the very runs that it is judged by.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from headrace.mixer.caps import Bounds
from headrace.mixer.simplex import Vector, Weights, named, normalise, vector
from headrace.mixer.trees import TreesSpec, fit_trees
from headrace.proto.errors import UsageError

Regressor = Literal["best", "linear", "trees"]
Predict = Callable[[Vector], Vector]
_FOLDS = 5
LEAST_RUNS = 3 * _FOLDS
_RIDGE = 1e-6


@dataclass(frozen=True, kw_only=True, slots=True)
class RegmixSpec:
    """regressor: see the module; draws: candidates predicted; top: best ones averaged; seed: of the draws."""

    regressor: Regressor = "best"
    draws: int = 100_000
    top: int = 128
    seed: int = 42

    def __post_init__(self) -> None:
        if self.regressor not in get_args(Regressor):
            raise UsageError(f"regmix: regressor is `{self.regressor}`; choose `best`, `linear` or `trees`")
        if not 1 <= self.top <= self.draws:
            raise UsageError(f"regmix: top is {self.top} of {self.draws} draws; it must be from 1 to all of them")


@dataclass(frozen=True, kw_only=True, slots=True)
class RegmixResult:
    """weights: the mean of the best draws; predicted: its loss; ranks: rank correlation in cross-validation of each
    regressor that was tried; within: whether all averaged draws lie within the bounds."""

    weights: Weights
    predicted: float
    regressor: str
    ranks: Mapping[str, float]
    within: bool


def linear(rows: Vector, losses: Vector) -> Predict:
    """Least squares of the loss on weights and a constant, with a slight ridge because weights sum to 1."""
    mean, level = rows.mean(axis=0), losses.mean()
    spread = rows - mean
    slopes = np.linalg.solve(
        spread.T @ spread + _RIDGE * len(rows) * np.eye(rows.shape[1]), spread.T @ (losses - level)
    )
    return lambda new: (new - mean) @ slopes + level


def trees(rows: Vector, losses: Vector) -> Predict:
    """Boosted trees."""
    return fit_trees(rows, losses, TreesSpec()).predict


_REGRESSORS: Mapping[str, Callable[[Vector, Vector], Predict]] = {"linear": linear, "trees": trees}


def regmix(
    mixtures: Sequence[Mapping[str, float]],
    losses: Sequence[float],
    prior: Mapping[str, float],
    spec: RegmixSpec | None = None,
    bounds: Bounds | None = None,
) -> RegmixResult:
    """The mixture of least predicted loss. Raises UsageError for too few runs or losses that are not finite."""
    spec, shares = spec or RegmixSpec(), normalise(prior, place="prior")
    names = tuple(shares)
    rows = np.array([[mixture.get(name, 0.0) for name in names] for mixture in mixtures])
    measured = np.array(losses, dtype=np.float64)
    if len(rows) != len(measured) or len(rows) < LEAST_RUNS or not np.isfinite(measured).all():
        raise UsageError(
            f"regmix: {len(measured)} losses of {len(rows)} runs; {LEAST_RUNS} or more with finite losses are needed"
        )
    tried = list(_REGRESSORS) if spec.regressor == "best" else [spec.regressor]
    ranks = {name: cross_validate(_REGRESSORS[name], rows, measured) for name in tried}
    chosen = max(ranks, key=lambda name: ranks[name])
    predict = _REGRESSORS[chosen](rows, measured)
    best, within = _search(predict, shares, spec, bounds or Bounds())
    predicted = float(predict(best[None, :])[0])
    return RegmixResult(weights=named(names, best), predicted=predicted, regressor=chosen, ranks=ranks, within=within)


def cross_validate(make: Callable[[Vector, Vector], Predict], rows: Vector, losses: Vector) -> float:
    """Rank correlation of losses with predictions made without them, five folds, every fifth run in one."""
    predicted = np.empty(len(losses))
    for fold in range(_FOLDS):
        out = np.arange(len(losses)) % _FOLDS == fold
        predicted[out] = make(rows[~out], losses[~out])(rows[out])
    return rank_correlation(predicted, losses)


def rank_correlation(left: Vector, right: Vector) -> float:
    """Spearman's, ties sharing their mean rank; 0 where one of the two is constant."""
    x, y = (_ranks(values) - (len(values) - 1) / 2 for values in (left, right))
    scale = float(np.sqrt((x @ x) * (y @ y)))
    return float(x @ y) / scale if scale else 0.0


def _ranks(values: Vector) -> Vector:
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    ranks: Vector = (last - (counts + 1) / 2)[inverse].astype(np.float64)
    return ranks


def _search(predict: Predict, shares: Weights, spec: RegmixSpec, bounds: Bounds) -> tuple[Vector, bool]:
    """The mean of the best predicted draws, those within the bounds if there are enough of them."""
    names = tuple(shares)
    prior = np.maximum(vector(shares, names), 1e-4)
    draws = np.random.default_rng(spec.seed).dirichlet(prior, size=spec.draws)
    high = np.array([min(bounds.caps.get(name, 1.0), bounds.largest_share) for name in names])
    inside = ((draws <= high) & (draws >= bounds.floor)).all(axis=1)
    within = int(inside.sum()) >= spec.top
    chosen = draws[inside] if within else draws
    order = np.argsort(predict(chosen), kind="stable")[: spec.top]
    mean: Vector = chosen[order].mean(axis=0)
    return mean / mean.sum(), within
