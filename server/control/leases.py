"""Who may confirm: one attempt of one job holds a run at a time, decided here and written in the same transaction.

A newer attempt of the holder's job takes over at once and the older one is fenced for good. Another job is refused
until every rank of the holder has closed, none of them was heard for 60 s, or it says `takeover`. Ranks of one attempt
must open at the same step and world; once the attempt has confirmed a step, a rank that rejoins gets the step it asks
for. Silence is judged by the store's clock alone, so trainers' clocks do not matter.
"""

from __future__ import annotations

import hashlib
import secrets
from dataclasses import dataclass, field

import sqlalchemy as sa
from headrace.proto.errors import ConflictError, FencedError, UsageError
from headrace.server.control.records import LeaseRecord, RankRecord
from headrace.server.control.schema import attempts, leases, ranks

LAPSE_US = 60_000_000


@dataclass(frozen=True, kw_only=True, slots=True)
class OpenLease:
    """One rank's wish to train: `next_step` is where it starts, `takeover` takes the lease from another job, `peers` is
    how many processes share the rank."""

    job: str
    attempt: int
    label: str
    world: int
    holder: str
    next_step: int
    takeover: bool = False
    peers: int = 1

    def __post_init__(self) -> None:
        if not self.job or len(self.job) > 256 or len(self.label) > 64 or len(self.holder) > 256:
            raise UsageError("a job needs a name of 1 to 256 characters, a rank label of at most 64; set job=")
        if self.world < 1:
            raise UsageError(f"world is {self.world}, it must be at least 1")


@dataclass(frozen=True, kw_only=True, slots=True)
class Granted:
    """The secret of a lease (never stored in clear), and the lease as it stands now.

    `first` when it was taken by this wish, not joined; `doubles` are the other processes that hold the same rank, when
    there are more than share it.
    """

    secret: str
    token: bytes
    lease: LeaseRecord
    first: bool = False
    doubles: tuple[RankRecord, ...] = field(default=())


def token_of(secret: str) -> bytes:
    """What the store keeps of a lease secret."""
    return hashlib.sha256(secret.encode()).digest()


def read_lease(connection: sa.Connection, run_id: str) -> LeaseRecord | None:
    """The lease of a run with the ranks that opened under it."""
    row = connection.execute(sa.select(leases).where(leases.c.run_id == run_id)).mappings().one_or_none()
    if row is None:
        return None
    of_attempt = (ranks.c.run_id == run_id, ranks.c.job == row["job"], ranks.c.attempt == row["attempt"])
    found = connection.execute(sa.select(ranks).where(*of_attempt).order_by(ranks.c.label)).mappings()
    names = ("token", "label", "holder", "next_step", "heard_us", "closed")
    members = tuple(RankRecord(**{name: rank[name] for name in names}) for rank in found)
    fields = ("job", "attempt", "world", "holder", "start_step", "has_confirmed", "opened_us")
    return LeaseRecord(**{name: row[name] for name in fields}, ranks=members)


def has_lapsed(lease: LeaseRecord, now_us: int) -> bool:
    """No rank holds the lease any more: all have closed, or none of the others was heard for 60 s."""
    return all(now_us - rank.heard_us > LAPSE_US for rank in lease.open_ranks)


def joins(lease: LeaseRecord | None, fenced_below: int, wish: OpenLease, now_us: int) -> bool:
    """Whether the wish joins the lease as it stands (True) or takes it anew (False).

    Raises FencedError for an attempt older than the newest known of its job, ConflictError when another job holds the
    run or when the ranks of an attempt disagree.
    """
    if wish.attempt < fenced_below:
        raise FencedError(
            f"attempt {wish.attempt} of job `{wish.job}` was fenced by attempt {fenced_below} of the same job; stop "
            f"this process if that one trains, else start it as attempt {fenced_below + 1}, or name another job"
        )
    if lease is None or has_lapsed(lease, now_us):
        return False
    if lease.job != wish.job:
        if wish.takeover:
            return False
        raise ConflictError(_held(lease, wish, now_us))
    if lease.attempt != wish.attempt:
        return False
    _check_agreement(lease, wish)
    return True


