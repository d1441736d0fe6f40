"""A store of an older version is migrated and loses nothing; one of a newer version is refused, in words."""

from __future__ import annotations

import logging
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from headrace.proto.errors import ConflictError
from headrace.server.control import schema
from headrace.server.control.events import Wish
from headrace.server.control.store import Store
from headrace.server.plan import log
from headrace.server.plan.log import WeightsBody

# Written by version 1: a run with two events, a key, a lease and confirmed steps.
OLD = Path(__file__).with_name("store_v1.sql")


@pytest.fixture
def old(tmp_path: Path) -> Path:
    path = tmp_path / "old.db"
    with sqlite3.connect(path) as connection:
        connection.executescript(OLD.read_text())
    connection.close()
    return path


def contents(path: Path) -> dict[str, list[tuple[Any, ...]]]:
    """Every row of every table but `meta`."""
    connection = sqlite3.connect(path)
    names = [row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
    found = {name: connection.execute(f"SELECT * FROM {name}").fetchall() for name in names if name != "meta"}
    connection.close()
    return found


def version(path: Path) -> int:
    connection = sqlite3.connect(path)
    (found,) = connection.execute("SELECT schema_version FROM meta").fetchone()
    connection.close()
    return int(found)


def test_an_old_store_is_migrated_in_words_and_goes_on(old: Path, caplog: pytest.LogCaptureFixture) -> None:
    before = contents(old)
    with caplog.at_level(logging.WARNING):
        store = Store(f"sqlite:///{old}", writable=True)
    assert "schema version 1: migrating it to 2" in caplog.text
    assert contents(old) == before
    assert version(old) == schema.SCHEMA_VERSION
    snapshot = store.snapshot("old")
    assert (snapshot.run.seal, snapshot.run.confirmed, snapshot.run.sequence) == (13, 5, 2)
    assert log.verify(snapshot.events, snapshot.run.first_head) == snapshot.run.head
    assert snapshot.lease is not None
    wish = Wish(body=WeightsBody(weights={"a": 0.5, "b": 0.5}), author="ann", reason="try", key="k1")
    assert store.append(snapshot.run.id, wish, lambda *_: ()).replayed
    later = Wish(body=WeightsBody(weights={"a": 1.0, "b": 0.0}))
    assert store.append(snapshot.run.id, later, lambda *_: ()).event.sequence == 3
    store.close()
    caplog.clear()
    Store(f"sqlite:///{old}", writable=True).close()
    assert not caplog.text


def test_who_only_reads_is_told_how_to_migrate(old: Path) -> None:
    with pytest.raises(ConflictError, match="start `headrace serve` on it once, which migrates it"):
        Store(f"sqlite:///{old}", writable=False)
    assert version(old) == 1


def test_a_migration_that_is_cut_off_changes_nothing(old: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from headrace.server.control import migrations

    words, step = migrations._STEPS[1]

    def cut(connection: Any) -> None:
        step(connection)
        raise KeyboardInterrupt

    monkeypatch.setitem(migrations._STEPS, 1, (words, cut))
    before = old.read_bytes()
    with pytest.raises(KeyboardInterrupt):
        Store(f"sqlite:///{old}", writable=True)
    assert version(old) == 1
    monkeypatch.undo()
    Store(f"sqlite:///{old}", writable=True).close()
    assert version(old) == schema.SCHEMA_VERSION
    assert before


@pytest.mark.parametrize("writable", [True, False])
def test_a_newer_store_is_refused_naming_both_versions(tmp_path: Path, writable: bool) -> None:
    path = tmp_path / "new.db"
    Store(f"sqlite:///{path}", writable=True).close()
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE meta SET schema_version = 99")
    connection.close()
    with pytest.raises(ConflictError, match=f"has schema version 99, this Headrace knows {schema.SCHEMA_VERSION}"):
        Store(f"sqlite:///{path}", writable=writable)


def test_a_migrated_store_has_the_tables_of_a_new_one(old: Path, tmp_path: Path) -> None:
    def columns(path: Path) -> dict[str, list[str]]:
        connection = sqlite3.connect(path)
        names = [row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        found = {name: [row[1] for row in connection.execute(f"PRAGMA table_info({name})")] for name in names}
        connection.close()
        return found

    Store(f"sqlite:///{old}", writable=True).close()
    Store(f"sqlite:///{tmp_path}/fresh.db", writable=True).close()
    assert columns(old) == columns(tmp_path / "fresh.db")


def test_each_store_has_a_name_of_its_own(tmp_path: Path) -> None:
    names = set()
    for number in range(2):
        Store(f"sqlite:///{tmp_path}/{number}.db", writable=True).close()
        connection = sqlite3.connect(tmp_path / f"{number}.db")
        names.add(connection.execute("SELECT store_id FROM meta").fetchone()[0])
        connection.close()
    assert len(names) == 2
    assert all(len(name) == 16 for name in names)
