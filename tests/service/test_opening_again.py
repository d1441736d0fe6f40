"""A log is verified when a process reads it first, and from there on only what is new; what was changed is noticed."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest
from headrace.proto.errors import DataLossError
from headrace.server.control.events import Wish
from headrace.server.control.store import Store
from headrace.server.plan import log
from headrace.server.plan.log import WeightsBody
from headrace.server.service.changes import checker
from headrace.server.service.loading import Opener
from rig import headrace, write_run


@pytest.fixture
def store(tmp_path: Path, corpus: Path) -> Iterator[Store]:
    url = f"sqlite:///{tmp_path}/control.db"
    assert headrace("run", "create", str(write_run(tmp_path, corpus)), "--store", url).returncode == 0
    opened = Store(url, writable=True)
    yield opened
    opened.close()


def push(store: Store, opener: Opener, part: float) -> None:
    view = opener.view("r")
    body = WeightsBody(weights={"a": part, "b": 1 - part, "c": 0.0})
    store.append(view.run.id, Wish(body=body), checker(view))


def test_only_new_events_are_read_and_verified(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    opener = Opener(store)
    for number in range(4):
        push(store, opener, number / 4)
    hashed: list[int] = []
    chain_hash = log.chain_hash

    def counted(event: log.Event, head: bytes) -> bytes:
        hashed.append(event.sequence)
        return chain_hash(event, head)

    monkeypatch.setattr(log, "chain_hash", counted)
    view = opener.view("r")
    push(store, opener, 0.3)
    hashed.clear()
    again = opener.view("r")
    assert hashed == [5]
    assert all(one is other for one, other in zip(view.events, again.events, strict=False))
    assert again.events[-1].hash == again.run.head
    hashed.clear()
    Opener(store).view("r")
    assert hashed == [1, 2, 3, 4, 5]


def test_a_log_is_verified_without_its_bodies(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hashes cover the texts as they are stored; a body is made where a step needs it."""
    for number in range(6):
        push(store, Opener(store), number / 8)
    made: list[str] = []
    body_from_json = log.body_from_json

    def counted(kind: str, text: str) -> log.Body:
        made.append(text)
        return body_from_json(kind, text)

    monkeypatch.setattr(log, "body_from_json", counted)
    view = Opener(store).view("r")
    view.plan.hash(100)
    assert made == []
    view.plan.draw(0)
    assert made == [view.events[-1].text]


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE events SET author = 'other' WHERE sequence = 2",
        "UPDATE events SET body = replace(body, '0.25', '0.26') WHERE sequence = 2",
        "DELETE FROM events WHERE sequence = 3",
        "DELETE FROM events WHERE sequence = 2",
    ],
)
def test_a_log_that_was_changed_is_not_opened(store: Store, tmp_path: Path, change: str) -> None:
    opener = Opener(store)
    for number in range(3):
        push(store, opener, number / 4)
    with sqlite3.connect(tmp_path / "control.db") as connection:
        connection.execute(change)
    connection.close()
    with pytest.raises(DataLossError, match="restore"):
        Opener(store).view("r")
    done = headrace("run", "verify", "r", "--store", f"sqlite:///{tmp_path}/control.db")
    assert done.returncode == 1
