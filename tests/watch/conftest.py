"""Servers that several files look at: one on a run that is far along, and one that wants tokens."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from rig import ServerProcess, serving, write_run
from tokens import SECRETS, Guarded, token_entries
from worlds import World, make_world


@pytest.fixture(scope="session")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """A server of `pretrain-7b`: 60 domains, 14,000 steps, three changes; nobody trains on it."""
    folder = tmp_path_factory.mktemp("world")
    run = make_world(folder, World(domains=60, batch=32, events=3))
    with serving(folder, [run]) as started:
        yield started


@pytest.fixture(scope="session")
def guarded(tmp_path_factory: pytest.TempPathFactory, corpus: Path) -> Iterator[Guarded]:
    """The run `r` of the small corpus behind tokens."""
    folder = tmp_path_factory.mktemp("guarded")
    tokens = folder / "tokens.toml"
    tokens.write_text(token_entries(SECRETS))
    with serving(folder, [write_run(folder, corpus)], extra=f'[auth]\ntokens = "{tokens}"\n') as server:
        yield Guarded(server, tokens)
