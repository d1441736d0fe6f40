"""Writes what ranks have confirmed and raises the seal, in one transaction that also returns the log.

`seal <= confirmed + lead`, `confirmed` never falls, and neither passes the other. The seal rises only under the log
head that the caller has planned with: if an event came in between, nothing rises and the caller, who gets that event,
plans again. So the log below a seal is always one that somebody has checked.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import sqlalchemy as sa
from headrace.server.control.leases import has_lapsed, read_lease
from headrace.server.control.log_rows import events_after
from headrace.server.control.records import Heard, LeaseRecord, RunRecord
from headrace.server.control.runs import read_run, store_anchors
from headrace.server.control.schema import leases, ranks, runs
from headrace.server.plan.log import Event


@dataclass(frozen=True, kw_only=True, slots=True)
class Raise:
    """A wish to raise the seal to `to` under the log head `head`; `anchors` belong to steps up to `to`."""

    to: int
    head: bytes
    anchors: tuple[tuple[int, str], ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Advanced:
    """The run after the transaction, events newer than those the caller knew, and the words that did not count.

    `fenced` are tokens that are no longer good, `refused` words that name a step above the seal and so cannot be true;
    `moved` says whether seal or confirmed rose.
    """

    run: RunRecord
    events: tuple[Event, ...]
    lease: LeaseRecord | None
    fenced: tuple[bytes, ...]
    refused: tuple[Heard, ...]
    now_us: int
    moved: bool = False


def advance(
    connection: sa.Connection,
    run_id: str,
    *,
    heard: Sequence[Heard],
    wish: Raise | None,
    known_sequence: int,
    now_us: int,
) -> Advanced:
    """Writes `heard`, then raises the seal as far as `wish`, `lead` and the lease allow."""
    run = read_run(connection, run_id, lock=True)
    lease = read_lease(connection, run_id)
    good = {rank.token for rank in lease.open_ranks} if lease else set()
    valid = [word for word in heard if word.token in good and word.next_step <= run.seal]
    confirmed = _confirm(connection, run, lease, valid, now_us)
    seal = run.seal
    if wish is not None and wish.head == run.head and lease is not None and _is_live(lease, valid, now_us):
        seal = max(seal, min(wish.to, confirmed + run.lead))
        store_anchors(connection, run_id, tuple(anchor for anchor in wish.anchors if anchor[0] <= seal))
    if (seal, confirmed) != (run.seal, run.confirmed):
        connection.execute(runs.update().where(runs.c.id == run_id).values(seal=seal, confirmed=confirmed))
    return Advanced(
        run=replace(run, seal=seal, confirmed=confirmed),  # nobody else can have written it: the row is locked
        events=events_after(connection, run_id, known_sequence) if run.sequence > known_sequence else (),
        lease=read_lease(connection, run_id) if valid else lease,
        fenced=tuple(word.token for word in heard if word.token not in good),
        refused=tuple(word for word in heard if word.token in good and word.next_step > run.seal),
        now_us=now_us,
        moved=(seal, confirmed) != (run.seal, run.confirmed),
    )


def _is_live(lease: LeaseRecord, valid: Sequence[Heard], now_us: int) -> bool:
    return bool(valid) or not has_lapsed(lease, now_us)


def _confirm(
    connection: sa.Connection, run: RunRecord, lease: LeaseRecord | None, valid: Sequence[Heard], now_us: int
) -> int:
    """Updates the ranks that spoke and returns the new `confirmed`."""
    known = {rank.token: rank.next_step for rank in lease.ranks} if lease else {}
    for word in valid:
        of_rank = (ranks.c.run_id == run.id, ranks.c.token == word.token)
        taken = max(known[word.token], word.next_step)
        connection.execute(ranks.update().where(*of_rank).values(next_step=taken, heard_us=now_us))
    most = max((word.next_step for word in valid), default=0)
    if lease is not None and not lease.has_confirmed and most > lease.start_step:
        connection.execute(leases.update().where(leases.c.run_id == run.id).values(has_confirmed=True))
    return max(run.confirmed, most)
