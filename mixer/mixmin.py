"""MixMin: the mixture of sources under which the mixture of their models predicts the target best (Thudi et al., 2025).

    minimise  -mean_x log sum_i w_i p_i(x)     p_i: a proxy trained on source i alone, x: examples of the target

Convex in w; solved by exponentiated gradient, w ~ w exp(eta mean_x(p_i(x) / sum_j w_j p_j(x))), all in log space.
What holds: the published step of 1 and at most 100 steps, fewer when the gradient is even over all that has weight.
What was given up: nothing of the method, but know its weak point: whole sequences have such different probabilities
that the sum is its largest term; give log-probabilities a token (as published), not a sequence.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from headrace.mixer.simplex import Vector, Weights, log_weights, named, names_of, softmax
from headrace.proto.errors import UsageError


@dataclass(frozen=True, kw_only=True, slots=True)
class MixminResult:
    """weights; loss: of the mixture of models, nats; steps taken; gap: how uneven the gradient still is."""

    weights: Weights
    loss: float
    steps: int
    gap: float


def mixmin(
    log_probabilities: Mapping[str, Vector], *, eta: float = 1.0, steps: int = 100, tolerance: float = 1e-9
) -> MixminResult:
    """Weights from (n,) log-probabilities a source of the same n target examples. Raises UsageError."""
    names = names_of(log_probabilities, place="mixmin")
    rows = [np.asarray(log_probabilities[name], dtype=np.float64) for name in names]
    if rows[0].ndim != 1 or rows[0].size == 0 or any(row.shape != rows[0].shape for row in rows):
        raise UsageError("mixmin: every source needs one log-probability for each of the same target examples")
    table = np.stack(rows)
    if np.isnan(table).any() or (table > 0).any() or np.isneginf(table).all(axis=0).any():
        raise UsageError("mixmin: log-probabilities must not be above 0 or NaN, and some source must know each example")
    if not (eta > 0 and steps >= 1):
        raise UsageError(f"mixmin: eta is {eta} and steps {steps}; they must be above 0")
    weights, taken, gap = np.full(len(names), 1 / len(names)), 0, np.inf
    while taken < steps and gap > tolerance:
        gain = _gain(table, weights)
        gap = float(np.abs(gain - 1).max(where=weights > 0, initial=0.0))
        weights = softmax(log_weights(weights) + eta * gain)
        taken += 1
    return MixminResult(weights=named(names, weights), loss=loss(table, weights), steps=taken, gap=gap)


def loss(table: Vector, weights: Vector) -> float:
    """-mean log sum_i w_i p_i(x) of (k, n) log-probabilities."""
    return -float(_mixed(table, weights).mean())


def _mixed(table: Vector, weights: Vector) -> Vector:
    terms = table + log_weights(weights)[:, None]
    largest = terms.max(axis=0)
    result: Vector = largest + np.log(np.exp(terms - largest).sum(axis=0))
    return result


def _gain(table: Vector, weights: Vector) -> Vector:
    """The negative gradient: mean p_i(x) / sum_j w_j p_j(x); 1 for every source of weight > 0 at the optimum."""
    result: Vector = np.exp(table - _mixed(table, weights)).mean(axis=1)
    return result
