"""The manifest: what a corpus is made of, as JSON, written last.

Its digest covers what the corpus *means*: token ids, document lengths, the tokenizer, widths and the pad id. Paths,
times and the way Arrow spells the bytes are left out, so that the same corpus built elsewhere has the same digest.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from headrace.native import Blake3
from headrace.proto.errors import ConfigError, DataLossError, NotFoundError
from headrace.server.corpus.durable import write_file
from headrace.server.corpus.profile import Profile
from headrace.server.corpus.shard import HOLDOUT, TRAIN, ShardInfo

FORMAT = "headrace-corpus/1"


def canonical(value: object) -> bytes:
    """JSON with sorted keys and no spaces: equal values have equal bytes."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


def digest_of(value: object) -> str:
    """BLAKE3 of the canonical JSON, hex."""
    hasher = Blake3()
    hasher.update(canonical(value))
    return hasher.digest().hex()


@dataclass(frozen=True, kw_only=True, slots=True)
class SourceRecord:
    """One source file and what became of its rows: read = packed + held_out + the sum of `rejected`.

    Attributes:
        path: as CORPUS.toml reaches it
        entry: name of the [[domain]] it belongs to
        size, hash: bytes of the file and their BLAKE3, hex
        unit: folder of its token store below the corpus
        read, packed, held_out: documents
        rejected: documents by reason
        replaced: packed documents in which something was replaced, by reason
        notes: what is no document (blank lines, byte order marks) and packed documents with special-token text
    """

    path: str
    entry: str
    size: int
    hash: str
    unit: str
    read: int
    packed: int
    held_out: int
    rejected: Mapping[str, int]
    replaced: Mapping[str, int]
    notes: Mapping[str, int]

    def __post_init__(self) -> None:
        if self.read != self.packed + self.held_out + sum(self.rejected.values()):
            raise ConfigError(
                f"`{self.path}`: {self.read} documents read, "
                f"but {self.packed} packed, {self.held_out} held out and {dict(self.rejected)} rejected"
            )


@dataclass(frozen=True, kw_only=True, slots=True)
class ShardRecord:
    """A shard of a domain, the source (its number in the manifest) it was made from, and its folder."""

    source: int
    folder: str
    shard: ShardInfo


