"""Documents taken down, and shards in quarantine: which tokens of which streams are served as padding.

A mask names documents by source (`path`, or `path:row`), by the digest of their text (32 hexadecimal digits, as
`headrace corpus hash` prints them), by a kept field (`name=value`), or names whole shards
(`folder/file` below the corpus). Resolving one reads the document columns of the shards that may hold such documents,
after checking them from end to end; a shard in quarantine is never read. The windows of a view stay what they are:
masked tokens become parts of padding, which are not read at all.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
from headrace.native import PADDING
from headrace.proto.errors import DataLossError, NotFoundError, UsageError
from headrace.server.corpus.records import DomainRecord, Manifest, ShardRecord
from headrace.server.corpus.shard_read import ShardDocuments, is_whole, read_documents
from headrace.server.corpus.views import Parts, differences
from headrace.server.plan.log import MaskBody

Spans = tuple[npt.NDArray[np.uint64], npt.NDArray[np.uint64]]
"""Begins and ends of runs of tokens of a stream, sorted, disjoint."""


@dataclass(frozen=True, slots=True)
class Mask:
    """Masked tokens by stream number."""

    spans: Mapping[int, Spans]

    def tokens(self, number: int) -> int:
        """Masked tokens of a stream."""
        spans = self.spans.get(number)
        return int((spans[1] - spans[0]).sum()) if spans else 0

    def __or__(self, other: Mask) -> Mask:
        both = {number: [self.spans.get(number), other.spans.get(number)] for number in {*self.spans, *other.spans}}
        return Mask({number: _union([spans for spans in pair if spans]) for number, pair in both.items()})

    def apply(self, parts: Parts) -> tuple[Parts, npt.NDArray[np.uint32], npt.NDArray[np.uint32]]:
        """The parts with padding where they are masked, and where that is in each row.

        Returns parts, mask ends and masks: the masked offsets of row r are the pairs [begin, end) in
        `masks[mask_ends[r-1]:mask_ends[r]]`.
        """
        hit = self._hits(parts)
        if not hit.any():
            return parts, np.zeros(len(parts.ends), np.uint32), np.zeros(0, np.uint32)
        return self._cut(parts, hit)

    def _hits(self, parts: Parts) -> npt.NDArray[np.bool_]:
        """Which parts hold a masked token."""
        hit = np.zeros(len(parts.streams), np.bool_)
        for number, (begins, ends) in self.spans.items():
            mine = np.flatnonzero(parts.streams == number)
            first = np.searchsorted(ends, parts.starts[mine], side="right")
            last = np.searchsorted(begins, parts.starts[mine] + parts.lengths[mine], side="left")
            hit[mine] = first < last
        return hit

    def _cut(
        self, parts: Parts, hit: npt.NDArray[np.bool_]
    ) -> tuple[Parts, npt.NDArray[np.uint32], npt.NDArray[np.uint32]]:
        streams: list[int] = []
        starts: list[int] = []
        lengths: list[int] = []
        ends, mask_ends, masks = [], [], []
        part = 0
        for count in differences(parts.ends).tolist():
            offset = 0
            for number in range(part, part + count):
                for stream, start, length in self._pieces(parts, number) if hit[number] else _same(parts, number):
                    if stream == PADDING:
                        masks += [offset, offset + length]
                    streams.append(stream)
                    starts.append(start)
                    lengths.append(length)
                    offset += length
            part += count
            ends.append(len(streams))
            mask_ends.append(len(masks))
        cut = Parts(
            np.array(ends, np.uint32),
            np.array(streams, np.uint32),
            np.array(starts, np.uint64),
            np.array(lengths, np.uint32),
            whole=parts.whole,
        )
        return cut, np.array(mask_ends, np.uint32), np.array(masks, np.uint32)

    def _pieces(self, parts: Parts, number: int) -> Iterator[tuple[int, int, int]]:
        """One part cut at the begins and ends of masked spans."""
        stream, at = int(parts.streams[number]), int(parts.starts[number])
        end = at + int(parts.lengths[number])
        begins, ends = self.spans[stream]
        first, last = int(np.searchsorted(ends, at, side="right")), int(np.searchsorted(begins, end, side="left"))
        for low, high in zip(begins[first:last].tolist(), ends[first:last].tolist(), strict=True):
            if at < low:
                yield stream, at, low - at
            at = max(at, low)
            yield PADDING, 0, min(high, end) - at
            at = min(high, end)
        if at < end:
            yield stream, at, end - at


def _same(parts: Parts, number: int) -> Iterator[tuple[int, int, int]]:
    yield int(parts.streams[number]), int(parts.starts[number]), int(parts.lengths[number])


def _union(several: Sequence[Spans]) -> Spans:
    """Spans as few as possible that cover the same tokens."""
    begins = np.concatenate([spans[0] for spans in several])
    ends = np.concatenate([spans[1] for spans in several])
    order = np.lexsort((ends, begins))
    begins, ends = begins[order], np.maximum.accumulate(ends[order])
    fresh = np.concatenate([[True], begins[1:] > ends[:-1]]) if len(begins) else np.zeros(0, np.bool_)
    last = np.concatenate([fresh[1:], [True]]) if len(begins) else fresh
    return begins[fresh], ends[last]


@dataclass(frozen=True, slots=True)
class Found:
    """What a mask event takes down in a corpus, and its values that name nothing there."""

    mask: Mask
    missing: frozenset[str]


def quarantined(bodies: Iterable[MaskBody]) -> frozenset[str]:
    """The shards that events have put into quarantine."""
    return frozenset(value for body in bodies if body.by == "shard" and not body.domain for value in body.values)


def hint(manifest: Manifest, body: MaskBody, missing: Iterable[str]) -> str:
    """What the corpus has in place of values that name nothing there."""
    if body.by == "source":
        return _source_hint(manifest, sorted(missing))
    if body.by == "hash":
        return "a digest is that of a text byte for byte, as `headrace corpus hash FILE` prints it"
    if body.by == "field":
        return "values are NAME=VALUE of the fields that CORPUS.toml says to `keep`, written as they stand there"
    return "shards are called as messages call them: FOLDER/FILE below the corpus"


def _source_hint(manifest: Manifest, missing: Sequence[str]) -> str:
    """For a row: which rows the file has. For a file: those of like names."""
    sources = {source.path: source for source in manifest.sources}
    path, _, row = missing[0].rpartition(":") if missing else ("", "", "")
    if path in sources and row.isdigit():
        file = sources[path]
        rejected, held = sum(file.rejected.values()), file.held_out
        kept = f", {held:,} are held out and in evaluation runs only" if held else ""
        return f"of the {file.read:,} documents of `{path}`, {rejected:,} were left out at the build{kept}"
    like = difflib.get_close_matches(missing[0], sources, 3, 0.4) if missing else []
    shown = ", ".join(f"`{name}`" for name in like or list(sources)[:3])
    more = "" if len(sources) <= 3 else f" and others ({len(sources):,} in all)"
    return f"files are called as the manifest calls them, with :ROW for one document; it has {shown}{more}"


def resolve(manifest: Manifest, root: Path, part: str, bodies: Sequence[MaskBody]) -> Mask:
    """The tokens that mask events take down; a value that names nothing is a `NotFoundError`."""
    mask = Mask({})
    for body in bodies:
        found = find(manifest, root, part, body, quarantined(bodies))
        check_found(body, found.missing, hint(manifest, body, found.missing))
        mask |= found.mask
    return mask


def check_found(body: MaskBody, missing: Iterable[str], remedy: str) -> None:
    """Raises NotFoundError when a value of a mask event names nothing; `remedy` says what would."""
    if names := sorted(missing):
        where = f"domain `{body.domain}`" if body.domain else "the corpus"
        shown = ", ".join(map(repr, names))
        raise NotFoundError(f"mask by {body.by}: {where} has no {shown}; {remedy}; nothing was masked")


def find(manifest: Manifest, root: Path, part: str, body: MaskBody, skipped: frozenset[str]) -> Found:
    """What an event takes down. Shards that are `skipped` are masked already, and are not read."""
    wanted = dict.fromkeys(body.values, False)
    look = _finder(body, wanted)
    spans: dict[int, Spans] = {}
    stream = 0
    for domain in manifest.domains:
        for shards in domain.part(part):
            found = []
            first = 0
            for record in shards:
                skip = body.by != "shard" and _name(record) in skipped
                if not skip and (not body.domain or body.domain == domain.name):
                    found += look(manifest, root, record, first)
                first += record.shard.tokens
            if found:
                spans[stream] = _union(found)
            stream += 1
    return Found(Mask(spans), frozenset(value for value, seen in wanted.items() if not seen))


def _name(record: ShardRecord) -> str:
    """What events call a shard."""
    return f"{record.folder}/{record.shard.file}"


def shard_names(domain: DomainRecord) -> set[str]:
    """What events call the training shards of a domain."""
    return {_name(record) for generation in domain.generations for record in generation}


Look = Callable[[Manifest, Path, ShardRecord, int], list[Spans]]
Chosen = npt.NDArray[np.bool_]


def _finder(body: MaskBody, wanted: dict[str, bool]) -> Look:
    """What finds the masked spans of a shard whose first token has a number; marks what it has seen in `wanted`."""
    if body.by == "shard":
        return lambda manifest, root, record, first: _by_shard(record, first, wanted)
    pickers: dict[str, Callable[[ShardDocuments, str], Chosen]] = {
        "source": lambda documents, path: _rows(documents, path, wanted),
        "hash": lambda documents, path: _digests(documents, wanted),
        "field": lambda documents, path: _fields(documents, wanted),
    }
    pick = pickers[body.by]

    def look(manifest: Manifest, root: Path, record: ShardRecord, first: int) -> list[Spans]:
        path = manifest.sources[record.source].path
        if body.by == "source" and not any(value == path or value.startswith(f"{path}:") for value in wanted):
            return []
        folder = root / record.folder
        if not is_whole(folder, record.shard, blocks=True):
            raise DataLossError(
                f"`{folder / record.shard.file}` is damaged, so the documents to mask cannot be looked up in it; "
                "restore it, or mask the shard itself"
            )
        documents = read_documents(folder / record.shard.file)
        chosen = pick(documents, path)
        ends = documents.ends.astype(np.uint64) + np.uint64(first)
        begins = np.concatenate([np.array([first], np.uint64), ends[:-1]])
        return [(begins[chosen], ends[chosen])] if chosen.any() else []

    return look


def _by_shard(record: ShardRecord, first: int, wanted: dict[str, bool]) -> list[Spans]:
    name = _name(record)
    if name not in wanted:
        return []
    wanted[name] = True
    return [(np.array([first], np.uint64), np.array([first + record.shard.tokens], np.uint64))]


def _rows(documents: ShardDocuments, path: str, wanted: dict[str, bool]) -> Chosen:
    if path in wanted:
        wanted[path] = True
        return np.ones(len(documents.rows), np.bool_)
    rows = {value: value.removeprefix(f"{path}:") for value in wanted if value.startswith(f"{path}:")}
    numbers = {value: int(row) for value, row in rows.items() if row.isdigit()}
    for value, number in numbers.items():
        wanted[value] |= bool((documents.rows == number).any())
    chosen: Chosen = np.isin(documents.rows, np.array(list(numbers.values()), np.uint64))
    return chosen


def _digests(documents: ShardDocuments, wanted: dict[str, bool]) -> Chosen:
    have = np.ascontiguousarray(documents.digests).view("V16")[:, 0]
    chosen = np.zeros(len(have), np.bool_)
    for value in wanted:
        try:
            raw = bytes.fromhex(value)
        except ValueError:
            raw = b""
        if len(raw) != 16:
            raise UsageError(
                f"`{value}` is no digest of a document: 32 hexadecimal digits, as `headrace corpus hash` prints"
            )
        same = have == np.void(raw)
        wanted[value] |= bool(same.any())
        chosen |= same
    return chosen


def _fields(documents: ShardDocuments, wanted: dict[str, bool]) -> Chosen:
    chosen = np.zeros(len(documents.rows), np.bool_)
    for value in wanted:
        name, equals, text = value.partition("=")
        if not equals:
            raise UsageError(f"`{value}` is no field: write name=value")
        same = np.fromiter((str(each.get(name)) == text for each in documents.fields), np.bool_, len(documents.fields))
        if len(same):
            wanted[value] |= bool(same.any())
            chosen |= same
    return chosen
