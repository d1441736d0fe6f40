"""DoGE: weights that follow how well a domain's gradient serves all (or target) domains (Fan et al., arXiv 2310.15393).

    W_j = < g_j, sum_i g_i >      g_i the gradient of domain i's mean loss, its norm clipped
    alpha <- alpha exp(lr W / (mean norm * mu)) / sum;   the answer is the mean of alpha over steps

A pure state machine over the k x k matrix of inner products. What holds: domains absent from a step have no gradient
and keep their weight (the released code keeps a stale row); scores are clipped to [0, clip], so a conflicting domain
is only not rewarded, as published; `self_term` says whether i = j counts: the released code means to drop it and
never does.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from headrace.mixer.doremi import DoremiSpec, step
from headrace.mixer.simplex import Vector, Weights, named, normalise
from headrace.proto.errors import UsageError


@dataclass(frozen=True, kw_only=True, slots=True)
class DogeSpec:
    """lr: the proxy's learning rate; mu: step size of the weights is 1 / mu; clip: largest score before lr; targets:
    the domains to serve, all by default."""

    lr: float = 5e-4
    mu: float = 0.01
    clip: float = 5.0
    self_term: bool = True
    targets: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not (self.lr > 0 and self.mu > 0 and self.clip > 0):
            raise UsageError("doge: lr, mu and clip must be above 0")


@dataclass(frozen=True, kw_only=True, slots=True)
class DogeState:
    """Weights now, the sum of the weights of all steps, and how many there were."""

    weights: Weights
    total: Weights
    samples: int = 0

    @property
    def average(self) -> Weights:
        """The answer: the mean of the weights over steps."""
        return {n: total / self.samples for n, total in self.total.items()} if self.samples else dict(self.weights)

    def to_json(self) -> dict[str, Any]:
        """A JSON object; `DogeState(**document)` reads it."""
        return asdict(self)


def start(initial: Mapping[str, float]) -> DogeState:
    """The state before the first step."""
    weights = normalise(initial, place="doge")
    return DogeState(weights=weights, total=dict.fromkeys(weights, 0.0))


def advance(state: DogeState, names: tuple[str, ...], gram: Vector, spec: DogeSpec) -> DogeState:
    """The state after one step in which `names` had gradients with inner products `gram` (k, k)."""
    if not np.isfinite(gram).all():
        return state  # a step whose gradients are not finite teaches nothing; the trainer stops on it by itself
    weights, _, _ = step(state.weights, named(names, scores(names, gram, spec)), DoremiSpec(eta=1.0, smoothing=0.0))
    total = {name: value + weights[name] for name, value in state.total.items()}
    return replace(state, weights=weights, total=total, samples=state.samples + 1)


def scores(names: tuple[str, ...], gram: Vector, spec: DogeSpec) -> Vector:
    """The exponent of each domain's weight: lr W / (mean norm * mu), W clipped."""
    serves = gram.copy()
    if not spec.self_term:
        np.fill_diagonal(serves, 0.0)
    if spec.targets:
        serves = serves[:, [names.index(name) for name in spec.targets if name in names]]
    size = float(np.sqrt(np.diag(gram)).mean()) + 1e-6
    result: Vector = spec.lr * np.clip(serves.sum(axis=1) / size, 0.0, spec.clip) / spec.mu
    return result
