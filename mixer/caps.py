"""The pipeline after every method: raw weights made to keep epoch caps, a floor, a largest share and a largest step.

The answer is the KL projection: of all vectors within the bounds that sum to 1, the one nearest to the raw weights in
KL(w | raw). It has the form clip(s * raw, low, high) for one scale s, which is what the hand rule "fix what is over
its cap, give the rest to the others in proportion, repeat" finds too.

What holds: sum 1, every bound kept, the report names each domain that a bound moved; bounds that cannot be met are an
error that names the shortfall. A domain whose raw weight is 0 gets its floor and nothing beyond: no method asked
for it. Where a cap and the largest step contradict, the step wins and the report says that the domain is still
above its cap.
"""

from __future__ import annotations

import bisect
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from headrace.mixer.simplex import Vector, Weights, named, normalise, numbers, vector
from headrace.proto.errors import UsageError

# A float sum of k terms near 1 is off by about k * 1e-16: what is within this of 1 is 1.
TOLERANCE = 1e-9


@dataclass(frozen=True, kw_only=True, slots=True)
class Bounds:
    """What a mixture must keep; everything optional.

    caps: largest weight by domain (from `epoch_caps`, or chosen). floor: smallest weight of every domain but those in
    `excluded`, which stay at 0. largest_share: of any domain. largest_change: of any weight against `previous`.
    """

    caps: Mapping[str, float] = field(default_factory=dict)
    floor: float = 0.0
    largest_share: float = 1.0
    largest_change: float | None = None
    previous: Mapping[str, float] | None = None
    excluded: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        numbers_or_empty(self.caps)
        if not 0 <= self.floor <= 1:
            raise UsageError(f"bounds: floor is {self.floor}; it must be between 0 and 1")
        if not 0 < self.largest_share <= 1:
            raise UsageError(f"bounds: largest_share is {self.largest_share}; it must be above 0 and at most 1")
        if self.largest_change is not None and not 0 < self.largest_change <= 1:
            raise UsageError(f"bounds: largest_change is {self.largest_change}; it must be above 0 and at most 1")


@dataclass(frozen=True, kw_only=True, slots=True)
class Bound:
    """One bound that moved a domain. kind: `cap`, `share`, `floor` or `step`; limit: the weight it allows."""

    domain: str
    kind: str
    limit: float
    raw: float
    weight: float


@dataclass(frozen=True, kw_only=True, slots=True)
class CapReport:
    """What the projection did. moved: half the sum of |w - raw|, the share of the mixture that changed hands."""

    bound: tuple[Bound, ...] = ()
    moved: float = 0.0
    notes: tuple[str, ...] = ()


def numbers_or_empty(values: Mapping[str, float]) -> Weights:
    """Checked caps; no caps at all is fine."""
    return numbers(values, place="caps", what="cap") if values else {}


def epoch_caps(
    tokens: Mapping[str, float],
    budget: float,
    epochs: float | Mapping[str, float],
    served: Mapping[str, float] | None = None,
) -> Weights:
    """Largest weight by domain so that none exceeds its epochs.

    tokens: real tokens a domain holds; budget: tokens still to be trained; epochs: over the whole run, one number or by
    domain; served: tokens of the domain already trained. A domain past its cap gets 0.
    """
    sizes = numbers(tokens, place="epoch caps", what="token count")
    if not (np.isfinite(budget) and budget > 0):
        raise UsageError(f"epoch caps: the budget is {budget} tokens; it must be finite and above 0")
    limits = dict.fromkeys(sizes, epochs) if isinstance(epochs, int | float) else dict(epochs)
    checked = numbers(limits, place="epoch caps", what="number of epochs")
    unknown = sorted(set(checked) - set(sizes))
    if unknown:
        raise UsageError(f"epoch caps: no token count for `{unknown[0]}`; the counts name {', '.join(sizes)}")
    used = served or {}
    return {name: max(0.0, cap * sizes[name] - used.get(name, 0.0)) / budget for name, cap in checked.items()}


def project(raw: Mapping[str, float], bounds: Bounds) -> tuple[Weights, CapReport]:
    """The weights nearest to `raw` (any parts >= 0) within the bounds, and what bound; UsageError if there are none."""
    start = normalise(raw, place="raw weights")
    names = tuple(start)
    _check_names(names, bounds)
    low, high, kinds, notes = _limits(names, bounds)
    wanted = vector(start, names)
    _check_feasible(names, wanted, low, high)
    weights = _clip_to_one(wanted, low, high)
    return named(names, weights), _report(names, wanted, weights, (low, high, kinds), notes)


