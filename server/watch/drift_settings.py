"""How much of a run the drift watch looks at: the [drift] table of SERVER.toml."""

from __future__ import annotations

from dataclasses import dataclass, field

from headrace.server.watch.drift.rule import Rule


@dataclass(frozen=True, kw_only=True, slots=True)
class DriftSettings:
    """What is sampled of what is served, and the part of one core that it may take.

    Attributes:
        steps: of an interval
        one_in: one in so many of the windows that were served is looked at
        least: windows of an interval, of all domains together, however few were served
        rows: most windows of a domain and interval
        duty: part of the time of a core; a run that needs more skips intervals
        rule: when a figure is an alarm
    """

    steps: int = 128
    one_in: int = 512
    least: int = 64
    rows: int = 256
    duty: float = 0.01
    rule: Rule = field(default_factory=Rule)

    def __post_init__(self) -> None:
        if min(self.steps, self.one_in, self.least, self.rows) < 1 or not 0 < self.duty <= 1:
            raise ValueError("steps, one_in, least and rows are at least 1, and duty is above 0 and at most 1")
