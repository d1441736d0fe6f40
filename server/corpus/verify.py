"""Checks a corpus from end to end: every block of every shard, and its sources against the hashes of the build."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from headrace.proto.errors import HeadraceError
from headrace.server.corpus.bytestream import Source, hash_file, is_remote
from headrace.server.corpus.records import Manifest
from headrace.server.corpus.shard import HOLDOUT, TRAIN
from headrace.server.corpus.shard_read import is_whole
from headrace.tokenizer.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True)
class Check:
    """A file that was read whole: its bytes, and what is wrong with it ("" for nothing)."""

    name: str
    size: int
    problem: str = ""


def verify_manifest(path: Path) -> tuple[Manifest, list[Check]]:
    """The manifest, a check of the tokenizer and one of each shard; one that is damaged does not stop the others."""
    manifest = Manifest.load(path)
    return manifest, [_tokenizer(manifest, path.parent), *verify_shards(manifest, path.parent)]


def _tokenizer(manifest: Manifest, root: Path) -> Check:
    """The copy of the tokenizer that lies with the corpus is the one that made its ids."""
    name = manifest.tokenizer.file
    try:
        found, size = Tokenizer.load(root / name).digest.hex(), (root / name).stat().st_size
    except (HeadraceError, OSError) as error:
        return Check(name, 0, str(error))
    same = found == manifest.tokenizer.digest
    return Check(
        name, size, "" if same else f"it is not the tokenizer of this corpus, {manifest.tokenizer.digest[:16]}"
    )


def verify_shards(manifest: Manifest, root: Path) -> Iterator[Check]:
    """Reads every byte of every shard."""
    for domain in manifest.domains:
        for part in (TRAIN, HOLDOUT):
            for shards in domain.part(part):
                for record in shards:
                    name = f"{record.folder}/{record.shard.file}"
                    if is_whole(root / record.folder, record.shard, blocks=True):
                        yield Check(name, record.shard.size)
                    else:
                        is_there = (root / name).is_file()
                        problem = "its bytes are not those that were written" if is_there else "it is not there"
                        yield Check(name, record.shard.size, problem)


def verify_sources(manifest: Manifest, root: Path, locations: Mapping[str, str] | None = None) -> Iterator[Check]:
    """One check a source file: it is still the one that was read.

    `locations` says where sources are opened, for those whose path alone is not enough (an object store's options).
    """
    for record in manifest.sources:
        location = (locations or {}).get(record.path) or (
            record.path if is_remote(record.path) else str(root / record.path)
        )
        try:
            found, size = hash_file(Source(location, record.path))
        except HeadraceError as error:
            yield Check(record.path, 0, str(error))
            continue
        same = found == record.hash
        yield Check(record.path, size, "" if same else f"its hash is {found}, at the build it was {record.hash}")
