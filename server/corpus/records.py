"""The manifest: what a corpus is made of, as JSON, written last.

Its digest covers what the corpus *means*: token ids, document lengths, the tokenizer, widths and the pad id. Paths,
times and the way Arrow spells the bytes are left out, so that the same corpus built elsewhere has the same digest.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from headrace.native import Blake3
from headrace.proto.errors import ConfigError, DataLossError, NotFoundError
from headrace.server.corpus.durable import write_file
from headrace.server.corpus.shard import ShardInfo

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
    """One source file and what became of its rows: read = packed + the sum of `rejected`.

    Attributes:
        path: as CORPUS.toml reaches it
        entry: name of the [[domain]] it belongs to
        size, hash: bytes of the file and their BLAKE3, hex
        unit: folder of its token store below the corpus
        read, packed: documents
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
    rejected: Mapping[str, int]
    replaced: Mapping[str, int]
    notes: Mapping[str, int]

    def __post_init__(self) -> None:
        if self.read != self.packed + sum(self.rejected.values()):
            raise ConfigError(
                f"`{self.path}`: {self.read} documents read, "
                f"but {self.packed} packed and {dict(self.rejected)} rejected"
            )


@dataclass(frozen=True, kw_only=True, slots=True)
class ShardRecord:
    """A shard of a domain and the source (its number in the manifest) it was made from."""

    source: int
    shard: ShardInfo


@dataclass(frozen=True, kw_only=True, slots=True)
class DomainRecord:
    """A domain: its generations, each a list of shards in the order of their sources."""

    name: str
    generations: tuple[tuple[ShardRecord, ...], ...]

    @property
    def shards(self) -> Iterable[ShardRecord]:
        return (record for generation in self.generations for record in generation)

    def total(self, what: str) -> int:
        """Sum of `tokens`, `documents` or `text_bytes` over the shards."""
        return sum(getattr(record.shard, what) for record in self.shards)


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
    """All that is known of a corpus without opening a shard."""

    tokenizer: TokenizerRecord
    id_bytes: int
    domains: tuple[DomainRecord, ...]
    sources: tuple[SourceRecord, ...]

    @property
    def digest(self) -> str:
        """BLAKE3 of the canonical content, hex."""
        content = {
            domain.name: [[record.shard.content for record in shards] for shards in domain.generations]
            for domain in self.domains
        }
        kept = ("digest", "vocab_size", "pad_id")
        tokenizer = {name: getattr(self.tokenizer, name) for name in kept}
        return digest_of({"format": FORMAT, "id_bytes": self.id_bytes, "tokenizer": tokenizer, "domains": content})

    def to_json(self) -> str:
        domains = [
            {
                "name": domain.name,
                "tokens": domain.total("tokens"),
                "documents": domain.total("documents"),
                "generations": [
                    [{"source": record.source, **record.shard.to_json()} for record in shards]
                    for shards in domain.generations
                ],
            }
            for domain in self.domains
        ]
        whole = {
            "format": FORMAT,
            "digest": self.digest,
            "id_bytes": self.id_bytes,
            "tokenizer": _plain(self.tokenizer),
            "domains": domains,
            "sources": [_plain(source) for source in self.sources],
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
                domains=tuple(_domain(domain) for domain in whole["domains"]),
                sources=tuple(SourceRecord(**source) for source in whole["sources"]),
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
            raise NotFoundError(f"no corpus at `{path}`; make it with: headrace corpus build CORPUS.toml") from None
        except (OSError, UnicodeDecodeError) as error:
            raise DataLossError(f"cannot read the manifest `{path}`: {error}") from None
        return cls.from_json(text, place=str(path))

    def save(self, path: Path) -> None:
        write_file(path, self.to_json().encode())


def _plain(record: Any) -> dict[str, Any]:
    return {field.name: getattr(record, field.name) for field in fields(record)}


def _domain(value: Mapping[str, Any]) -> DomainRecord:
    def record(shard: Mapping[str, Any]) -> ShardRecord:
        rest = {key: item for key, item in shard.items() if key != "source"}
        return ShardRecord(source=shard["source"], shard=ShardInfo(**rest))

    generations = tuple(tuple(record(shard) for shard in shards) for shards in value["generations"])
    return DomainRecord(name=value["name"], generations=generations)