Generations = tuple[tuple[ShardRecord, ...], ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class DomainRecord:
    """A domain: its generations, each a list of shards in the order of their sources, and what is kept apart.

    Attributes:
        name: of the domain
        generations: shards for training
        holdout: the same for the documents kept for evaluation, a generation for each of the others
        duplicates: documents whose text is that of an earlier one of the domain, whether dropped or kept
        profile: what its documents for training look like
    """

    name: str
    generations: Generations
    holdout: Generations = ()
    duplicates: int = 0
    profile: Profile = field(default_factory=Profile)

    def part(self, name: str) -> Generations:
        """The generations for training, or the held-out ones."""
        return self.generations if name == TRAIN else self.holdout

    def total(self, what: str, part: str = TRAIN) -> int:
        """Sum of `tokens`, `documents` or `text_bytes` over the shards."""
        return sum(getattr(record.shard, what) for shards in self.part(part) for record in shards)


@dataclass(frozen=True, kw_only=True, slots=True)
class TokenizerRecord:
    """The tokenizer of a corpus; `file` is its copy below the corpus."""

    file: str
    digest: str
    vocab_size: int
    pad_id: int
    bos_id: int | None
    eos_id: int | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Manifest:
    """All that is known of a corpus without opening a shard.

    Attributes:
        tokenizer: which one made the ids
        id_bytes: 2 or 4
        tail: what `concat` does with the last, unfilled window: `pad` or `drop`
        domains: sorted bytewise by name
        sources: all source files, in the order of CORPUS.toml
        damaged: files left out because they are damaged, and why
    """

    tokenizer: TokenizerRecord
    id_bytes: int
    tail: str
    domains: tuple[DomainRecord, ...]
    sources: tuple[SourceRecord, ...]
    damaged: Mapping[str, str]

    @property
    def digest(self) -> str:
        """BLAKE3 of the canonical content, hex."""
        kept = ("digest", "vocab_size", "pad_id")
        whole = {
            "format": FORMAT,
            "id_bytes": self.id_bytes,
            "tail": self.tail,
            "tokenizer": {name: getattr(self.tokenizer, name) for name in kept},
            TRAIN: {domain.name: _contents(domain.generations) for domain in self.domains},
            HOLDOUT: {domain.name: _contents(domain.holdout) for domain in self.domains if domain.holdout},
        }
        return digest_of(whole)

    def to_json(self) -> str:
        domains = [
            {
                "name": domain.name,
                "tokens": domain.total("tokens"),
                "documents": domain.total("documents"),
                "duplicates": domain.duplicates,
                "profile": domain.profile.to_json(),
                "generations": _generations_json(domain.generations),
                "holdout": _generations_json(domain.holdout),
            }
            for domain in self.domains
        ]
        whole = {
            "format": FORMAT,
            "digest": self.digest,
            "id_bytes": self.id_bytes,
            "tail": self.tail,
            "tokenizer": _plain(self.tokenizer),
            "domains": domains,
            "sources": [_plain(source) for source in self.sources],
            "damaged": dict(self.damaged),
        }
        return json.dumps(whole, indent=1, ensure_ascii=False) + "\n"

    @classmethod
    def from_json(cls, text: str, *, place: str) -> Manifest:
        """Parses and checks the digest; anything odd is an error that names `place`."""
        try:
            whole = json.loads(text)
            if whole.get("format") != FORMAT:
                raise ConfigError(
                    f"`{place}`: format `{whole.get('format')}` is not `{FORMAT}`; build the corpus again"
                )
            manifest = cls(
                tokenizer=TokenizerRecord(**whole["tokenizer"]),
                id_bytes=whole["id_bytes"],
                tail=whole["tail"],
                domains=tuple(_domain(domain) for domain in whole["domains"]),
                sources=tuple(SourceRecord(**source) for source in whole["sources"]),
                damaged=whole["damaged"],
            )
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise DataLossError(f"`{place}` is no whole manifest ({error}); build the corpus again") from None
        if manifest.digest != whole["digest"]:
            raise DataLossError(f"`{place}`: its content does not fit its digest; restore it or build the corpus again")
        return manifest

    @classmethod
    def load(cls, path: Path) -> Manifest:
        try:
            text = path.read_text(encoding="utf-8")
        except FileNotFoundError:
            verb = "grow" if Path(path).name.startswith("generation-") else "build"
            raise NotFoundError(f"no corpus at `{path}`; make it with: headrace corpus {verb} CORPUS.toml") from None
        except (OSError, UnicodeDecodeError) as error:
            raise DataLossError(f"cannot read the manifest `{path}`: {error}") from None
        return cls.from_json(text, place=str(path))

    def save(self, path: Path) -> None:
        write_file(path, self.to_json().encode())


def _plain(record: Any) -> dict[str, Any]:
    return {each.name: getattr(record, each.name) for each in fields(record)}


def _contents(generations: Generations) -> list[list[str]]:
    return [[record.shard.content for record in shards] for shards in generations]


def _generations_json(generations: Generations) -> list[list[dict[str, Any]]]:
    return [
        [{"source": record.source, "folder": record.folder, **record.shard.to_json()} for record in shards]
        for shards in generations
    ]


def _generations(value: Sequence[Sequence[Mapping[str, Any]]]) -> Generations:
    def record(shard: Mapping[str, Any]) -> ShardRecord:
        rest = {key: item for key, item in shard.items() if key not in ("source", "folder")}
        return ShardRecord(source=shard["source"], folder=shard["folder"], shard=ShardInfo(**rest))

    return tuple(tuple(record(shard) for shard in shards) for shards in value)


def _domain(value: Mapping[str, Any]) -> DomainRecord:
    return DomainRecord(
        name=value["name"],
        generations=_generations(value["generations"]),
        holdout=_generations(value["holdout"]),
        duplicates=value["duplicates"],
        profile=Profile.from_json(value["profile"]),
    )
