"""Events as rows: the one place that knows both."""

from __future__ import annotations

import sqlalchemy as sa
from headrace.server.control.records import RunRecord
from headrace.server.control.schema import events
from headrace.server.plan.log import Event


def events_after(connection: sa.Connection, run_id: str, sequence: int) -> tuple[Event, ...]:
    """Events of a run with a number above `sequence`, in order."""
    query = sa.select(events).where(events.c.run_id == run_id, events.c.sequence > sequence)
    return tuple(_event(row) for row in connection.execute(query.order_by(events.c.sequence)).mappings())


def whole_log(connection: sa.Connection, run: RunRecord, known: tuple[Event, ...]) -> tuple[Event, ...]:
    """The log as it is now: what is known, if the chain goes on from there to the run's head, else all of it anew."""
    newer = events_after(connection, run.id, known[-1].sequence if known else 0)
    heads = (known[-1].hash if known else run.first_head, *(event.hash for event in newer))
    chained = all(event.previous_hash == head for event, head in zip(newer, heads, strict=False))
    whole = len(known) + len(newer) == run.sequence and heads[-1] == run.head
    return (*known, *newer) if chained and whole else events_after(connection, run.id, 0)


def insert_event(connection: sa.Connection, run_id: str, event: Event) -> None:
    """Adds the event; its number is the primary key, so two can never share one."""
    connection.execute(
        events.insert().values(
            run_id=run_id,
            sequence=event.sequence,
            kind=event.kind,
            from_step=event.from_step,
            until_step=event.until_step,
            body=event.text,
            author=event.author,
            reason=event.reason,
            time_us=event.time_us,
            previous_hash=event.previous_hash,
            hash=event.hash,
        )
    )


def _event(row: sa.RowMapping) -> Event:
    return Event(
        sequence=row["sequence"],
        kind=row["kind"],
        from_step=row["from_step"],
        until_step=row["until_step"],
        text=row["body"],
        author=row["author"],
        reason=row["reason"],
        time_us=row["time_us"],
        previous_hash=row["previous_hash"],
        hash=row["hash"],
    )
