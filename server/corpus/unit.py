"""Builds one source file: the pure function that every engine runs, in this process, a pool, or an array job.

    source file -> rows -> documents -> token ids -> shards -> marker

A unit is a folder named by the source's size and hash, below a folder named by the digest of everything else that
decides its bytes. It appears whole, by one rename, with its marker in it: a killed build leaves nothing that could be
taken for finished, and the next one does only what is missing.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headrace.proto.errors import DataLossError
from headrace.server.corpus.account import Account
from headrace.server.corpus.bytestream import Source, hash_file
from headrace.server.corpus.durable import new_folder, sync
from headrace.server.corpus.packer import write_shards
from headrace.server.corpus.profile import PROFILE_VERSION, Profile
from headrace.server.corpus.records import canonical, digest_of
from headrace.server.corpus.shard import ShardInfo
from headrace.server.corpus.shard_read import is_whole
from headrace.server.corpus.spec import DomainSpec
from headrace.server.corpus.text_encoder import TextEncoder, load_tokenizer

STORE_VERSION = 1
MARKER = "unit.json"

Progress = Callable[[int, int, int], None]
"""Called with what was done since the last call: source bytes, documents, tokens."""


@dataclass(frozen=True, kw_only=True, slots=True)
class UnitTask:
    """One source file to build; plain values only, so that it travels as JSON.

    Attributes:
        location: path or address of the file
        name: how manifest and messages call it
        store: folder of the token stores
        tokenizer: path of the tokenizer; its digest is checked
        bos, eos: whether each document gets those ids
        id_bytes: 2 or 4
        check: whether a unit that is there already is read and checked from end to end
    """

    location: str
    name: str
    store: str
    tokenizer: str
    tokenizer_digest: str
    domain: DomainSpec
    bos: bool
    eos: bool
    id_bytes: int
    check: bool = False

    @property
    def source(self) -> Source:
        return Source(self.location, self.name)

    @property
    def options(self) -> dict[str, Any]:
        """Everything but the source that decides the bytes of the unit."""
        return {
            "store": STORE_VERSION,
            "profile": PROFILE_VERSION,
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
    """The marker of a finished unit: its source, counts that add up, its shards and the profile of each."""

    hash: str
    size: int
    read: int
    packed: int
    held_out: int
    rejected: dict[str, int]
    replaced: dict[str, int]
    notes: dict[str, int]
    shards: tuple[ShardInfo, ...]
    profiles: tuple[Profile, ...]

    @property
    def folder_name(self) -> str:
        return f"{self.size}-{self.hash[:32]}"

    def to_json(self) -> dict[str, Any]:
        plain: dict[str, Any] = {name: getattr(self, name) for name in self.__slots__}
        plain["shards"] = [shard.to_json() for shard in self.shards]
        plain["profiles"] = [profile.to_json() for profile in self.profiles]
        return plain

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> UnitReport:
        shards = tuple(ShardInfo(**shard) for shard in value["shards"])
        profiles = tuple(Profile.from_json(profile) for profile in value["profiles"])
        return cls(**{**value, "shards": shards, "profiles": profiles})


def read_marker(folder: Path) -> UnitReport | None:
    """The report of a finished unit, None when there is none."""
    try:
        return UnitReport.from_json(json.loads((folder / MARKER).read_bytes()))
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError) as error:
        raise DataLossError(f"`{folder / MARKER}` is damaged ({error}); remove this folder and build again") from None


def finished(task: UnitTask, *, mend: bool = True) -> UnitReport | None:
    """The unit of this source if it is there and whole; with `mend` one that is not is removed.

    The source is hashed only when a unit of its size is there.
    """
    source = task.source
    if not any(task.folder.glob(f"{source.stamp()[0]}-*")):
        return None
    known, size = hash_file(source)
    folder = task.folder / f"{size}-{known[:32]}"
    report = read_marker(folder)
    if report is None or all(is_whole(folder, shard, blocks=task.check) for shard in report.shards):
        return report
    # Its bytes are not those that were written: it will be made again from its origin.
    if mend:
        shutil.rmtree(folder)
    return None


def build_unit(task: UnitTask, progress: Progress, *, threads: int | None = None) -> UnitReport:
    """Builds the unit of one source file unless it is there; the same bytes every time."""
    report = finished(task)
    if report is not None:
        progress(report.size, report.packed, sum(shard.tokens for shard in report.shards))
        return report
    source = task.source
    account = Account(task.name, task.domain)
    made: list[UnitReport] = []
    with new_folder(task.folder, lambda: made[0].folder_name) as folder:
        tokenizer = load_tokenizer(task.tokenizer, task.tokenizer_digest)
        encoder = TextEncoder(tokenizer, bos=task.bos, eos=task.eos, id_bytes=task.id_bytes, threads=threads)
        shards = write_shards(source, encoder, account, task.domain, folder, task.id_bytes, progress)
        made.append(_report(source, account, shards))
        (folder / MARKER).write_bytes(canonical(made[0].to_json()) + b"\n")
        sync(folder / MARKER)
    return made[0]


def _report(source: Source, account: Account, shards: list[tuple[ShardInfo, Profile]]) -> UnitReport:
    return UnitReport(
        hash=source.hash,
        size=source.size,
        read=account.read,
        packed=account.packed,
        held_out=account.held_out,
        rejected=dict(sorted(account.rejected.items())),
        replaced=dict(sorted(account.replaced.items())),
        notes=dict(sorted(account.notes.items())),
        shards=tuple(shard for shard, _ in shards),
        profiles=tuple(profile for _, profile in shards),
    )
