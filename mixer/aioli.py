"""Aioli: weights that follow how much training on one domain lowers the losses of all (Chen et al., arXiv 2411.05735).

    A_ij: fall of loss i after a few steps on (nearly) domain j
    A <- (A - min(A, 0)) / sum;   w ~ w exp(eta sum_i A_ij)

What holds: a pure step over a measured matrix, keyed by name; the smoothing of the measuring mixtures is solved back
out (`unmix`). What was given up: the measuring itself, which needs short trainings from one checkpoint on each domain
(runs of `ablate` do), and the released moving average, which starts from uniform each round and so forgets the weights.
"""

from __future__ import annotations

from collections.abc import Mapping

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
    if not (np.isfinite(eta) and eta > 0):
        raise UsageError(f"aioli: eta is {eta}; it must be finite and above 0")
    return named(names, softmax(log_weights(vector(now, names)) + eta * normalised(falls).sum(axis=0)))
