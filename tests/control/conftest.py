"""A store on a real SQLite file or a real PostgreSQL, and a run in it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from headrace.server.control.records import NewRun, RunRecord
from headrace.server.control.store import Store
from headrace.server.plan.log import EMPTY_HEAD
from postgres import PostgresServer


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The address of an empty store of either kind."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/control.db"
    server: PostgresServer = request.getfixturevalue("postgres")
    return server.new_database()


@pytest.fixture
def store(url: str) -> Iterator[Store]:
    opened = Store(url, writable=True)
    yield opened
    opened.close()


@pytest.fixture
def run(store: Store) -> RunRecord:
    return store.create_run(new_run("r"))[0]


@pytest.fixture
def make_run() -> Callable[..., NewRun]:
    return new_run


def new_run(name: str, *, lead: int = 8, digest: bytes = bytes(32)) -> NewRun:
    return NewRun(
        name=name,
        kind="train",
        plan_version=1,
        spec_json="{}",
        spec_digest=digest,
        base_dir="/",
        lead=lead,
        author="test",
        head=EMPTY_HEAD,
    )
