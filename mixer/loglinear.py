"""The log-linear mixing law: fit measured mixtures, then solve for the best one under caps.

    loss_t(p) = c_t + exp(A_t . p)        one law a task t (Ye et al., ICLR 2025; Olmix, arXiv 2602.12237)
    minimise  sum_t v_t exp(A_t . p) + strength * KL(p | prior)   over  p <= caps, sum p = 1

Fitted by least squares from six starts (on public proxy runs this ranks held-out mixtures better than the Huber loss
of the published code); solved by mirror descent, whose proximal step is our projection onto the caps, so that one
rule of caps serves all methods. The problem is convex; with strength > 0 its answer is unique.

What holds: at least 3 (m + 1) runs for m domains, or the fit says how many are missing; the answer is compared with
the best measured mixture, because an argmin of predictions loses to it when the law is wrong. What was given up:
trees and Gaussian processes, which rank well but give no convex problem.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from headrace.mixer.caps import Bounds, CapReport, project
from headrace.mixer.simplex import Vector, Weights, log_weights, named, normalise, vector
from headrace.proto.errors import HeadraceError, UsageError

RUNS_PER_COEFFICIENT = 3
LONGEST_SOLVE = 50_000
_STARTS = (0.5, 0.7, 0.8, 0.9, 0.95, 0.99)


@dataclass(frozen=True, kw_only=True, slots=True)
class Law:
    """One task's law: floor c in nats, slopes A by domain. error: root mean square of the fit, nats."""

    floor: float
    slopes: Weights
    error: float

    def predict(self, mixture: Mapping[str, float]) -> float:
        """Predicted loss, nats a token."""
        return self.floor + float(np.exp(sum(slope * mixture.get(name, 0.0) for name, slope in self.slopes.items())))


def fit(mixtures: Sequence[Mapping[str, float]], losses: Sequence[float]) -> Law:
    """Fit the law of one task to runs: (mixture, measured loss) pairs. Needs the extra `mixer` (scipy)."""
    names = tuple(sorted({name for mixture in mixtures for name in mixture}, key=str.encode))
    rows = np.array([[mixture.get(name, 0.0) for name in names] for mixture in mixtures])
    measured = np.array(losses, dtype=np.float64)
    if len(rows) != len(measured) or len(rows) < len(names) + 1:
        raise UsageError(
            f"log-linear law: {len(measured)} losses of {len(rows)} runs cannot fit {len(names) + 1} coefficients; "
            f"{runs_needed(len(names))} runs are advised"
        )
    if not (np.isfinite(rows).all() and np.isfinite(measured).all() and (measured > 0).all()):
        raise UsageError("log-linear law: mixtures must be finite and losses finite and above 0; drop the failed runs")
    best = min((_from_start(rows, measured, part) for part in _STARTS), key=lambda found: found[1])
    return Law(floor=float(np.exp(best[0][0])), slopes=named(names, best[0][1:]), error=best[1])


def runs_needed(domains: int) -> int:
    """How many proxy runs the law should be fitted to: 3 (m + 1)."""
    return RUNS_PER_COEFFICIENT * (domains + 1)


def _from_start(rows: Vector, measured: Vector, part: float) -> tuple[Vector, float]:
    """Least squares from a floor of `part` of the least loss; log(floor) and slopes, and the root mean square error."""
    from scipy.optimize import least_squares

    floor = part * measured.min()
    slopes, *_ = np.linalg.lstsq(rows, np.log(measured - floor), rcond=None)

    def residuals(x: Vector) -> Vector:
        off: Vector = np.exp(x[0]) + np.exp(np.minimum(rows @ x[1:], 50.0)) - measured
        return off

    def jacobian(x: Vector) -> Vector:
        curve = np.exp(np.minimum(rows @ x[1:], 50.0))
        return np.column_stack([np.full(len(rows), np.exp(x[0])), curve[:, None] * rows])

    found = least_squares(residuals, np.concatenate([[np.log(floor)], slopes]), jac=jacobian, max_nfev=500)
    return found.x, float(np.sqrt(np.mean(np.square(found.fun))))


@dataclass(frozen=True, kw_only=True, slots=True)
class Solution:
    """The mixture, its objective (without floors), the steps it took, and the caps that bound it."""

    weights: Weights
    objective: float
    steps: int
    report: CapReport


