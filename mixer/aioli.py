"""Aioli: weights that follow how much training on one domain lowers the losses of all (Chen et al., arXiv 2411.05735).

    A_ij: fall of held-out loss i over a few steps on (nearly) domain j, summed over rounds
    A <- (A - min(A, 0)) / sum;   w <- w exp(eta sum_i A_ij) / sum;   then some steps on w, and again

A pure state machine: `due` says before which steps held-out losses are wanted, `observe` takes them, `mixture` says
what a step trains on. What holds: measuring is training, as published, no step is thrown away; the smoothing of the
measuring mixtures is solved back out (`unmix`); every second round goes through the domains backwards, so that losses
that fall ever slower do not favour who is measured first. What was given up: the released moving average, which starts
from uniform each round and so forgets the weights.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np
from headrace.mixer.simplex import Vector, Weights, log_weights, named, names_of, normalise, softmax, vector
from headrace.proto.errors import UsageError

Matrix = Mapping[str, Mapping[str, float]]


def table_of(falls: Matrix) -> tuple[tuple[str, ...], Vector]:
    """Names and the (k, k) matrix: falls[i][j] is the fall of loss i after steps on j. Raises UsageError."""
    names = names_of(falls, place="aioli")
    odd = [name for name in names if not isinstance(falls[name], Mapping) or set(falls[name]) != set(names)]
    if odd:
        raise UsageError(f"aioli: the falls of `{odd[0]}` do not name exactly {', '.join(names)}")
    try:
        table = np.array([[falls[i][j] for j in names] for i in names], dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise UsageError(f"aioli: a fall of loss is no number: {error}") from error
    if not np.isfinite(table).all():
        raise UsageError("aioli: a fall of loss is not finite; leave its round out")
    return names, table


def unmix(falls: Matrix, concentration: float) -> dict[str, Weights]:
    """Falls of pure domains from those of mixtures with `concentration` on one and the rest spread over the others."""
    names, table = table_of(falls)
    if not 1 / len(names) < concentration <= 1:
        raise UsageError(f"aioli: concentration is {concentration}; it must be above 1 / {len(names)} and at most 1")
    spread = (1 - concentration) / (len(names) - 1) if len(names) > 1 else 0.0
    mixtures = np.full((len(names), len(names)), spread)
    np.fill_diagonal(mixtures, concentration)
    pure = np.linalg.solve(mixtures.T, table.T).T
    return {name: named(names, row) for name, row in zip(names, pure, strict=True)}


def normalised(falls: Matrix) -> Vector:
    """The matrix shifted so that nothing is negative, as parts of its sum; all zeros where nothing differs."""
    _, table = table_of(falls)
    shifted = table - min(0.0, float(table.min()))
    total = float(shifted.sum())
    result: Vector = shifted / total if total > 0 else shifted
    return result


def advance(weights: Mapping[str, float], falls: Matrix, *, eta: float = 0.2) -> Weights:
    """The weights after one measured matrix."""
    names, _ = table_of(falls)
    now = normalise(weights, place="aioli")
    if set(now) != set(names):
        raise UsageError(f"aioli: the weights name {', '.join(now)}, the falls {', '.join(names)}")
    AioliSpec(eta=eta)
    return named(names, softmax(log_weights(vector(now, names)) + eta * normalised(falls).sum(axis=0)))


@dataclass(frozen=True, kw_only=True, slots=True)
class AioliSpec:
    """eta: step size of the weights; rounds: times that each domain is measured before they move; steps: of one
    measuring; every: steps on the weights after each move; concentration: weight of the measured domain meanwhile."""

    eta: float = 0.2
    rounds: int = 4
    steps: int = 4
    every: int = 100
    concentration: float = 0.75

    def __post_init__(self) -> None:
        if min(self.rounds, self.steps, self.every) < 1:
            raise UsageError("aioli: rounds, steps and every must be at least 1")
        if not (np.isfinite(self.eta) and self.eta > 0):
            raise UsageError(f"aioli: eta is {self.eta}; it must be finite and above 0")

    def measuring(self, domains: int) -> int:
        """Steps that are spent before the weights move."""
        return self.rounds * self.steps * domains

    def cycle(self, domains: int) -> int:
        """Steps from one measuring to the next."""
        return self.measuring(domains) + self.every


@dataclass(frozen=True, kw_only=True, slots=True)
class AioliState:
    """weights now; total and samples: sum and number of the weights found; losses: held-out ones before the measuring
    in progress; falls: [i][j], summed over this cycle's measurings; found: the falls that last moved the weights."""

    weights: Weights
    total: Weights
    samples: int = 0
    losses: Weights = field(default_factory=dict)
    falls: Mapping[str, Weights] = field(default_factory=dict)
    found: Mapping[str, Weights] = field(default_factory=dict)

    @property
    def average(self) -> Weights:
        """The answer: the mean of the weights that were found."""
        return {n: total / self.samples for n, total in self.total.items()} if self.samples else dict(self.weights)

    def to_json(self) -> dict[str, Any]:
        """A JSON object; `AioliState(**document)` reads it."""
        return asdict(self)


