"""Writes one shard: the token ids of one domain out of one source file, as an Arrow IPC file and its index.

The Arrow file has a row a document: `ids` (a list of uint16 or uint32), `row` (of the source, from 1), `digest`
(XXH3-128 of the text) and, if the domain keeps fields, `fields` (their JSON), so any Arrow reader opens it. Record
batches end by a rule that sees only the documents, so the bytes are the same whoever writes them. The index (see
`native/src/shard_index.rs`) holds where each batch keeps its columns and a checksum for each block. `content` hashes
what the shard means, not how Arrow spells it.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from itertools import compress
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from headrace.native import Blake3, block_sums, count_ids
from headrace.proto.errors import UsageError
from headrace.server.corpus.durable import sync
from headrace.server.corpus.profile import Profile, id_bins, length_bins
from headrace.server.corpus.token_tables import TokenTables

BLOCK_BYTES = 64 << 10
_PIECE_BYTES = 64 * BLOCK_BYTES
_MAPPED_BATCHES = 512
BATCH_TOKENS = 256 << 10
BATCH_DOCUMENTS = 4096
TRAIN, HOLDOUT = "train", "holdout"
_LARGEST_BATCH = 2**31 - 1
_MAGIC = b"headrx01"


@dataclass(frozen=True, kw_only=True, slots=True)
class ShardInfo:
    """A finished shard, as marker and manifest hold it.

    Attributes:
        domain: name of the domain
        part: `train`, or `holdout` for the documents kept for evaluation
        file: name of the Arrow file; the index has `.index` after it
        size: bytes of the Arrow file
        index_digest: BLAKE3 of the index file, hex
        content: BLAKE3 of document lengths and ids, hex
        tokens, documents: counts
        text_bytes: UTF-8 bytes of the texts
    """

    domain: str
    part: str
    file: str
    size: int
    index_digest: str
    content: str
    tokens: int
    documents: int
    text_bytes: int

    def to_json(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__slots__}


@dataclass(frozen=True, slots=True)
class Encoded:
    """Documents in a row: all ids in one array of the store's width; the end, source row, digest and size of each.

    `kept` is the JSON of each document's kept fields, empty when the domain keeps none.
    """

    ids: npt.NDArray[Any]
    ends: npt.NDArray[np.int64]
    rows: npt.NDArray[np.uint64]
    digests: npt.NDArray[np.uint8]
    text_bytes: npt.NDArray[np.int64]
    kept: list[str] = field(default_factory=list)

    @classmethod
    def empty(cls) -> Encoded:
        """No documents."""
        none = np.zeros(0, np.int64)
        return cls(none, none, none.view(np.uint64), np.zeros((0, 16), np.uint8), none)

    @property
    def lengths(self) -> npt.NDArray[np.int64]:
        """Ids of each document."""
        lengths = self.ends.copy()
        lengths[1:] -= self.ends[:-1]
        return lengths

    def part(self, begin: int, end: int) -> Encoded:
        """Documents [begin, end)."""
        first = int(self.ends[begin - 1]) if begin else 0
        ids = self.ids[first : int(self.ends[end - 1])] if end > begin else self.ids[:0]
        span = slice(begin, end)
        ends, kept = self.ends[span] - first, self.kept[span]
        return Encoded(ids, ends, self.rows[span], self.digests[span], self.text_bytes[span], kept)

    def select(self, keep: npt.NDArray[np.bool_]) -> Encoded:
        """The documents that `keep` names, in order."""
        lengths = self.lengths
        ids = self.ids[np.repeat(keep, lengths)]
        ends, kept = np.cumsum(lengths[keep]), list(compress(self.kept, keep))
        return Encoded(ids, ends, self.rows[keep], self.digests[keep], self.text_bytes[keep], kept)

    @staticmethod
    def join(parts: list[Encoded]) -> Encoded:
        if len(parts) == 1:
            return parts[0]
        lengths = np.concatenate([part.lengths for part in parts])
        return Encoded(
            np.concatenate([part.ids for part in parts]),
            np.cumsum(lengths),
            np.concatenate([part.rows for part in parts]),
            np.concatenate([part.digests for part in parts]),
            np.concatenate([part.text_bytes for part in parts]),
            [each for part in parts for each in part.kept],
        )


class ShardWriter:
    """Takes documents, writes record batches, and at `close` the index."""

    def __init__(self, folder: Path, domain: str, part: str, *, id_bytes: int, keeps: bool = False) -> None:
        # A name of a domain has no `~`, so no two shards of a folder share a file.
        self._path = folder / (f"{domain}.arrow" if part == TRAIN else f"{domain}~{part}.arrow")
        self._domain, self._part = domain, part
        self._dtype: Any = np.dtype(np.uint16 if id_bytes == 2 else np.uint32)
        id_type: Any = pa.uint16() if id_bytes == 2 else pa.uint32()
        columns: list[pa.Field[Any]] = [
            pa.field("ids", pa.list_(pa.field("id", id_type, nullable=False)), nullable=False),
            pa.field("row", pa.uint64(), nullable=False),
            pa.field("digest", pa.binary(16), nullable=False),
        ]
        self._schema = pa.schema([*columns, pa.field("fields", pa.string(), nullable=False)] if keeps else columns)
        self._sink = pa.OSFile(str(self._path), "wb")
        self._writer = pa.ipc.new_file(self._sink, self._schema)
        self._pending: list[Encoded] = []
        self._pending_tokens = self._pending_documents = 0
        self._batches: list[tuple[int, int]] = []
        self._lengths, self._ids = Blake3(), Blake3()
        self._text_bytes = 0
        self._id_counts = np.zeros(1, np.int64)
        self._length_bins = length_bins(np.zeros(0, np.int64))

    def add(self, documents: Encoded) -> None:
        """Takes documents in; a batch ends with the document that fills it."""
        begin, count = 0, len(documents.ends)
        while begin < count:
            base = int(documents.ends[begin - 1]) if begin else 0
            full = base + BATCH_TOKENS - self._pending_tokens
            by_tokens = int(np.searchsorted(documents.ends, full, side="left")) + 1
            end = min(by_tokens, begin + BATCH_DOCUMENTS - self._pending_documents, count)
            part = documents.part(begin, end)
            self._pending.append(part)
            self._pending_tokens += len(part.ids)
            self._pending_documents += end - begin
            if self._pending_tokens >= BATCH_TOKENS or self._pending_documents >= BATCH_DOCUMENTS:
                self._flush()
            begin = end

    def _flush(self) -> None:
        if not self._pending:
            return
        batch = Encoded.join(self._pending)
        if len(batch.ids) > _LARGEST_BATCH:
            raise UsageError(f"a document of domain `{self._domain}` has over {_LARGEST_BATCH} tokens; split it")
        ids = np.ascontiguousarray(batch.ids, self._dtype)
        offsets = np.concatenate([np.zeros(1, np.int32), batch.ends.astype(np.int32)])
        lists = pa.ListArray.from_arrays(pa.array(offsets), pa.array(ids), type=self._schema.field("ids").type)
        digests = pa.FixedSizeBinaryArray.from_buffers(
            pa.binary(16), len(batch.rows), [None, pa.py_buffer(np.ascontiguousarray(batch.digests).data)]
        )
        columns: list[Any] = [lists, pa.array(batch.rows), digests]
        if "fields" in self._schema.names:
            columns.append(pa.array(batch.kept, pa.string()))
        self._writer.write_batch(pa.record_batch(columns, schema=self._schema))
        self._batches.append((len(batch.rows), len(ids)))
        lengths = batch.lengths
        self._lengths.update(lengths.astype("<u8").tobytes())
        self._ids.update_array(ids.view(np.uint8))
        self._text_bytes += int(batch.text_bytes.sum())
        self._length_bins = self._length_bins + length_bins(lengths)
        self._id_counts = _sum(self._id_counts, count_ids(ids))
        self._pending.clear()
        self._pending_tokens = self._pending_documents = 0

    def close(self) -> ShardInfo:
        """Writes what is left and the index, all of it forced to disk."""
        self._flush()
        self._writer.close()
        self._sink.close()
        sync(self._path)
        index, size = _index(self._path, self._batches, self._dtype.itemsize)
        target = self._path.with_name(self._path.name + ".index")
        target.write_bytes(index)
        sync(target)
        content, whole = Blake3(), Blake3()
        content.update(self._lengths.digest() + self._ids.digest())
        whole.update(index)
        return ShardInfo(
            domain=self._domain,
            part=self._part,
            file=self._path.name,
            size=size,
            index_digest=whole.digest().hex(),
            content=content.digest().hex(),
            tokens=sum(tokens for _, tokens in self._batches),
            documents=sum(documents for documents, _ in self._batches),
            text_bytes=self._text_bytes,
        )

    def profile(self, tables: TokenTables) -> Profile:
        """What the documents written so far look like; `tables` of the tokenizer that made the ids."""
        counts = tables.counts(self._id_counts)
        del counts["token_rank"]  # the profile's `ids`
        return Profile.of(self._length_bins, id_bins(self._id_counts), counts)

    def text_bytes(self, tables: TokenTables) -> int:
        """Bytes of the texts written so far, from their tokens: those that are not special hold every byte of them."""
        return int(self._id_counts @ tables.widths[: len(self._id_counts)])

    def abort(self) -> None:
        """Lets go of the file after a failure."""
        self._sink.close()


def _sum(left: npt.NDArray[np.int64], right: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """The sum of two arrays, the shorter one as if it went on with zeros."""
    longer, shorter = (left, right) if len(left) >= len(right) else (right, left)
    longer[: len(shorter)] += shorter
    return longer


def _index(path: Path, batches: list[tuple[int, int]], id_bytes: int) -> tuple[bytes, int]:
    """The index of a finished Arrow file, and the file's size."""
    size = path.stat().st_size
    # Mapped anew again and again: pages around those that are looked at stay mapped, and count as memory.
    table = [word for first in range(0, len(batches), _MAPPED_BATCHES) for word in _places(path, batches, first)]
    totals = [sum(column) for column in zip(*batches, strict=True)] or [0, 0]
    header = [size, BLOCK_BYTES, len(batches), totals[1], totals[0], id_bytes]
    start = _MAGIC + struct.pack(f"<{len(header) + len(table)}Q", *header, *table)
    return start + file_sums(path), size


def _places(path: Path, batches: list[tuple[int, int]], first: int) -> list[int]:
    """What the index says of some batches from `first` on."""
    with pa.memory_map(str(path)) as mapped:
        whole = mapped.read_buffer()
        reader = pa.ipc.open_file(whole)
        table: list[int] = []
        for number, (documents, tokens) in enumerate(batches[first : first + _MAPPED_BATCHES], first):
            batch = reader.get_batch(number)
            lists, rows = batch.column(0).buffers(), batch.column(1).buffers()
            columns = (lists[1], lists[3], rows[1])
            positions = [column.address - whole.address for column in columns if column is not None]
            table += [documents, tokens, *positions]
        return table


def file_sums(path: Path) -> bytes:
    """The sums of a file's blocks; read piece by piece, since mapped pages would count as memory of this process."""
    sums = []
    with path.open("rb", buffering=0) as file:
        while piece := file.read(_PIECE_BYTES):
            while len(piece) % BLOCK_BYTES and (more := file.read(_PIECE_BYTES - len(piece))):
                piece += more
            sums.append(block_sums(np.frombuffer(piece, np.uint8), BLOCK_BYTES))
    return b"".join(sums)