def solve(
    laws: Sequence[Law],
    prior: Mapping[str, float],
    bounds: Bounds | None = None,
    *,
    task_weights: Sequence[float] | None = None,
    strength: float = 0.05,
) -> Solution:
    """The best mixture under the bounds. strength: weight of KL(p | prior); task_weights: parts, equal by default."""
    start = normalise(prior, place="prior")
    names, limits = tuple(start), bounds or Bounds()
    if not laws or strength < 0:
        raise UsageError("log-linear solve: at least one law and a strength of at least 0 are needed")
    parts = np.full(len(laws), 1.0) if task_weights is None else np.array(task_weights, dtype=np.float64)
    if len(parts) != len(laws) or (parts < 0).any() or parts.sum() <= 0:
        raise UsageError("log-linear solve: give one task weight >= 0 a law, not all 0")
    slopes = np.array([[law.slopes.get(name, 0.0) for name in names] for law in laws])
    problem = _Problem(slopes=slopes, parts=parts / parts.sum(), prior=vector(start, names), strength=strength)
    weights, steps = _descend(problem, names, limits)
    final, report = project(named(names, weights), limits)
    return Solution(weights=final, objective=problem.value(vector(final, names)), steps=steps, report=report)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Problem:
    slopes: Vector
    parts: Vector
    prior: Vector
    strength: float

    def smooth(self, p: Vector) -> float:
        return float(self.parts @ np.exp(self.slopes @ p))

    def gradient(self, p: Vector) -> Vector:
        return (self.parts * np.exp(self.slopes @ p)) @ self.slopes

    def value(self, p: Vector) -> float:
        return self.smooth(p) + self.strength * divergence(p, self.prior)


def divergence(p: Vector, q: Vector) -> float:
    """KL(p | q) in nats, 0 log 0 being 0."""
    positive = p > 0
    return float(np.sum(p[positive] * np.log(p[positive] / q[positive])))


def _descend(problem: _Problem, names: tuple[str, ...], bounds: Bounds) -> tuple[Vector, int]:
    """Mirror descent: p <- projection of p^(1-b) prior^b exp(-b rate gradient), b = 1 / (1 + rate strength).

    The rate is kept where <gradient(new) - gradient(p), new - p> <= (KL(new | p) + KL(p | new)) / rate: relative
    smoothness, in a form that rounding near the answer does not spoil.
    """
    p, rate = vector(project(named(names, problem.prior), bounds)[0], names), 1.0
    gradient = problem.gradient(p)
    for step in range(LONGEST_SOLVE):
        new = _proximal(problem, names, bounds, p, gradient, rate)
        change, moved = problem.gradient(new) - gradient, new - p
        if float(change @ moved) > _symmetric_divergence(new, p) / rate:
            rate /= 2
            continue
        if float(np.abs(moved).max()) < 1e-11:
            return new, step + 1
        p, gradient, rate = new, gradient + change, rate * 1.1
    raise HeadraceError(f"log-linear solve: no convergence in {LONGEST_SOLVE} steps; raise the strength of the prior")


def _proximal(
    problem: _Problem, names: tuple[str, ...], bounds: Bounds, p: Vector, gradient: Vector, rate: float
) -> Vector:
    blend = 1.0 / (1.0 + rate * problem.strength)
    logits = blend * (log_weights(p) + rate * problem.strength * log_weights(problem.prior) - rate * gradient)
    return vector(project(named(names, np.exp(logits - logits.max())), bounds)[0], names)


def _symmetric_divergence(new: Vector, old: Vector) -> float:
    both = (new > 0) & (old > 0)
    moved = new[both] - old[both]
    return float(np.sum(moved * np.log1p(moved / old[both])))


def reuse(ratios: Mapping[str, float], chosen: Mapping[str, float], virtual: str) -> Weights:
    """Mixture reuse: domains frozen at `ratios` were one virtual domain of weight chosen[virtual]; give it to them."""
    frozen = normalise(ratios, place="mixture reuse")
    weights = normalise(chosen, place="mixture reuse")
    if virtual not in weights:
        raise UsageError(f"mixture reuse: `{virtual}` is not among {', '.join(weights)}")
    inner = {name: ratio * weights[virtual] for name, ratio in frozen.items()}
    rest = {name: weight for name, weight in weights.items() if name != virtual}
    return normalise({**inner, **rest}, place="mixture reuse")
