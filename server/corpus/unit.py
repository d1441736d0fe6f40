"""Builds one source file: the pure function that every engine runs, in this process, a pool, or an array job.

    source file -> rows -> documents -> token ids -> one shard a domain -> marker

A unit is a folder named by the source's size and hash, below a folder named by the digest of everything else that
decides its bytes. It appears whole, by one rename, with its marker in it: a killed build leaves nothing that could be
taken for finished, and the next one does only what is missing.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from headrace.proto.errors import DataLossError
from headrace.server.corpus.account import Account
from headrace.server.corpus.bytestream import Source, hash_file
from headrace.server.corpus.documents import BAD_NAME, Row, pick
from headrace.server.corpus.durable import new_folder, sync
from headrace.server.corpus.readers import read_rows
from headrace.server.corpus.records import canonical, digest_of
from headrace.server.corpus.shard import ShardInfo, ShardWriter
from headrace.server.corpus.spec import NAME, PLACEHOLDER, DomainSpec
from headrace.server.corpus.text_encoder import TextEncoder, load_tokenizer

STORE_VERSION = 1
MARKER = "unit.json"
GROUP_CHARACTERS = 1 << 20
GROUP_DOCUMENTS = 2048

Progress = Callable[[int, int, int], None]
"""Called with what was done since the last call: source bytes, documents, tokens."""


@dataclass(frozen=True, kw_only=True, slots=True)
class UnitTask:
    """One source file to build; plain values only, so that it travels as JSON.

    Attributes:
        path: where the file lies
        name: how manifest and messages call it
        store: folder of the token stores
        tokenizer: path of the tokenizer; its digest is checked
        bos, eos: whether each document gets those ids
        id_bytes: 2 or 4
    """

    path: str
    name: str
    store: str
    tokenizer: str
    tokenizer_digest: str
    domain: DomainSpec
    bos: bool
    eos: bool
    id_bytes: int

    @property
    def options(self) -> dict[str, Any]:
        """Everything but the source that decides the bytes of the unit."""
        return {
            "store": STORE_VERSION,
            "tokenizer": self.tokenizer_digest,
            "bos": self.bos,
            "eos": self.eos,
            "id_bytes": self.id_bytes,
            "domain": self.domain.options(),
        }

    @property
    def folder(self) -> Path:
        """Where the units with these options lie."""
        return Path(self.store) / digest_of(self.options)[:16]


@dataclass(frozen=True, kw_only=True, slots=True)
class UnitReport:
    """The marker of a finished unit: its source, counts that add up, and its shards."""

    hash: str
    size: int
    read: int
    packed: int
    rejected: dict[str, int]
    replaced: dict[str, int]
    notes: dict[str, int]
    shards: tuple[ShardInfo, ...]

    @property
    def folder_name(self) -> str:
        return f"{self.size}-{self.hash[:32]}"

    def to_json(self) -> dict[str, Any]:
        plain = {name: getattr(self, name) for name in self.__slots__}
        return {**plain, "shards": [shard.to_json() for shard in self.shards]}

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> UnitReport:
        return cls(**{**value, "shards": tuple(ShardInfo(**shard) for shard in value["shards"])})


def read_marker(folder: Path) -> UnitReport | None:
    """The report of a finished unit, None when there is none."""
    try:
        return UnitReport.from_json(json.loads((folder / MARKER).read_bytes()))
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError) as error:
        raise DataLossError(f"`{folder / MARKER}` is damaged ({error}); remove this folder and build again") from None


def finished(task: UnitTask) -> UnitReport | None:
    """The unit of this source if it is there. The source is hashed only when a unit of its size is."""
    source = Source(Path(task.path), task.name)
    if not any(task.folder.glob(f"{source.stat().st_size}-*")):
        return None
    known, size = hash_file(source)
    return read_marker(task.folder / f"{size}-{known[:32]}")


def build_unit(task: UnitTask, progress: Progress) -> UnitReport:
    """Builds the unit of one source file unless it is there; the same bytes every time."""
    report = finished(task) or _build(task, progress)
    progress(0, 0, 0)
    return report


def _build(task: UnitTask, progress: Progress) -> UnitReport:
    source = Source(Path(task.path), task.name)
    account = Account(task.name, task.domain)
    report: UnitReport | None = None

    def name() -> str:
        assert report is not None
        return report.folder_name

    with new_folder(task.folder, name) as folder:
        shards = _write(task, source, account, folder, progress)
        report = UnitReport(
            hash=source.hash,
            size=source.size,
            read=account.read,
            packed=account.packed,
            rejected=dict(sorted(account.rejected.items())),
            replaced=dict(sorted(account.replaced.items())),
            notes=dict(sorted(account.notes.items())),
            shards=shards,
        )
        (folder / MARKER).write_bytes(canonical(report.to_json()) + b"\n")
        sync(folder / MARKER)
    return report


def _write(task: UnitTask, source: Source, account: Account, folder: Path, progress: Progress) -> tuple[ShardInfo, ...]:
    """Reads the source to its end and writes its shards, in the bytewise order of their names."""
    tokenizer = load_tokenizer(task.tokenizer, task.tokenizer_digest)
    encoder = TextEncoder(tokenizer, bos=task.bos, eos=task.eos)
    writers: dict[str, ShardWriter] = {}
    try:
        done = 0
        rows = account.admit(read_rows(source, task.domain, account.notes))
        for group in _groups(_named(rows, task.domain, account)):
            names = [name for name, _ in group]
            encoded = encoder.encode(
                [row.text or "" for _, row in group], [row.number for _, row in group], account.notes
            )
            for name in sorted(set(names)):
                if name not in writers:
                    writers[name] = ShardWriter(folder, name, id_bytes=task.id_bytes, file=f"{name}.arrow")
                keep = np.fromiter((each == name for each in names), np.bool_, len(names))
                writers[name].add(encoded if keep.all() else encoded.select(keep))
            progress(source.size - done, len(group), len(encoded.ids))
            done = source.size
        return tuple(writers[name].close() for name in sorted(writers))
    finally:
        for writer in writers.values():
            writer.abort()


def _named(rows: Iterable[Row], spec: DomainSpec, account: Account) -> Iterator[tuple[str, Row]]:
    """Each row with the name of its domain."""
    if not spec.name_fields:
        for row in rows:
            yield spec.name, row
        return
    for row in rows:
        values = {path: pick(row.fields, tuple(path.split(".")))[1] for path in spec.name_fields}
        name = PLACEHOLDER.sub(lambda found, values=values: _plain(values[found.group(1)]), spec.name)
        if NAME.fullmatch(name):
            yield name, row
        else:
            account.reject(row, BAD_NAME, f"the fields {values} make `{name}`, which is no name for a domain")


def _plain(value: object) -> str:
    """A field's value within a name; what is neither text nor a whole number makes the name invalid."""
    return str(value) if type(value) in (str, int) else "{}"


def _groups(rows: Iterable[tuple[str, Row]]) -> Iterator[list[tuple[str, Row]]]:
    """Rows in groups large enough for the encoder's threads and small enough for memory."""
    group: list[tuple[str, Row]] = []
    characters = 0
    for named in rows:
        group.append(named)
        characters += len(named[1].text or "")
        if characters >= GROUP_CHARACTERS or len(group) >= GROUP_DOCUMENTS:
            yield group
            group, characters = [], 0
    if group:
        yield group
