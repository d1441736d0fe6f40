"""The corpora of a run: the one that its spec names, and generations that join its domains while it runs.

Windows of a grown domain are numbered over its generations in the order in which they join, as the plan numbers them.
A step whose rows all come from one corpus is read in one piece; rows of several are read apart and put in slot order.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
from headrace.proto.errors import ConflictError, DataLossError, UsageError
from headrace.server.corpus.manifest import Corpus
from headrace.server.corpus.masks import Found, check_found, hint, shard_names
from headrace.server.corpus.served import DamagedShardError, Rows, SourcePart
from headrace.server.plan.facts import CorpusFacts, GenerationFacts
from headrace.server.plan.log import Event, GrowBody, MaskBody, bodies
from headrace.server.plan.plan import Plan
from headrace.server.plan.shapes import Shape
from headrace.server.plan.whole import NO_WINDOW


class Library:
    """A corpus with the generations that are open here, by digest in hex. `with_generation` makes another one."""

    def __init__(self, base: Corpus, generations: Mapping[str, Corpus] | None = None) -> None:
        self.base = base
        self.generations = dict(generations or {})

    def with_generation(self, corpus: Corpus, domain: str) -> Library:
        """The library with one generation more; raises UsageError when it does not fit the run's corpus."""
        if corpus.tokenizer_digest != self.base.tokenizer_digest:
            raise UsageError(
                f"the generation was made with tokenizer {corpus.tokenizer_digest.hex()[:16]}, the run's corpus with "
                f"{self.base.tokenizer_digest.hex()[:16]}; build it with the tokenizer of the run"
            )
        if corpus.id_bytes != self.base.id_bytes:
            raise UsageError(
                f"the generation has ids of {corpus.id_bytes} bytes, the run's corpus of {self.base.id_bytes}; "
                f"build it with id_bytes = {self.base.id_bytes}"
            )
        if domain not in corpus.domains:
            raise UsageError(f"the generation has no domain `{domain}`; it has {', '.join(corpus.domains)}")
        return Library(self.base, {**self.generations, corpus.digest.hex(): corpus})

    def facts(self, shapes: Iterable[tuple[int, str]]) -> CorpusFacts:
        """What the plan needs to know of the corpus and of every open generation."""
        wanted = set(shapes)
        joining = {
            (digest, domain): GenerationFacts(
                tokens=facts.tokens[domain], views={shape: facts.view(domain, *shape) for shape in wanted}
            )
            for digest, corpus in self.generations.items()
            for facts in (corpus.facts(wanted),)
            for domain in corpus.domains
        }
        return replace(self.base.facts(wanted), generations=joining)

    def read(
        self,
        plan: Plan,
        shape: Shape,
        domains: npt.NDArray[np.uint32],
        windows: npt.NDArray[np.uint64],
        masks: tuple[MaskBody, ...] = (),
    ) -> Rows:
        """Windows `windows[i]` of `plan.domains[domains[i]]` under masks; raises DataLossError for bad bytes."""

        def rows(corpus: Corpus, domains: npt.NDArray[np.uint32], windows: npt.NDArray[np.uint64]) -> Rows:
            mask = corpus.masked(masks) if masks else None
            return corpus.read(shape.seq_len, shape.packing, plan.domains, domains, windows, mask)

        empty = windows == np.uint64(NO_WINDOW)
        if empty.any():  # rows that fill the last batch of an evaluation
            kept, filling = np.flatnonzero(~empty), np.flatnonzero(empty)
            padding = _padding(len(filling), shape.seq_len + 1, self.base.pad_id, self.base.id_bytes)
            if not len(kept):
                return padding
            read = self.read(plan, shape, domains[kept], windows[kept], masks)
            return _merged([read, padding], [kept, filling], len(windows))
        if not plan.timeline.grows:
            return rows(self.base, domains, windows)
        corpora, (number, local) = self._corpora(plan, shape, domains, windows)
        if len(corpora) == 1:
            return rows(corpora[0], domains, local)
        picks = [np.flatnonzero(number == which) for which in range(len(corpora))]
        parts = [rows(corpus, domains[pick], local[pick]) for corpus, pick in zip(corpora, picks, strict=True)]
        return _merged(parts, picks, len(windows))

    @property
    def _all(self) -> tuple[Corpus, ...]:
        return (self.base, *self.generations.values())

    def shard_of(self, error: DataLossError) -> str:
        """What masks call the shard that an error is about; empty when it is about none."""
        path = error.path if isinstance(error, DamagedShardError) else ""
        for corpus in self._all:
            if path and Path(path).is_relative_to(corpus.root):
                return corpus.shard_name(path)
        return ""

    def domains_of(self, shards: frozenset[str]) -> set[str]:
        """The domains that have one of these shards, called as masks call them."""
        manifests = [corpus.manifest for corpus in self._all] if shards else []
        return {domain.name for manifest in manifests for domain in manifest.domains if shards & shard_names(domain)}

    def look_up(self, body: MaskBody, others: Sequence[MaskBody]) -> dict[str, int]:
        """Tokens of each domain that a mask takes down; NotFoundError when a value names nothing in any corpus."""
        found: list[tuple[Corpus, Found]] = [(corpus, corpus.find_masked(body, others)) for corpus in self._all]
        missing = frozenset.intersection(*(one.missing for _, one in found))
        check_found(body, missing, hint(self.base.manifest, body, missing))
        counts: dict[str, int] = {}
        for corpus, one in found:
            for name, tokens in corpus.masked_tokens(one.mask).items():
                counts[name] = counts.get(name, 0) + tokens
        return counts

    def _corpora(
        self, plan: Plan, shape: Shape, domains: npt.NDArray[np.uint32], windows: npt.NDArray[np.uint64]
    ) -> tuple[list[Corpus], tuple[npt.NDArray[np.int64], npt.NDArray[np.uint64]]]:
        """The corpora that the rows need, and for each row the number of its corpus and its window there."""
        corpora: list[Corpus] = []
        number = np.zeros(len(windows), dtype=np.int64)
        local = windows.astype(np.uint64)
        for place in np.unique(domains):
            rows = np.flatnonzero(domains == place)
            first = 0
            for corpus in self._generations(plan, plan.domains[int(place)]):
                count = corpus.view(plan.domains[int(place)], shape.seq_len, shape.packing).windows
                here = rows[(windows[rows] >= first) & (windows[rows] < first + count)]
                if len(here):
                    if corpus not in corpora:
                        corpora.append(corpus)
                    number[here] = corpora.index(corpus)
                    local[here] = windows[here] - np.uint64(first)
                first += count
        return corpora, (number, np.ascontiguousarray(local))

    def _generations(self, plan: Plan, domain: str) -> Iterator[Corpus]:
        """The corpora of a domain in the order in which they join; those that are not open here end it."""
        if domain in self.base.domains:
            yield self.base
        for body in grow_bodies(plan.timeline.grows):
            if body.domain == domain:
                if body.generation not in self.generations:
                    return
                yield self.generations[body.generation]

    def sources(self, plan: Plan, shape: Shape, domain: str, window: int) -> list[SourcePart]:
        """The documents of a window; none of one that fills the last batch of an evaluation."""
        if window == NO_WINDOW:
            return []
        first = 0
        for corpus in self._generations(plan, domain):
            count = corpus.view(domain, shape.seq_len, shape.packing).windows
            if window < first + count:
                return corpus.sources(domain, shape.seq_len, shape.packing, window - first)
            first += count
        raise ConflictError(f"window {window} of domain `{domain}` is in no generation that is open here")

    def documents_of(
        self, plan: Plan, shape: Shape, domain: str, windows: npt.NDArray[np.uint64], within: int
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Documents that begin in the first `within` inputs of windows: place in `windows`, offset, length."""
        first, found = 0, []
        for corpus in self._generations(plan, domain):
            count = corpus.view(domain, shape.seq_len, shape.packing).windows
            here = np.flatnonzero((windows >= first) & (windows < first + count))
            if len(here):
                local = windows[here] - np.uint64(first)
                rows, offsets, lengths = corpus.documents_of(domain, shape.seq_len, shape.packing, local, within)
                found.append((here[rows], offsets, lengths))
            first += count
        if not found:
            return (np.zeros(0, np.int64),) * 3
        rows, offsets, lengths = (np.concatenate(each) for each in zip(*found, strict=True))
        return rows, offsets, lengths


def grow_bodies(events: Iterable[Event]) -> Iterator[GrowBody]:
    """The generations that events bring, in order."""
    return bodies(events, GrowBody)


def _padding(count: int, width: int, pad_id: int, id_bytes: int) -> Rows:
    """Rows of nothing but padding."""
    ids = np.full(count * width, pad_id, dtype=f"<u{id_bytes}").tobytes()
    zeros, nothing = np.zeros(count, dtype=np.uint32), np.zeros(0, dtype=np.uint32)
    return Rows(ids, zeros, nothing, zeros, zeros, nothing)


def _merged(parts: Sequence[Rows], picks: Sequence[npt.NDArray[np.int64]], count: int) -> Rows:
    """Rows of several corpora in slot order."""
    width = next(len(part.ids) // len(pick) for part, pick in zip(parts, picks, strict=True))
    ids = np.empty((count, width), dtype=np.uint8)
    real_ids = np.empty(count, dtype=np.uint32)
    for part, pick in zip(parts, picks, strict=True):
        ids[pick] = np.frombuffer(part.ids, dtype=np.uint8).reshape(len(pick), width)
        real_ids[pick] = part.real_ids
    edges = _ragged([(part.edge_ends, part.edges) for part in parts], picks, count)
    masks = _ragged(
        [(_ends(part, len(pick)), part.masks) for part, pick in zip(parts, picks, strict=True)], picks, count
    )
    return Rows(ids.tobytes(), *edges, real_ids, *masks)


def _ends(part: Rows, count: int) -> npt.NDArray[np.uint32]:
    return part.mask_ends if part.masks.size else np.zeros(count, dtype=np.uint32)


def _ragged(
    parts: Sequence[tuple[npt.NDArray[np.uint32], npt.NDArray[np.uint32]]],
    picks: Sequence[npt.NDArray[np.int64]],
    count: int,
) -> tuple[npt.NDArray[np.uint32], npt.NDArray[np.uint32]]:
    """Lists of rows as (ends, values), in slot order."""
    rows: list[npt.NDArray[np.uint32]] = [np.empty(0, dtype=np.uint32)] * count
    for (ends, values), pick in zip(parts, picks, strict=True):
        begins = np.concatenate([np.zeros(1, dtype=np.uint32), ends[:-1]])
        for row, begin, end in zip(pick, begins, ends, strict=True):
            rows[int(row)] = values[int(begin) : int(end)]
    return np.cumsum([len(row) for row in rows], dtype=np.uint32), np.concatenate(rows)
