r"""The noise floor: the JSD that two samples of one distribution show by chance.

The units that are drawn independently are windows (or documents, or steps), not tokens: tokens of one document are
alike. So the variance of each bin's share is estimated between units. With p the share vector of R units with counts
c_r of n_r things each, N = sum n_r, residuals e_r = c_r - n_r p,

    V = R / (R - 1) * sum_r e_r e_r^T / N^2         (the ratio estimator of the covariance of p)

with each variance at least the multinomial p(1-p)/N. For shares near each other

    JSD = sum_k (p_k - q_k)^2 / (8 ln 2 m_k),       m = (p + q) / 2,

a quadratic form of a nearly normal vector: its mean is tr(D V), D = diag(1 / (8 ln 2 m)), and its law is close to
a * chi^2 with nu degrees of freedom that have the same mean and variance (Satterthwaite): nu = tr(DV)^2 / tr((DV)^2).
The floor is the 0.99 quantile of that, by Wilson and Hilferty's formula. Two samples add their V; a reference that is
the whole corpus has none. A bin that the sample
has hardly seen (less than a quarter of the reference's share) has no variance to be estimated from: a language of one
window in a hundred is often not met at all. Its part of the floor is at least what it would be if whole units held it,
1 / (8 ln 2 R), or all that it can add by being absent, q / 2, whichever is less.

Given up: the exact law in the far tail, for samples of a few dozen units; the rule doubles the floor and asks for two
intervals, and the tests count what is left.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
from headrace.server.watch.drift.divergence import F64, shares

FLOOR_QUANTILE = 0.99
_NORMAL_QUANTILE = 2.3263478740408408  # of 0.99
_LEAST_SHARE = 1e-12


@dataclass(frozen=True)
class Sample:
    """Counts by bin of units that were drawn independently, (units, bins)."""

    counts: npt.NDArray[np.int64]

    def __post_init__(self) -> None:
        if self.counts.ndim != 2:
            raise ValueError(f"counts of a sample are (units, bins), not {self.counts.shape}")

    @property
    def units(self) -> int:
        return int(self.counts.shape[0])

    @cached_property
    def total(self) -> int:
        """Things counted in all bins of all units."""
        return int(self.counts.sum())

    @cached_property
    def shares(self) -> F64:
        return shares(self.counts.sum(axis=0))

    @cached_property
    def residuals(self) -> F64:
        """The rows of F with V = F^T F, without the multinomial least."""
        if self.units < 2 or not self.total:
            return np.zeros_like(self.counts, dtype=np.float64)
        sizes = self.counts.sum(axis=1, keepdims=True)
        scale = math.sqrt(self.units / (self.units - 1)) / self.total
        return np.asarray((self.counts - sizes * self.shares) * scale)

    @cached_property
    def missing_variance(self) -> F64:
        """What the variance between units lacks of the multinomial one, by bin."""
        least = self.shares * (1 - self.shares) / max(1, self.total)
        missing: F64 = np.maximum(0.0, least - np.square(self.residuals).sum(axis=0))
        return missing


def noise_floor(sample: Sample, against: F64 | Sample) -> float:
    """JSD in bits that `sample` stays below with probability 0.99 when nothing has changed.

    `against` is what it is compared with: exact shares, or another sample.
    """
    samples = [sample, against] if isinstance(against, Sample) else [sample]
    other = against.shares if isinstance(against, Sample) else against
    middle = np.maximum((sample.shares + other) / 2, _LEAST_SHARE)
    weight = 1 / (8 * math.log(2) * middle)
    factor = np.concatenate([each.residuals for each in samples]) * np.sqrt(weight)
    rest = weight * np.sum([each.missing_variance for each in samples], axis=0)
    rest = np.where(sample.shares + other > 0, rest, 0.0)
    if not isinstance(against, Sample):
        unseen = np.minimum(1 / (8 * math.log(2) * sample.units), other / 2)
        rest = np.where(sample.shares < other / 4, np.maximum(rest, unseen), rest)
    mean = float(np.square(factor).sum() + rest.sum())
    gram = factor @ factor.T if len(factor) <= factor.shape[1] else factor.T @ factor
    spread = float(np.square(gram).sum() + np.square(rest).sum())
    if mean <= 0 or spread <= 0:
        return 0.0
    freedom = mean * mean / spread
    return mean / freedom * chi_square_quantile(freedom)


def chi_square_quantile(freedom: float) -> float:
    """The 0.99 quantile of chi^2, by Wilson and Hilferty; within 2 % from one degree of freedom on."""
    part = 2 / (9 * freedom)
    return freedom * float(max(0.0, 1 - part + _NORMAL_QUANTILE * math.sqrt(part)) ** 3)
