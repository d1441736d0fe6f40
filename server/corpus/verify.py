"""Checks a corpus from end to end: every block of every shard, and its sources against the hashes of the build."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from headrace.proto.errors import HeadraceError
from headrace.server.corpus.bytestream import Source, hash_file, is_remote
from headrace.server.corpus.manifest import Corpus
from headrace.server.corpus.records import Manifest


@dataclass(frozen=True, slots=True)
class Check:
    """A file that was read whole: its bytes, and what is wrong with it ("" for nothing)."""

    name: str
    size: int
    problem: str = ""


def verify_corpus(corpus: Corpus) -> Iterator[Check]:
    """One check a shard."""
    for name, size, error in corpus.verify():
        yield Check(name, size, str(error) if error else "")


def verify_sources(manifest: Manifest, root: Path) -> Iterator[Check]:
    """One check a source file: it is still the one that was read."""
    for record in manifest.sources:
        location = record.path if is_remote(record.path) else str(root / record.path)
        try:
            found, size = hash_file(Source(location, record.path))
        except HeadraceError as error:
            yield Check(record.path, 0, str(error))
            continue
        same = found == record.hash
        yield Check(record.path, size, "" if same else f"its hash is {found}, at the build it was {record.hash}")
