"""How far two distributions over the same bins are apart.

JSD is the Jensen-Shannon divergence in bits: 0 for equal ones, 1 for ones that share no bin. PSI is the population
stability index, sum of (p - q) ln(p / q); its usual bands (0.1 "some", 0.25 "large") are convention. Near each other
both are the same quadratic form: PSI = 8 ln 2 * JSD, which is why one noise floor serves both.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

F64 = npt.NDArray[np.float64]

PSI_OF_JSD = 8 * math.log(2)
"""PSI of two distributions that are near each other, per bit of JSD."""
_SMALLEST_SHARE = 1e-4


def shares(counts: npt.ArrayLike) -> F64:
    """Counts as parts of their sum; zeros when there are none."""
    values = np.asarray(counts, np.float64)
    total = values.sum(axis=-1, keepdims=True)
    parts: F64 = np.divide(values, total, out=np.zeros_like(values), where=total > 0)
    return parts


def jsd(p: F64, q: F64) -> F64:
    """Bits, over the last axis; from 0 to 1."""
    middle = (p + q) / 2
    bits: F64 = np.clip(_relative(p, middle) / 2 + _relative(q, middle) / 2, 0.0, 1.0)
    return bits


def _relative(p: F64, q: F64) -> F64:
    """Kullback-Leibler divergence in bits of p from q, where q > 0 wherever p is."""
    ratio = np.divide(p, q, out=np.ones_like(p), where=p > 0)
    total: F64 = np.sum(p * np.log2(ratio), axis=-1)
    return total


def psi(p: F64, q: F64) -> F64:
    """Over the last axis; shares below 1e-4 count as 1e-4, without which one empty bin makes it infinite."""
    p, q = np.maximum(p, _SMALLEST_SHARE), np.maximum(q, _SMALLEST_SHARE)
    total: F64 = np.sum((p - q) * np.log(p / q), axis=-1)
    return total