def _held(lease: LeaseRecord, wish: OpenLease, now_us: int) -> str:
    heard = max((rank.heard_us for rank in lease.open_ranks), default=lease.opened_us)
    ago = max(0.0, (now_us - heard) / 1e6)
    return (
        f"job `{wish.job}` cannot train on this run: job `{lease.job}` (attempt {lease.attempt}, {lease.holder}) holds "
        f"it and was heard {ago:.0f} s ago; stop that job, wait until it is silent for 60 s, or open with takeover=True"
    )


def _check_agreement(lease: LeaseRecord, wish: OpenLease) -> None:
    if lease.world != wish.world:
        raise ConflictError(
            f"ranks of attempt {lease.attempt} of job `{lease.job}` disagree: world {lease.world} ({lease.holder}) and "
            f"world {wish.world} (rank {wish.label}, {wish.holder}); start them with one world, or as a new attempt"
        )
    # A rank that opens for the first time must begin where the others did, however far they have come since.
    rejoins = lease.has_confirmed and any(rank.label == wish.label for rank in lease.ranks)
    if not rejoins and lease.start_step != wish.next_step:
        raise ConflictError(
            f"ranks of attempt {lease.attempt} of job `{lease.job}` disagree: step {lease.start_step} ({lease.holder}) "
            f"and step {wish.next_step} (rank {wish.label}, {wish.holder}); load the same checkpoint on every rank"
        )


def grant(connection: sa.Connection, run_id: str, wish: OpenLease, now_us: int) -> Granted:
    """Judges the wish and writes the lease; the caller holds the lock of the run's row."""
    lease = read_lease(connection, run_id)
    known = sa.select(attempts.c.attempt).where(attempts.c.run_id == run_id, attempts.c.job == wish.job)
    newest = connection.execute(known).scalar_one_or_none()
    joined = joins(lease, -1 if newest is None else newest, wish, now_us)
    doubles = doubles_of(lease, wish, now_us) if lease is not None and joined else ()
    if not joined:
        _take(connection, run_id, wish, newest, now_us)
    secret = secrets.token_hex(16)
    _write_rank(connection, run_id, wish, token_of(secret), now_us)
    granted = read_lease(connection, run_id)
    assert granted is not None
    return Granted(secret=secret, token=token_of(secret), lease=granted, first=not joined, doubles=doubles)


def doubles_of(lease: LeaseRecord, wish: OpenLease, now_us: int) -> tuple[RankRecord, ...]:
    """Other processes that hold the rank and were heard of late; none while all fit among its peers.

    They are no reason to refuse: one that was killed a moment ago looks the same as one that still trains.
    """
    others = tuple(
        rank
        for rank in lease.open_ranks
        if rank.label == wish.label and rank.holder != wish.holder and now_us - rank.heard_us <= LAPSE_US
    )
    return others if len(others) >= wish.peers else ()


def _take(connection: sa.Connection, run_id: str, wish: OpenLease, newest: int | None, now_us: int) -> None:
    connection.execute(leases.delete().where(leases.c.run_id == run_id))
    connection.execute(ranks.delete().where(ranks.c.run_id == run_id))
    connection.execute(
        leases.insert().values(
            run_id=run_id,
            job=wish.job,
            attempt=wish.attempt,
            world=wish.world,
            holder=wish.holder,
            start_step=wish.next_step,
            has_confirmed=False,
            opened_us=now_us,
        )
    )
    if newest is None:
        connection.execute(attempts.insert().values(run_id=run_id, job=wish.job, attempt=wish.attempt))
    else:
        of_job = (attempts.c.run_id == run_id, attempts.c.job == wish.job)
        connection.execute(attempts.update().where(*of_job).values(attempt=wish.attempt))


def _write_rank(connection: sa.Connection, run_id: str, wish: OpenLease, token: bytes, now_us: int) -> None:
    """One row for each process: a rank that opens again replaces its own row, so rows do not pile up."""
    same = (ranks.c.run_id == run_id, ranks.c.label == wish.label, ranks.c.holder == wish.holder)
    connection.execute(ranks.delete().where(*same))
    connection.execute(
        ranks.insert().values(
            run_id=run_id,
            token=token,
            job=wish.job,
            attempt=wish.attempt,
            label=wish.label,
            holder=wish.holder,
            next_step=wish.next_step,
            heard_us=now_us,
            closed=False,
        )
    )


def close_rank(connection: sa.Connection, run_id: str, token: bytes) -> None:
    """This rank is done; the lease lapses when every rank has closed."""
    connection.execute(ranks.update().where(ranks.c.run_id == run_id, ranks.c.token == token).values(closed=True))
