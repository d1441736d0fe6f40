"""Reads whole shards back: to check them, to look for documents, or to write them again."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from headrace.native import Blake3
from headrace.server.corpus.shard import Encoded, ShardInfo, file_sums

_MAPPED_BATCHES = 512


def is_whole(folder: Path, shard: ShardInfo, *, blocks: bool) -> bool:
    """Whether a finished shard is still what was written: sizes and index, and with `blocks` every byte."""
    path = folder / shard.file
    try:
        index = path.with_name(path.name + ".index").read_bytes()
        if path.stat().st_size != shard.size:
            return False
    except OSError:
        return False
    hasher = Blake3()
    hasher.update(index)
    if hasher.digest().hex() != shard.index_digest:
        return False
    return not blocks or index.endswith(file_sums(path))


def _batches(path: Path) -> Iterator[pa.RecordBatch]:
    first, count = 0, 1
    while first < count:
        # Mapped anew again and again: pages that were looked at stay mapped, and count as memory of this process.
        with pa.memory_map(str(path)) as mapped:
            reader = pa.ipc.open_file(mapped)
            count = reader.num_record_batches
            for number in range(first, min(first + _MAPPED_BATCHES, count)):
                yield reader.get_batch(number)
        first += _MAPPED_BATCHES


def _ends(batch: pa.RecordBatch) -> npt.NDArray[np.int64]:
    lists: Any = batch.column(0)
    ends: npt.NDArray[np.int64] = lists.offsets.to_numpy()[1:].astype(np.int64)
    return ends


def _digests(batch: pa.RecordBatch) -> npt.NDArray[np.uint8]:
    """A copy of the column of 16-byte digests."""
    data = batch.column(2).buffers()[1]
    assert data is not None
    return np.frombuffer(memoryview(data), np.uint8)[: 16 * batch.num_rows].reshape(-1, 16).copy()


def _kept(batch: pa.RecordBatch) -> list[str]:
    kept: list[Any] = batch.column(3).to_pylist() if batch.num_columns > 3 else []
    return kept


def read_batches(path: Path) -> Iterator[Encoded]:
    """The documents of a shard, batch by batch; `text_bytes` is not stored and reads as 0."""
    for batch in _batches(path):
        lists: Any = batch.column(0)
        ids = lists.values.to_numpy()
        rows = batch.column(1).to_numpy()
        yield Encoded(ids, _ends(batch), rows, _digests(batch), np.zeros(batch.num_rows, np.int64), _kept(batch))


def read_digests(path: Path) -> npt.NDArray[np.uint8]:
    """The digest of each document, (documents, 16)."""
    parts = [_digests(batch) for batch in _batches(path)]
    return np.concatenate(parts) if parts else np.zeros((0, 16), np.uint8)


@dataclass(frozen=True, slots=True)
class ShardDocuments:
    """What a shard says of its documents, without their ids; `ends` in tokens from its start."""

    ends: npt.NDArray[np.int64]
    rows: npt.NDArray[np.uint64]
    digests: npt.NDArray[np.uint8]
    fields: list[Mapping[str, Any]]


def read_documents(path: Path) -> ShardDocuments:
    """All documents of a shard."""
    ends, rows, digests = [np.zeros(0, np.int64)], [np.zeros(0, np.uint64)], [np.zeros((0, 16), np.uint8)]
    fields: list[Mapping[str, Any]] = []
    total = 0
    for batch in _batches(path):
        ends.append(_ends(batch) + total)
        total = int(ends[-1][-1]) if batch.num_rows else total
        rows.append(batch.column(1).to_numpy().copy())
        digests.append(_digests(batch))
        fields += [json.loads(each) for each in _kept(batch)]
    return ShardDocuments(np.concatenate(ends), np.concatenate(rows), np.concatenate(digests), fields)
