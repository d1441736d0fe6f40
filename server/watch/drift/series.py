"""One feature of one domain over intervals: gathers units until they are enough, then compares and applies the rule.

What is compared against the interval before is held while a figure is above its bound, so that a change that lasts is
above twice; after `HELD` intervals the new state is taken as the one to compare with.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
from headrace.server.watch.drift.divergence import F64, jsd, psi
from headrace.server.watch.drift.floor import Sample, noise_floor
from headrace.server.watch.drift.rule import Rule
from headrace.server.watch.drift_figures import Against

LEAST_UNITS = 32
HELD = 10


@dataclass(frozen=True, kw_only=True, slots=True)
class Comparison:
    """One sample against one other: see DriftFigure."""

    feature: str
    against: Against
    jsd: float
    psi: float
    floor: float
    samples: int
    from_step: int
    to_step: int
    alarm: bool


@dataclass(slots=True)
class Series:
    """Mutable: what was gathered since the last interval, the sample before, and how often in a row it was above."""

    feature: str
    reference: F64 | None
    rule: Rule = field(default_factory=Rule)
    only_rising: bool = False
    least_units: int = LEAST_UNITS
    pending: list[npt.NDArray[np.int64]] = field(default_factory=list)
    pending_from: int = 0
    before: Sample | None = None
    above: dict[Against, int] = field(default_factory=dict)

    def add(self, counts: npt.NDArray[np.int64], from_step: int, to_step: int) -> list[Comparison]:
        """Takes units in, (units, bins); the figures of the interval when it is complete, else none.

        Units without anything in them count for nothing.
        """
        if not self.pending:
            self.pending_from = from_step
        self.pending.append(counts[counts.sum(axis=1) > 0])
        if sum(map(len, self.pending)) < self.least_units:
            return []
        sample = Sample(np.concatenate(self.pending))
        self.pending = []
        found = []
        if self.reference is not None:
            found.append(self._compare(sample, "reference", self.reference, to_step))
        if self.before is not None:
            found.append(self._compare(sample, "previous", self.before, to_step))
        if not 0 < self.above.get("previous", 0) < HELD:
            self.before = sample
            self.above["previous"] = 0
        return found

    def _compare(self, sample: Sample, against: Against, other: F64 | Sample, to_step: int) -> Comparison:
        shares = other.shares if isinstance(other, Sample) else other
        value = float(jsd(sample.shares, shares))
        floor = noise_floor(sample, other)
        is_above = self.rule.is_above(self.feature, value, floor)
        if self.only_rising and _mean_bin(sample.shares) <= _mean_bin(shares):
            is_above = False
        count = self.above.get(against, 0) + 1 if is_above else 0
        self.above[against] = count
        return Comparison(
            feature=self.feature,
            against=against,
            jsd=value,
            psi=float(psi(sample.shares, shares)),
            floor=floor,
            samples=sample.units,
            from_step=self.pending_from,
            to_step=to_step,
            alarm=count >= self.rule.in_a_row,
        )


def _mean_bin(shares: F64) -> float:
    return float(shares @ np.arange(len(shares)))
