"""What tests of several areas share."""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from postgres import PostgresServer, find_binaries

# A shell starts what it puts in the background with SIGINT ignored, and the programs under test would inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files of few tests go first: those are the long ones, and none of them is to run alone at the end."""
    tests = Counter(item.path for item in items)
    items.sort(key=lambda item: (tests[item.path], item.path))


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """A real PostgreSQL of this session; skips where the machine has none."""
    binaries = find_binaries()
    if binaries is None:
        pytest.skip("PostgreSQL's initdb is not on this machine (apt-get install postgresql)")
    server = PostgresServer(binaries)
    yield server
    server.remove()


@pytest.fixture(scope="session")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The manifest of a small corpus of three domains."""
    from corpora import build_small_corpus

    return build_small_corpus(tmp_path_factory.mktemp("corpus"))
