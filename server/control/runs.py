"""The rows of runs: made once, listed, and locked by whoever is about to change anything of a run."""

from __future__ import annotations

import secrets
from collections.abc import Sequence

import sqlalchemy as sa
from headrace.proto.errors import ExistsError, NotFoundError
from headrace.server.control.log_rows import insert_event
from headrace.server.control.records import NewRun, RunRecord
from headrace.server.control.schema import anchors, runs
from headrace.server.plan import log
from headrace.server.plan.log import Event

NEWEST = 1000
Made = tuple[tuple[int, str], ...]
"""Anchors as (step, text)."""


def create_run(connection: sa.Connection, new: NewRun, now_us: int) -> tuple[RunRecord, bool]:
    """The run's row and whether it was made now. A run of this name and digest is answered as it stands."""
    known = connection.execute(sa.select(runs).where(runs.c.name == new.name)).mappings().one_or_none()
    if known is not None:
        run = _record(known)
        _check_same(run, new)
        return run, False
    run_id = secrets.token_hex(8)
    events = _first_events(new, now_us)
    connection.execute(
        runs.insert().values(
            id=run_id,
            name=new.name,
            kind=new.kind,
            plan_version=new.plan_version,
            spec_json=new.spec_json,
            spec_digest=new.spec_digest,
            base_dir=new.base_dir,
            lead=new.lead,
            seal=new.seal,
            confirmed=new.confirmed,
            first_head=new.head,
            head=events[-1].hash if events else new.head,
            sequence=len(events),
            author=new.author,
            created_us=now_us,
            parent=new.parent,
        )
    )
    for event in events:
        insert_event(connection, run_id, event)
    return read_run(connection, run_id), True


def _check_same(run: RunRecord, new: NewRun) -> None:
    if run.spec_digest != new.spec_digest and run.spec_json == new.spec_json:
        raise ExistsError(
            f"run `{new.name}` is what this spec says, but its corpus is not the one that it was made with (digest "
            f"of both {run.spec_digest.hex()[:16]}, now {new.spec_digest.hex()[:16]}); put the corpus back"
        )
    if run.spec_digest != new.spec_digest:
        raise ExistsError(
            f"run `{new.name}` exists with spec digest {run.spec_digest.hex()[:16]}, this spec has "
            f"{new.spec_digest.hex()[:16]}; a run's past and shape never change: give the new spec another name"
        )


def _first_events(new: NewRun, now_us: int) -> tuple[Event, ...]:
    events: tuple[Event, ...] = ()
    for body, reason in new.events:
        event = log.append(
            events,
            body=body,
            from_step=new.seal,
            until_step=None,
            author=new.author,
            reason=reason,
            time_us=now_us,
            head=new.head,
        )
        events = (*events, event)
    return events


def read_run(connection: sa.Connection, run_id: str, *, lock: bool = False) -> RunRecord:
    """The run's row; `lock` holds it against every other writer until the transaction ends."""
    query = sa.select(runs).where(runs.c.id == run_id)
    row = connection.execute(query.with_for_update() if lock else query).mappings().one_or_none()
    if row is None:
        raise NotFoundError(f"the store holds no run with id `{run_id}`; was it made in another store?")
    return _record(row)


def find_run(connection: sa.Connection, name: str) -> RunRecord:
    """The run of this name."""
    row = connection.execute(sa.select(runs).where(runs.c.name == name)).mappings().one_or_none()
    if row is None:
        names = [f"`{known}`" for known in connection.execute(sa.select(runs.c.name).order_by(runs.c.name)).scalars()]
        raise NotFoundError(f"there is no run `{name}`; the store holds {', '.join(names[:20]) or 'none yet'}")
    return _record(row)


def list_runs(connection: sa.Connection) -> tuple[RunRecord, ...]:
    """All runs, by name."""
    return tuple(_record(row) for row in connection.execute(sa.select(runs).order_by(runs.c.name)).mappings())


def store_anchors(connection: sa.Connection, run_id: str, made: Made) -> None:
    """Keeps cursors of steps that are sealed now; one that is there already stays."""
    for step, cursor in made:
        there = sa.select(anchors.c.step).where(anchors.c.run_id == run_id, anchors.c.step == step)
        if connection.execute(there).scalar_one_or_none() is None:
            connection.execute(anchors.insert().values(run_id=run_id, step=step, cursor=cursor))


def read_anchors(connection: sa.Connection, run_id: str, *, every: bool = True) -> Made:
    """Stored anchors of a run, by step. Without `every`, of more than 2,000 the newest 1,000 and every n-th before."""
    query = sa.select(anchors.c.step, anchors.c.cursor).where(anchors.c.run_id == run_id).order_by(anchors.c.step)
    steps = sa.select(anchors.c.step).where(anchors.c.run_id == run_id).order_by(anchors.c.step)
    there = [] if every else connection.execute(steps).scalars().all()
    if len(there) > 2 * NEWEST:
        old = there[:-NEWEST]
        chosen = old[:: -(-len(old) // NEWEST)]
        query = query.where(sa.or_(anchors.c.step.in_(chosen), anchors.c.step >= there[-NEWEST]))
    return tuple((row.step, row.cursor) for row in connection.execute(query))


def delete_anchors(connection: sa.Connection, run_id: str, steps: Sequence[int]) -> None:
    """Forgets the anchors of these steps."""
    for step in steps:
        connection.execute(anchors.delete().where(anchors.c.run_id == run_id, anchors.c.step == step))


def _record(row: sa.RowMapping) -> RunRecord:
    return RunRecord(**{name: row[name] for name in RunRecord.__dataclass_fields__})
