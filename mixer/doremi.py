"""DoReMi: domain weights that chase the excess loss of a proxy over a reference (Xie et al. 2023, arXiv 2305.10429).

    lambda_i = mean over the domain's tokens of max(loss_proxy - loss_reference, 0)       clamped by token, then
    averaged alpha'   = alpha exp(eta lambda) / sum;   alpha <- (1 - c) alpha' + c / k;   the answer is the mean of
    alpha over steps

A pure state machine: `advance(state, report)` needs only sums by domain, so its result depends neither on ranks nor on
token counts. How alpha acts is the trainer's: `paper` draws every batch uniformly and weighs the loss with alpha,
`sampled` draws the batch from alpha (the usual textbook toy, another algorithm).

What holds: a domain absent from a report keeps its weight, the others share what is left (`skip`), or it is scored
with the last value that was really observed (`carry`, the released code, less its ln(vocab) start that makes weights
one-hot). Smoothing is a drift to uniform, not just a floor; how much of the movement it made is counted in the state.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

import numpy as np
from headrace.mixer.reports import Report, screen
from headrace.mixer.simplex import Weights, log_weights, named, normalise, softmax, vector
from headrace.proto.errors import UsageError


@dataclass(frozen=True, kw_only=True, slots=True)
class DoremiSpec:
    """eta: step size; smoothing: c, the part of uniform mixed in each step; absent: see the module; count_initial: the
    initial weights are the first sample of the average, as in the released code."""

    eta: float = 1.0
    smoothing: float = 1e-3
    absent: Literal["skip", "carry"] = "skip"
    count_initial: bool = False

    def __post_init__(self) -> None:
        if not (math.isfinite(self.eta) and self.eta > 0):
            raise UsageError(f"doremi: eta is {self.eta}; it must be finite and above 0")
        if not 0 <= self.smoothing < 1:
            raise UsageError(f"doremi: smoothing is {self.smoothing}; it must be at least 0 and below 1")
        if self.absent not in ("skip", "carry"):
            raise UsageError(f"doremi: absent is `{self.absent}`; choose `skip` or `carry`")

    @property
    def half_life(self) -> float:
        """Steps in which smoothing alone halves the distance to uniform."""
        return math.log(2) / -math.log1p(-self.smoothing) if self.smoothing else math.inf


@dataclass(frozen=True, kw_only=True, slots=True)
class DoremiState:
    """Where the machine stands. total: sum of the samples of the average; pulled, drifted: mass of the weights moved so
    far by excess losses and by smoothing; refused: values left out, by domain."""

    weights: Weights
    total: Weights
    samples: int
    step: int = -1
    scores: Weights = field(default_factory=dict)
    pulled: float = 0.0
    drifted: float = 0.0
    refused: Mapping[str, int] = field(default_factory=dict)

    @property
    def average(self) -> Weights:
        """The answer: the mean of the weights so far (those now, before any step)."""
        if self.samples == 0:
            return dict(self.weights)
        return {name: total / self.samples for name, total in self.total.items()}

    @property
    def drift_share(self) -> float:
        """Part of all movement of the weights that smoothing made: near 1, the average is uniform by construction."""
        moved = self.pulled + self.drifted
        return self.drifted / moved if moved else 0.0

    def to_json(self) -> dict[str, Any]:
        """A JSON object; `DoremiState(**document)` reads it."""
        return asdict(self)


def start(initial: Mapping[str, float], spec: DoremiSpec) -> DoremiState:
    """The state before the first step."""
    weights = normalise(initial, place="doremi")
    total = dict(weights) if spec.count_initial else dict.fromkeys(weights, 0.0)
    return DoremiState(weights=weights, total=total, samples=1 if spec.count_initial else 0)


def advance(state: DoremiState, report: Report, spec: DoremiSpec) -> DoremiState:
    """The state after one more report. Values that cannot be used are left out and counted."""
    screened = screen(report, state.weights, after=state.step)
    refused = dict(state.refused)
    for name in screened.refused:
        refused[name] = refused.get(name, 0) + 1
    measured = {name: value.mean_excess for name, value in screened.report.domains.items()}
    scores = {name: score for name, score in measured.items() if score is not None}
    if not scores:
        return replace(state, refused=refused)
    seen = {**state.scores, **scores}
    used = {name: seen[name] for name in state.weights if name in (seen if spec.absent == "carry" else scores)}
    weights, pulled, drifted = step(state.weights, used, spec)
    return replace(
        state,
        weights=weights,
        total={name: value + weights[name] for name, value in state.total.items()},
        samples=state.samples + 1,
        step=report.step,
        scores=seen,
        pulled=state.pulled + pulled,
        drifted=state.drifted + drifted,
        refused=refused,
    )


def step(weights: Weights, scores: Mapping[str, float], spec: DoremiSpec) -> tuple[Weights, float, float]:
    """One exponentiated-gradient step on the domains that have a score; the mass that scores and smoothing moved."""
    names = tuple(name for name in weights if name in scores)
    old = vector(weights, names)
    mass = float(old.sum())
    if mass == 0:
        return dict(weights), 0.0, 0.0
    pulled = mass * softmax(log_weights(old) + spec.eta * vector(scores, names))
    smoothed = (1 - spec.smoothing) * pulled + spec.smoothing * mass / len(names)
    moved = float(np.abs(pulled - old).sum()) / 2, float(np.abs(smoothed - pulled).sum()) / 2
    return {**weights, **named(names, smoothed)}, *moved


def loss_multipliers(weights: Mapping[str, float], sampled: Mapping[str, float]) -> Weights:
    """alpha / q: what to weigh a domain's loss with when batches are drawn at q instead of alpha."""
    objective, drawn = normalise(weights, place="loss multipliers"), normalise(sampled, place="loss multipliers")
    never = [name for name, weight in objective.items() if weight > 0 and drawn.get(name, 0.0) == 0]
    if never:
        raise UsageError(f"loss multipliers: `{never[0]}` has weight {objective[never[0]]:.6g} but is never drawn")
    return {name: objective[name] / drawn[name] if objective[name] else 0.0 for name in objective}
