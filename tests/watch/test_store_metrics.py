"""A store that turns read-only, is away, and comes back, as /metrics says it; with a real PostgreSQL."""

from __future__ import annotations

import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa
from headrace.server.control.database import parse_url
from postgres import PostgresServer
from prometheus_client.parser import text_string_to_metric_families
from rig import Raw, ServerProcess, Trainer, serving, write_run


@pytest.fixture
def store(postgres: PostgresServer) -> str:
    return postgres.new_database()


@pytest.fixture
def server(tmp_path: Path, corpus: Path, store: str) -> Iterator[ServerProcess]:
    with serving(tmp_path, [write_run(tmp_path, corpus)], store=store) as started:
        yield started


def scrape(server: ServerProcess) -> dict[str, float]:
    text = urllib.request.urlopen(f"http://127.0.0.1:{server.metrics_port}/metrics", timeout=10).read().decode()
    families = text_string_to_metric_families(text)
    return {sample.name: sample.value for family in families for sample in family.samples}


def wait(server: ServerProcess, **wanted: float) -> None:
    until = time.monotonic() + 30
    while any((found := scrape(server))[f"headrace_{name}"] != value for name, value in wanted.items()):
        assert time.monotonic() < until, {name: found[f"headrace_{name}"] for name in wanted}
        time.sleep(0.1)


def set_read_only(store: str, word: str) -> None:
    """As an operator does with a whole database; sessions that are open are ended, as in a failover."""
    name = store.rpartition("/")[2]
    engine = sa.create_engine(parse_url(store), isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.execute(sa.text("SET default_transaction_read_only = off"))
        connection.execute(sa.text(f"ALTER DATABASE {name} SET default_transaction_read_only = {word}"))
        others = (
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = :name AND pid <> pg_backend_pid()"
        )
        connection.execute(sa.text(others), {"name": name})
    engine.dispose()


def test_read_only_and_back(server: ServerProcess, store: str) -> None:
    with Raw(server.address) as raw:
        trainer = Trainer(raw).open().take(3)
        trainer.settle()
        wait(server, store_up=1, store_writable=1, seal_blocked=0)
        set_read_only(store, "on")
        lease = {"run_id": trainer.opened.run_id, "lease": trainer.opened.lease}
        raw("Confirm", **lease, confirmation={"next_step": 6})
        wait(server, store_up=0, store_writable=0)
        set_read_only(store, "off")
        wait(server, store_up=1, store_writable=1, confirmed_step=6, seal_step=14)
