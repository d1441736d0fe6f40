"""Appending to a run's log: the only way that anything about a run's future changes.

In this order, all under the lock of the run's row: the idempotency key (a repeated request is answered before anything
is refused), the expected head, the step (the first unsealed one unless named), the caller's check against the log as it
is now, the hash chain. A dry run does all of it and writes nothing.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import sqlalchemy as sa
from headrace.proto.errors import ConflictError, StaleError, UsageError
from headrace.server.control.failpoints import reach
from headrace.server.control.log_rows import insert_event, whole_log
from headrace.server.control.records import Appended, RunRecord
from headrace.server.control.runs import read_run
from headrace.server.control.schema import keys, runs
from headrace.server.plan import log
from headrace.server.plan.log import Body, Event, body_to_json


@dataclass(frozen=True, kw_only=True, slots=True)
class Wish:
    """An event that somebody wants: `from_step` None means the first unsealed step, `expected_head` b"" any head."""

    body: Body
    from_step: int | None = None
    until_step: int | None = None
    author: str = ""
    reason: str = ""
    expected_head: bytes = b""
    key: str = ""
    dry_run: bool = False

    def __post_init__(self) -> None:
        if len(self.key) > 200 or len(self.author) > 200 or len(self.reason) > 2000:
            raise UsageError("author and idempotency key are at most 200 characters, the reason at most 2,000")

    def digest(self) -> bytes:
        """What was asked, without who and when: two requests with one key must agree in it."""
        asked = [body_to_json(self.body), self.from_step, self.until_step, self.reason]
        return hashlib.sha256(json.dumps(asked).encode()).digest()


# Judges an event against the run and its log inside the transaction: returns notes, or raises.
Check = Callable[[RunRecord, tuple[Event, ...], Event], tuple[str, ...]]


def append(
    connection: sa.Connection, run_id: str, wish: Wish, check: Check, now_us: int, known: Sequence[Event] = ()
) -> Appended:
    """Appends the event that is wished for and returns it; raises StaleError, ConflictError or what `check` raises.

    `known` are events that the caller has read of this run before: a long log is not read again for each change.
    """
    run = read_run(connection, run_id, lock=True)
    before = whole_log(connection, run, tuple(known))
    if wish.key and (replayed := _replayed(connection, run, before, wish)):
        return replayed
    if wish.expected_head and wish.expected_head != run.head:
        raise StaleError(
            f"the log of run `{run.name}` has moved on: its head is {run.head.hex()[:16]}, the request expected "
            f"{wish.expected_head.hex()[:16]}; look at the new events (`headrace run events`) and send it again"
        )
    event = _event(run, before, wish, now_us)
    notes = check(run, before, event)
    if not wish.dry_run:
        _write(connection, run, event, wish, notes)
    return Appended(event=event, seal=run.seal, confirmed=run.confirmed, notes=notes)


def _event(run: RunRecord, before: tuple[Event, ...], wish: Wish, now_us: int) -> Event:
    from_step = run.seal if wish.from_step is None else wish.from_step
    if from_step < run.seal:
        raise ConflictError(
            f"step {from_step} of run `{run.name}` is sealed and can never change; the first free step is {run.seal}"
        )
    return log.append(
        before,
        body=wish.body,
        from_step=from_step,
        until_step=wish.until_step,
        author=wish.author,
        reason=wish.reason,
        time_us=now_us,
        head=run.first_head,
    )


def read_keys(connection: sa.Connection, run_id: str) -> dict[int, str]:
    """The idempotency keys of a run's events by sequence number; an event that had none is not in it."""
    found = connection.execute(sa.select(keys.c.sequence, keys.c.key).where(keys.c.run_id == run_id))
    return {row.sequence: row.key for row in found}


def _replayed(connection: sa.Connection, run: RunRecord, before: tuple[Event, ...], wish: Wish) -> Appended | None:
    row = connection.execute(sa.select(keys).where(keys.c.run_id == run.id, keys.c.key == wish.key)).one_or_none()
    if row is None:
        return None
    if row.request != wish.digest():
        raise ConflictError(f"idempotency key `{wish.key}` was used for another request; take a new key for a new one")
    event = next(event for event in before if event.sequence == row.sequence)
    notes = tuple(json.loads(row.notes))
    return Appended(event=event, seal=run.seal, confirmed=run.confirmed, notes=notes, replayed=True)


def _write(connection: sa.Connection, run: RunRecord, event: Event, wish: Wish, notes: tuple[str, ...]) -> None:
    insert_event(connection, run.id, event)
    reach("append-row")
    changed = runs.update().where(runs.c.id == run.id).values(head=event.hash, sequence=event.sequence)
    connection.execute(changed)
    if wish.key:
        row = {"run_id": run.id, "key": wish.key, "request": wish.digest(), "sequence": event.sequence}
        connection.execute(keys.insert().values(**row, notes=json.dumps(notes)))
