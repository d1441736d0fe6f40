"""One corpus and one server for the tests of the mixer that need them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from headrace.mixer.remote import create_run
from mixer_rig import DOCUMENTS, Server, build, run_toml, serving

_numbers = count()


@pytest.fixture(scope="session")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("mixer-corpus"))


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with serving(tmp_path_factory.mktemp("mixer-server")) as started:
        yield started


@pytest.fixture
def make_run(server: Server, corpus: Path, tmp_path: Path) -> Callable[..., str]:
    """Make a run on the server, uniform weights unless said; its name."""

    def make(weights: dict[str, float] | None = None, **changes: Any) -> str:
        name = f"run-{next(_numbers)}"
        spec = run_toml(name, corpus, weights or dict.fromkeys(DOCUMENTS, 1.0), **changes)
        create_run(server.address, spec, base_dir=tmp_path)
        return name

    return make
