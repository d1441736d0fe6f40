"""Figures of fairness and compression, as pure functions.

Conventions differ between papers, so each name says which one it is. The cost of a language is its tokens per aligned
line.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt


def gini(costs: Sequence[float]) -> float:
    """Gini coefficient of costs, in any order: sum |c_i - c_j| / (2 n^2 mean); 0 for equal ones.

    The tokenization fairness of arXiv 2508.04796, eq. 13, which needs sorted costs; here they are sorted first.
    """
    ordered = np.sort(np.asarray(costs, dtype=np.float64))
    total = float(ordered.sum())
    if ordered.size == 0 or total == 0:
        return 0.0
    below = np.arange(ordered.size, 0, -1)
    return float((ordered.size + 1 - 2 * float((below * ordered).sum()) / total) / ordered.size)


def renyi_entropy(counts: npt.NDArray[np.int64], order: float) -> float:
    """Renyi entropy in bits of token frequencies; order 1 is Shannon's."""
    shares = counts[counts > 0] / counts.sum()
    if order == 1:
        return float(-(shares * np.log2(shares)).sum())
    return float(np.log2((shares**order).sum()) / (1 - order))


def renyi_efficiency(counts: npt.NDArray[np.int64], vocab_size: int, order: float = 2.5) -> float:
    """Renyi entropy of the token frequencies over log2 of the vocabulary size."""
    return renyi_entropy(counts, order) / math.log2(vocab_size)


def mean_ratio(upper: npt.NDArray[np.int64], lower: npt.NDArray[np.int64]) -> float:
    """Mean of upper / lower over the lines where lower is positive."""
    held = lower > 0
    return float((upper[held] / lower[held]).mean()) if held.any() else 0.0
