"""What a manifest says, as plain values for people and programs."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np
from headrace.server.corpus.manifest import Corpus
from headrace.server.corpus.records import DomainRecord, Manifest
from headrace.server.corpus.shard import HOLDOUT

_QUANTILES = {"p05": 0.05, "p50": 0.5, "p95": 0.95, "p99": 0.99}
_COUNTS = ("rejected", "replaced", "notes")


def summary(manifest: Manifest) -> dict[str, Any]:
    """Totals of the corpus, then of each domain."""
    return {
        "digest": manifest.digest,
        "tokenizer": manifest.tokenizer.digest,
        "vocab_size": manifest.tokenizer.vocab_size,
        "id_bytes": manifest.id_bytes,
        "tail": manifest.tail,
        "files": len(manifest.sources),
        "source_bytes": sum(source.size for source in manifest.sources),
        **{what: sum(getattr(source, what) for source in manifest.sources) for what in ("read", "packed", "held_out")},
        **{what: _counts(manifest, what) for what in _COUNTS},
        "damaged": dict(manifest.damaged),
        "entries": [_entry(manifest, name) for name in dict.fromkeys(source.entry for source in manifest.sources)],
        "domains": [_domain(domain) for domain in manifest.domains],
    }


def _entry(manifest: Manifest, name: str) -> dict[str, Any]:
    """The books of one [[domain]] of CORPUS.toml, which may make many domains: read = packed + held_out + rejected."""
    mine = [source for source in manifest.sources if source.entry == name]
    rejected: Counter[str] = Counter()
    for source in mine:
        rejected.update(source.rejected)
    return {
        "name": name,
        "files": len(mine),
        **{what: sum(getattr(source, what) for source in mine) for what in ("read", "packed", "held_out")},
        "rejected": dict(sorted(rejected.items())),
    }


def _counts(manifest: Manifest, what: str) -> dict[str, int]:
    total: Counter[str] = Counter()
    for source in manifest.sources:
        total.update(getattr(source, what))
    return dict(sorted(total.items()))


def _domain(domain: DomainRecord) -> dict[str, Any]:
    tokens, text_bytes = domain.total("tokens"), domain.total("text_bytes")
    return {
        "name": domain.name,
        "documents": domain.total("documents"),
        "tokens": tokens,
        "text_bytes": text_bytes,
        "bytes_per_token": round(text_bytes / max(1, tokens), 3),
        "length": {name: domain.profile.quantile(share) for name, share in _QUANTILES.items()},
        "duplicates": domain.duplicates,
        "held_out": domain.total("documents", HOLDOUT),
        "generations": len(domain.generations),
    }


def view_sizes(corpus: Corpus, seq_len: int, packing: str) -> list[dict[str, Any]]:
    """The view of each domain: its windows, its fill, and the tokens of a tail that is dropped."""
    sizes = {name: corpus.view(name, seq_len, packing) for name in corpus.domains}
    return [
        {
            "name": name,
            "windows": size.windows,
            "fill": round(size.fill(seq_len), 6),
            "padding": size.windows * seq_len - size.real_tokens,
            "dropped": corpus.tokens(name) - size.real_tokens,
        }
        for name, size in sizes.items()
    ]


@dataclass(frozen=True, slots=True)
class SampleDocument:
    """A document, or the begin of it, from the token store, with the text of each token."""

    domain: str
    file: str
    row: int
    tokens: list[bytes]


def sample(corpus: Corpus, domain: str, documents: int, longest: int) -> list[SampleDocument]:
    """The first documents of windows that lie evenly over the domain; at most `longest` tokens of each."""
    from headrace.tokenizer.tokenizer import Tokenizer

    tokenizer = Tokenizer.load(corpus.tokenizer_path)
    count = corpus.view(domain, longest, "concat").windows
    found = []
    for window in np.unique(np.linspace(0, count - 1, min(documents, count)).astype(np.uint64)):
        rows = corpus.read(longest, "concat", [domain], np.zeros(1, np.uint32), np.array([window], np.uint64))
        ids = np.frombuffer(rows.ids, np.uint16 if corpus.id_bytes == 2 else np.uint32)
        part = corpus.sources(domain, longest, "concat", int(window))[0]
        tokens = [tokenizer.decode(ids[at : at + 1]) for at in range(min(part.end - part.begin, longest))]
        found.append(SampleDocument(domain, part.file, part.row, tokens))
    return found
