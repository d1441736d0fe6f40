"""Fixtures of the corpus tests."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from headrace.server.corpus.build import build_corpus
from headrace.server.corpus.manifest import Corpus
from small_corpus import CASES, save_byte_tokenizer, spec_of


@pytest.fixture
def cases() -> Path:
    """Inputs of the list of bug cases."""
    if not CASES.is_dir():
        pytest.skip("the inputs of the bug cases are not beside this checkout")
    return CASES


@pytest.fixture(scope="session")
def expected() -> Mapping[str, Any]:
    path = CASES / "expect.json"
    if not path.is_file():
        pytest.skip("the inputs of the bug cases are not beside this checkout")
    found: Mapping[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return found


Build = Callable[..., Corpus]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A folder with a byte tokenizer in it."""
    save_byte_tokenizer(tmp_path / "tokenizer.json")
    return tmp_path


@pytest.fixture
def build(root: Path) -> Build:
    """Builds and opens the corpus of some [[domain]] tables (and further keys of [corpus]) in `root`."""

    def make(domains: str, corpus: str = "", workers: int = 1, part: str = "train") -> Corpus:
        spec = spec_of(root, domains, corpus)
        build_corpus(spec, workers=workers)
        return Corpus.open(spec.manifest_path, part)

    return make