def start(initial: Mapping[str, float], spec: AioliSpec) -> AioliState:
    """The state before the first step. Raises UsageError when `spec` cannot tell so many domains apart."""
    weights = normalise(initial, place="aioli")
    unmix({i: dict.fromkeys(weights, 0.0) for i in weights}, spec.concentration)
    return AioliState(weights=weights, total=dict.fromkeys(weights, 0.0))


def measured(names: tuple[str, ...], spec: AioliSpec, step: int) -> str | None:
    """The domain that a step measures; None when it trains on the weights."""
    place = step % spec.cycle(len(names))
    if place >= spec.measuring(len(names)):
        return None
    turn, number = divmod(place // spec.steps, len(names))
    return names[number if turn % 2 == 0 else -1 - number]


def due(names: tuple[str, ...], spec: AioliSpec, step: int) -> bool:
    """Whether held-out losses are wanted before a step: where a measuring begins or ends."""
    place = step % spec.cycle(len(names))
    return place <= spec.measuring(len(names)) and place % spec.steps == 0


def mixture(state: AioliState, spec: AioliSpec, step: int) -> Weights:
    """What a step trains on: nearly one domain, or the weights."""
    chosen = measured(tuple(state.weights), spec, step)
    if chosen is None:
        return state.weights
    rest = (1 - spec.concentration) / max(1, len(state.weights) - 1)
    return {name: spec.concentration if name == chosen else rest for name in state.weights}


def observe(state: AioliState, losses: Mapping[str, float], spec: AioliSpec, step: int) -> AioliState:
    """The state after the held-out losses that are `due` before a step. Raises UsageError for a domain without one."""
    names = tuple(state.weights)
    silent = [name for name in names if not np.isfinite(losses.get(name, np.nan))]
    if silent:
        raise UsageError(f"aioli: `{silent[0]}` has no finite held-out loss; hold out windows of every domain")
    now = {name: float(losses[name]) for name in names}
    place = step % spec.cycle(len(names))
    if place == 0:
        return replace(state, losses=now, falls={i: dict.fromkeys(names, 0.0) for i in names})
    chosen = measured(names, spec, step - 1)
    assert chosen is not None
    falls = {i: row | {chosen: row[chosen] + state.losses[i] - now[i]} for i, row in state.falls.items()}
    if place < spec.measuring(len(names)):
        return replace(state, losses=now, falls=falls)
    weights = advance(state.weights, unmix(falls, spec.concentration), eta=spec.eta)
    total = {name: value + weights[name] for name, value in state.total.items()}
    return replace(state, weights=weights, total=total, samples=state.samples + 1, losses={}, falls={}, found=falls)
