"""What the control store hands out: plain values, read in one transaction, that never change afterwards."""

from __future__ import annotations

from dataclasses import dataclass

from headrace.proto.errors import DataLossError
from headrace.server.plan.log import Body, Event


@dataclass(frozen=True, kw_only=True, slots=True)
class RunRecord:
    """A run's row. `head` is the hash of its newest event, `sequence` that event's number (0: none yet).

    `first_head` is what the chain begins with, `parent` the id of the run that this one was branched from.
    """

    id: str
    name: str
    kind: str
    plan_version: int
    spec_json: str
    spec_digest: bytes
    base_dir: str
    lead: int
    seal: int
    confirmed: int
    first_head: bytes
    head: bytes
    sequence: int
    author: str
    created_us: int
    parent: str | None

    def __post_init__(self) -> None:
        if not 0 <= self.confirmed <= self.seal <= self.confirmed + self.lead and self.kind == "train":
            raise DataLossError(
                f"run `{self.name}` cannot have {self.confirmed} confirmed steps, seal {self.seal} and lead "
                f"{self.lead}: its row was changed; restore the control store from a backup or an export"
            )


@dataclass(frozen=True, kw_only=True, slots=True)
class NewRun:
    """What it takes to make a run.

    `seal` and `confirmed` are 0, except for a run of kind `eval`, which is sealed whole, and for a branch, which begins
    at the step where it leaves its parent. `events` hold from the seal on: what the log begins with, each with why.
    """

    name: str
    kind: str
    plan_version: int
    spec_json: str
    spec_digest: bytes
    base_dir: str
    lead: int
    author: str
    head: bytes
    seal: int = 0
    confirmed: int = 0
    parent: str | None = None
    events: tuple[tuple[Body, str], ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class RankRecord:
    """One rank as last heard. `token` is the SHA-256 of its lease secret."""

    token: bytes
    label: str
    holder: str
    next_step: int
    heard_us: int
    closed: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class LeaseRecord:
    """The attempt that holds a run, with its ranks."""

    job: str
    attempt: int
    world: int
    holder: str
    start_step: int
    has_confirmed: bool
    opened_us: int
    ranks: tuple[RankRecord, ...] = ()

    @property
    def open_ranks(self) -> tuple[RankRecord, ...]:
        return tuple(rank for rank in self.ranks if not rank.closed)


@dataclass(frozen=True, kw_only=True, slots=True)
class Snapshot:
    """A run as one transaction saw it: row, whole log, lease, and the newest anchor at or below the seal."""

    run: RunRecord
    events: tuple[Event, ...]
    lease: LeaseRecord | None
    now_us: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Appended:
    """An event in the log, with what it was judged against. `replayed`: the key had made it before."""

    event: Event
    seal: int
    confirmed: int
    notes: tuple[str, ...]
    replayed: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Heard:
    """One rank's word, to be written: the lease it spoke under and how many steps it has taken."""

    token: bytes
    next_step: int


@dataclass(frozen=True, kw_only=True, slots=True)
class LossReport:
    """One domain's loss at one step by one reporter, in nats; `excess_sum` where a reference exists."""

    step: int
    segment: int
    domain: str
    reporter: str
    loss_sum: float
    tokens: int
    excess_sum: float | None = None
