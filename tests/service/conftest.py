"""One server a module; each test makes a run of its own in it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from rig import Raw, ServerProcess, serving, write_run

_numbers = count()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with serving(tmp_path_factory.mktemp("server"), [], extra="changes_per_second = 0") as started:
        yield started


@pytest.fixture(scope="module")
def raw(server: ServerProcess) -> Iterator[Raw]:
    with Raw(server.address) as opened:
        yield opened


@pytest.fixture
def make_run(raw: Raw, tmp_path: Path, corpus: Path) -> Callable[..., str]:
    """Makes a run over the wire, by default under a new name; returns the name."""

    def make(**changes: Any) -> str:
        changes = {"name": f"run-{next(_numbers)}", "corpus": corpus, **changes}
        text = write_run(tmp_path, **changes).read_text()
        raw("CreateRun", spec_toml=text, base_dir=str(tmp_path), author="test")
        return str(changes["name"])

    return make
