"""When a figure becomes an alarm: clearly above its floor and above what matters at all, twice in a row.

An interval is *above* when its JSD exceeds max(threshold, 2 * floor); the alarm is raised by the second one in a row,
and goes with the first that is not. The floor makes it mean something at every sample size, the threshold keeps quiet
what is real and too small to matter, the second interval takes out single odd samples.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

FLOOR_FACTOR = 2.0
IN_A_ROW = 2
THRESHOLDS: Mapping[str, float] = {
    "document_length": 0.02,
    "token_rank": 0.001,
    "vocabulary": 0.001,
    "bytes_per_token": 0.001,
    "byte_fallback": 0.001,
    "script": 0.001,
    "near_duplicate": 0.02,
    "loss": 0.05,
}
"""Bits of JSD below which a difference never raises an alarm, by feature."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Rule:
    """The three numbers of the rule; thresholds by feature."""

    factor: float = FLOOR_FACTOR
    in_a_row: int = IN_A_ROW
    thresholds: Mapping[str, float] = field(default_factory=lambda: THRESHOLDS)

    def is_above(self, feature: str, jsd: float, floor: float) -> bool:
        return jsd > max(self.thresholds[feature], self.factor * floor)
