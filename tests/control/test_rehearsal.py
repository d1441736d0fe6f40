"""The rehearsal of a first trainer: it leaves nothing in the store, and nothing to compile for the one that comes."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from headrace.server.control import schema
from headrace.server.control.leases import OpenLease
from headrace.server.control.records import Heard, RunRecord
from headrace.server.control.seal import Raise
from headrace.server.control.store import Store


def contents(store: Store) -> dict[str, list[Any]]:
    with store._database.read() as connection:
        return {
            table.name: [tuple(row) for row in connection.execute(sa.select(table))]
            for table in schema.metadata.sorted_tables
        }


def wish(step: int, **changes: Any) -> OpenLease:
    return OpenLease(**{"job": "job", "attempt": 0, "label": "0", "world": 1, "holder": "h", **changes}, next_step=step)


def test_it_leaves_nothing(store: Store, run: RunRecord) -> None:
    before = contents(store)
    store.rehearse(run.id)
    assert contents(store) == before


def test_it_leaves_the_one_who_trains_in_place(store: Store, run: RunRecord) -> None:
    token = store.open_lease(run.id, wish(0)).token
    store.advance(run.id, wish=Raise(to=4, head=run.head))
    store.rehearse(run.id)
    advanced = store.advance(run.id, heard=[Heard(token=token, next_step=3)])
    assert (advanced.fenced, advanced.run.confirmed, advanced.run.seal) == ((), 3, 4)


def test_the_first_trainer_finds_all_compiled(store: Store, run: RunRecord) -> None:
    store.rehearse(run.id)
    known = set(store._database._engine._compiled_cache or ())
    for attempt in (0, 1):
        token = store.open_lease(run.id, wish(0, attempt=attempt)).token
    store.advance(run.id, wish=Raise(to=8, head=run.head, anchors=((1, "x"),)))
    store.advance(run.id, heard=[Heard(token=token, next_step=3)])
    assert known
    assert set(store._database._engine._compiled_cache or ()) == known
