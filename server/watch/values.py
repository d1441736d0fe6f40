"""What the live page, `headrace top` and the report show, as plain values: one `Snapshot` of a run.

Parts are of real tokens. Every list is bounded, whatever the size of the run, and has the most urgent first.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, is_dataclass
from typing import Any

SCHEMA = 1
WINDOW_STEPS = 256
"""Confirmed steps that "lately" means, here and in `/metrics`."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Note:
    """One sentence for people; `level` is alarm, warning or note."""

    level: str
    text: str
    domain: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Surroundings:
    """What a server knows beside the store: how it fares, and how fast the run goes. None of it off line."""

    now_us: int
    store_error: str = ""
    data_error: str = ""
    damage: str = ""
    steps_per_second: float | None = None
    refused: Mapping[str, str] = field(default_factory=dict)
    """Other runs that this server is to serve and cannot, and why."""


@dataclass(frozen=True, kw_only=True, slots=True)
class DomainFigures:
    """One domain at the confirmed step.

    target, share: part of real tokens, of the next unsealed step before caps, and realized so far; due: the target
    over the same steps; window_*: both over the last `WINDOW_STEPS` steps; behind: windows owed, from share and due
    over the window; cap_step: where it reaches its cap at the pace of the window.
    """

    name: str
    target: float
    share: float
    due: float
    window_share: float
    window_due: float
    behind: float
    tokens: int
    size: int
    epochs: float
    cap: float | None
    at_cap: str
    cap_step: int | None
    state: str = "ok"
    urgency: float = 0.0


@dataclass(frozen=True, kw_only=True, slots=True)
class PhaseFigures:
    """The phase of the confirmed step: steps [from_step, to_step)."""

    name: str
    from_step: int
    to_step: int
    batch: int
    seq_len: int
    packing: str


@dataclass(frozen=True, kw_only=True, slots=True)
class RunFigures:
    """The run itself. `end` None: it does not end. `tokens` are real ones, served so far."""

    name: str
    kind: str
    draw: str
    parent: str
    branch_at: int
    confirmed: int
    seal: int
    lead: int
    end: int | None
    end_reason: str
    segment: int
    phase: PhaseFigures
    tokens: int
    window_from: int
    steps_per_second: float | None
    store_error: str
    data_error: str
    damage: str
    known_until: int | None


@dataclass(frozen=True, kw_only=True, slots=True)
class RankFigures:
    """One rank as last heard; `behind`: steps behind the rank that is furthest."""

    label: str
    holder: str
    next_step: int
    behind: int
    heard_us: int


@dataclass(frozen=True, kw_only=True, slots=True)
class LeaseFigures:
    """Who trains: `ranks` are the slowest of those that are open, `open` says how many there are."""

    job: str
    attempt: int
    world: int
    holder: str
    opened_us: int
    open: int
    slowest: int
    ranks: tuple[RankFigures, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class EventFigures:
    """An entry of the log: what, from which step, who, why, when; `changes` are (domain, before, after), largest."""

    sequence: int
    kind: str
    from_step: int
    until_step: int | None
    author: str
    reason: str
    time_us: int
    cancelled: bool
    holds: bool
    what: str
    changes: tuple[tuple[str, float, float], ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Snapshot:
    """Everything, with the most urgent first."""

    now_us: int
    run: RunFigures
    domains: tuple[DomainFigures, ...]
    lease: LeaseFigures | None
    events: tuple[EventFigures, ...]
    event_count: int
    notes: tuple[Note, ...]
    drift: tuple[Mapping[str, Any], ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {"schema": SCHEMA, **{name: plain(getattr(self, name)) for name in self.__slots__}}


def plain(value: Any) -> Any:
    """A value for JSON: ours become objects. Several times faster than `dataclasses.asdict`, which copies leaves."""
    if isinstance(value, tuple | list):
        return [plain(part) for part in value]
    names = getattr(type(value), "__slots__", None)
    if names is not None and is_dataclass(value):
        return {name: plain(getattr(value, name)) for name in names}
    return value
