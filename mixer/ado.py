"""ADO: weights that follow how fast each domain's loss still falls by its own scaling law (Jiang et al., arXiv
2410.11820).

    L_i(n) = E_i + B_i n^-a_i                         n: tokens of all domains together, the same for each
    rho_i  ~ prior_i h_i^s max(a_i, 0.05) (L_i(n) - E_i) / n,   h_i: what the domain was given lately
    pi     = (1 - c) mean(rho) + c rho;   mean(rho) over updates, the prior being the first of them

What holds: noise has no law to fall by and loses weight, however high its loss is; a pure state machine over reports,
so that a journal replays; the history is bounded (when it is full every second point goes). The fit is a grid over the
exponent with the best E, B >= 0 for each: NumPy alone, the same on every machine up to rounding.
What was given up: the released fit (512 starts of L-BFGS, penalties for bounds, smoothed losses), and its clip of rho
at 0.01, which more than 100 domains cannot keep; the pipeline has a floor.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from headrace.mixer.simplex import Vector, Weights, normalise
from headrace.proto.errors import UsageError

SMALLEST_EXPONENT = 0.05  # below it the released code takes it for this much
_EXPONENTS = np.linspace(0.01, 0.8, 80)
_LONGEST = 256


@dataclass(frozen=True, kw_only=True, slots=True)
class AdoLaw:
    """One domain's fitted law: floor E and scale B (nats a token), exponent a; error: root mean square of the fit."""

    floor: float
    scale: float
    exponent: float
    error: float = 0.0

    def predict(self, n: float) -> float:
        """The loss after n tokens."""
        return self.floor + self.scale * math.exp(-self.exponent * math.log(n))

    def slope(self, n: float) -> float:
        """How much one more token lowers the loss: max(a, 0.05) (L(n) - E) / n."""
        return max(self.exponent, SMALLEST_EXPONENT) * (self.predict(n) - self.floor) / n


def fit(points: Sequence[Sequence[float]]) -> AdoLaw:
    """The law nearest to (n, loss) points by least squares. Raises UsageError for fewer than three, or bad ones."""
    n, losses = np.array(points, dtype=np.float64).reshape(-1, 2).T
    if len(n) < 3 or not (np.isfinite(losses).all() and np.isfinite(n).all() and (n > 0).all()):
        raise UsageError(
            f"ado: {len(n)} points cannot fit a law; at least 3 finite ones with tokens above 0 are needed"
        )
    unit = n / n[-1]  # B in units of the last point, so that no power overflows
    fits = [_with_exponent(unit, losses, exponent) for exponent in _EXPONENTS.tolist()]
    best = min(fits, key=lambda law: law.error)
    return AdoLaw(
        floor=best.floor, scale=best.scale * float(n[-1]) ** best.exponent, exponent=best.exponent, error=best.error
    )


def _with_exponent(unit: Vector, losses: Vector, exponent: float) -> AdoLaw:
    """The best E >= 0 and B >= 0 at one exponent: a line through (n^-a, loss)."""
    x = unit**-exponent
    spread = x - x.mean()
    scale = max(0.0, float(spread @ losses) / max(float(spread @ spread), 1e-300))
    floor = float(losses.mean() - scale * x.mean())
    if floor < 0:
        floor, scale = 0.0, max(0.0, float(x @ losses) / float(x @ x))
    off = floor + scale * x - losses
    return AdoLaw(floor=floor, scale=scale, exponent=exponent, error=float(np.sqrt(np.mean(off * off))))


def preference(
    prior: Mapping[str, float], given: Mapping[str, float], laws: Mapping[str, AdoLaw], n: float, *, credit: float = 0.5
) -> Weights:
    """rho: what the laws ask for after n tokens. Where no loss falls any more it is the prior."""
    raw = {name: prior[name] * given[name] ** credit * laws[name].slope(n) for name in laws}
    return normalise(raw if max(raw.values()) > 0 else prior, place="ado")


def blend(
    mean: Mapping[str, float], rho: Mapping[str, float], updates: int, *, fresh: float
) -> tuple[Weights, Weights]:
    """(pi, new mean): pi = (1 - c) mean + c rho; then rho enters the mean as its sample number updates + 1."""
    chosen = {name: (1 - fresh) * mean[name] + fresh * rho[name] for name in rho}
    share = 1.0 / (updates + 1)
    return chosen, {name: mean[name] * (1 - share) + rho[name] * share for name in rho}


def remember(history: Sequence[Sequence[float]], n: float, loss: float) -> list[list[float]]:
    """The history with one more point; when it is full, every second old point is dropped."""
    kept = [list(point) for point in history]
    if len(kept) >= _LONGEST:
        kept = kept[len(kept) % 2 :: 2]
    return [*kept, [n, loss]] if math.isfinite(loss) else kept