def _check_names(names: tuple[str, ...], bounds: Bounds) -> None:
    known = set(names)
    unknown = sorted((set(bounds.caps) | set(bounds.excluded)) - known)
    if unknown:
        raise UsageError(f"bounds: `{unknown[0]}` is not in the mixture, which names {', '.join(names)}")
    if bounds.largest_change is not None and set(bounds.previous or {}) != known:
        raise UsageError("bounds: a largest change needs the previous weights of exactly the same domains")


def _limits(names: tuple[str, ...], bounds: Bounds) -> tuple[Vector, Vector, list[list[str]], tuple[str, ...]]:
    """Lower and upper limits, which rule each comes from (`[low, high]` a domain), and contradictions between them."""
    low, high, kinds, notes = np.zeros(len(names)), np.ones(len(names)), [], []
    previous = normalise(bounds.previous, place="previous weights") if bounds.previous else {}
    for i, name in enumerate(names):
        cap = bounds.caps.get(name, 1.0)
        high[i], upper = (cap, "cap") if cap < bounds.largest_share else (bounds.largest_share, "share")
        if name in bounds.excluded:
            high[i], upper = 0.0, "excluded"
        low[i], lower = min(bounds.floor, high[i]), "floor"
        if bounds.largest_change is not None:
            step_low, step_high = previous[name] - bounds.largest_change, previous[name] + bounds.largest_change
            if step_low > high[i]:
                notes.append(
                    f"`{name}` is still above its {upper} of {high[i]:.6f}: the largest step allows {step_low:.6f}"
                )
                high[i], upper = step_low, "step"
            if step_high < low[i]:
                notes.append(
                    f"`{name}` is still below its floor of {low[i]:.6f}: the largest step allows {step_high:.6f}"
                )
                low[i], lower = step_high, "step"
            if step_high < high[i]:
                high[i], upper = step_high, "step"
            if step_low > low[i]:
                low[i], lower = step_low, "step"
        kinds.append([lower, upper])
    return low, high, kinds, tuple(notes)


def _check_feasible(names: tuple[str, ...], wanted: Vector, low: Vector, high: Vector) -> None:
    room = np.where(wanted > 0, high, low)
    if room.sum() < 1 - TOLERANCE:
        tight = [f"`{name}` {limit:.6g}" for name, limit in zip(names, room, strict=True) if limit < 1]
        raise UsageError(
            f"bounds: the largest weights sum to {room.sum():.6g}, a shortfall of {1 - room.sum():.6g} that no domain "
            f"may take ({', '.join(tight)}); allow more epochs, train fewer tokens, or add data"
        )
    if low.sum() > 1 + TOLERANCE:
        raise UsageError(
            f"bounds: the smallest weights sum to {low.sum():.6g}, {low.sum() - 1:.6g} above 1; lower the floor"
        )


def _clip_to_one(wanted: Vector, low: Vector, high: Vector) -> Vector:
    """clip(s * wanted, low, high) with the one s for which it sums to 1.

    The sum is monotone and piecewise linear in s with turns at low / wanted and high / wanted; the piece that holds 1
    says who is at a limit, and the others share the rest in proportion.
    """
    positive = wanted > 0
    turns = np.unique(np.concatenate([low[positive] / wanted[positive], high[positive] / wanted[positive]]))
    after = bisect.bisect_left(turns.tolist(), 1.0, key=lambda scale: float(np.clip(scale * wanted, low, high).sum()))
    if after == 0 or after == len(turns):  # every domain at its lower, or at its upper limit
        result: Vector = np.clip(turns[min(after, len(turns) - 1)] * wanted, low, high)
        return result
    inside = np.sqrt(turns[after - 1]) * np.sqrt(turns[after]) if turns[after - 1] > 0 else turns[after] / 2
    result = np.clip(inside * wanted, low, high)
    moving = (result > low) & (result < high)
    if moving.any():
        result[moving] = wanted[moving] * ((1.0 - result[~moving].sum()) / wanted[moving].sum())
    return result


def _report(
    names: tuple[str, ...],
    wanted: Vector,
    weights: Vector,
    limits: tuple[Vector, Vector, list[list[str]]],
    notes: tuple[str, ...],
) -> CapReport:
    low, high, kinds = limits
    bound = []
    for i, name in enumerate(names):
        at_high = high[i] < 1 and weights[i] >= high[i] - 1e-15
        at_low = low[i] > 0 and weights[i] <= low[i] + 1e-15
        if at_high or at_low:
            kind, limit = (kinds[i][1], high[i]) if at_high else (kinds[i][0], low[i])
            bound.append(
                Bound(domain=name, kind=kind, limit=float(limit), raw=float(wanted[i]), weight=float(weights[i]))
            )
    return CapReport(bound=tuple(bound), moved=float(np.abs(weights - wanted).sum()) / 2, notes=notes)
