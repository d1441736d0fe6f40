"""How much of a run the drift watch looks at: the [drift] table of SERVER.toml."""

from __future__ import annotations

from dataclasses import dataclass, field

from headrace.server.watch.drift.rule import Rule


@dataclass(frozen=True, kw_only=True, slots=True)
class DriftSettings:
    """How much is sampled: steps of an interval, windows a domain, tokens in all, and the part of one core to use."""

    steps: int = 32
    rows: int = 256
    tokens: int = 1 << 19
    duty: float = 0.01
    rule: Rule = field(default_factory=Rule)

    def __post_init__(self) -> None:
        if min(self.steps, self.rows, self.tokens) < 1 or not 0 < self.duty <= 1:
            raise ValueError("steps, rows and tokens are at least 1, and duty is above 0 and at most 1")
