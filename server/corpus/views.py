"""Views: how many windows a domain has at a (seq_len, packing), and which tokens each holds. Nothing is stored twice.

`concat` cuts a generation's tokens every `seq_len`; window w is tokens [w * seq_len, w * seq_len + seq_len], the last
one being the label of the one before it and the first input of the next window. The tail is padded (nothing is lost)
or dropped, as the corpus says.

`best_fit` packs whole documents into windows inside closed groups (see `native/src/best_fit.rs`); how many windows each
group has is counted once and kept beside the store.

Windows are numbered through the generations; a window is a list of parts, each a run of tokens of a stream (the tokens
of one generation of one domain).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
from headrace.native import TokenStore
from headrace.proto.errors import UsageError
from headrace.server.plan.spec import LARGEST_SEQ_LEN, PACKINGS

U32 = npt.NDArray[np.uint32]
U64 = npt.NDArray[np.uint64]


@dataclass(frozen=True, slots=True)
class ViewSize:
    """Number of windows and their real input tokens."""

    windows: int
    real_tokens: int

    def fill(self, seq_len: int) -> float:
        """Real tokens over the input tokens that the windows have room for."""
        return self.real_tokens / (self.windows * seq_len) if self.windows else 0.0


@dataclass(frozen=True, slots=True)
class Parts:
    """Parts of some windows: window i has parts `ends[i-1]:ends[i]`; if `whole`, each lies within one document."""

    ends: U32
    streams: U32
    starts: U64
    lengths: U32
    whole: bool

    @property
    def counts(self) -> npt.NDArray[np.int64]:
        return differences(self.ends)

    def real_ids(self) -> U32:
        """Real ids of each window."""
        sums = np.concatenate([np.zeros(1, np.int64), np.cumsum(self.lengths, dtype=np.int64)])
        ends = self.ends.astype(np.int64)
        return differences(sums[ends]).astype(np.uint32)


def differences(ends: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    """Counts from running totals."""
    counts = ends.astype(np.int64)
    counts[1:] -= counts[:-1].copy()
    return counts


class View(Protocol):
    """The windows of one domain."""

    @property
    def size(self) -> ViewSize: ...

    def parts(self, windows: U64) -> Parts: ...


def check_shape(seq_len: int, packing: str) -> None:
    """Refuses a shape that no view has."""
    if not 1 <= seq_len <= LARGEST_SEQ_LEN:
        raise UsageError(f"`seq_len` is from 1 to {LARGEST_SEQ_LEN} tokens, not {seq_len}")
    if packing not in PACKINGS:
        raise UsageError(f"no packing is called `{packing}`; there are {', '.join(PACKINGS)}")


def concat_size(tokens: int, seq_len: int, *, drop: bool) -> ViewSize:
    """Windows of a stream of `tokens`."""
    if drop:
        windows = tokens // seq_len
        return ViewSize(windows, windows * seq_len)
    return ViewSize(-(-tokens // seq_len), tokens)


class ConcatView:
    """Windows that are cut from the stream."""

    def __init__(self, first_stream: int, totals: Sequence[int], seq_len: int, *, drop: bool) -> None:
        sizes = [concat_size(tokens, seq_len, drop=drop) for tokens in totals]
        self.size = ViewSize(sum(size.windows for size in sizes), sum(size.real_tokens for size in sizes))
        self._first_stream, self._seq_len = first_stream, np.uint64(seq_len)
        self._totals = np.array(totals, np.uint64)
        self._ends = np.cumsum([size.windows for size in sizes], dtype=np.uint64)

    def parts(self, windows: U64) -> Parts:
        generation = np.searchsorted(self._ends, windows, side="right")
        firsts = np.concatenate([np.zeros(1, np.uint64), self._ends])[generation]
        starts = (windows - firsts) * self._seq_len
        lengths = np.minimum(self._totals[generation] - starts, self._seq_len + np.uint64(1)).astype(np.uint32)
        ends = np.arange(1, len(windows) + 1, dtype=np.uint32)
        return Parts(ends, (generation + self._first_stream).astype(np.uint32), starts, lengths, whole=False)


@dataclass(frozen=True, slots=True)
class Groups:
    """Groups of one generation: the first record batch of each (and the end), and the windows of each."""

    first_batches: U64
    windows: U32


class BestFitView:
    """Windows that are packed from whole documents."""

    def __init__(
        self, store: TokenStore, first_stream: int, groups: Sequence[Groups], seq_len: int, tokens: int
    ) -> None:
        self._store, self._seq_len = store, seq_len
        counts = [len(each.windows) for each in groups]
        self._stream = np.repeat(np.arange(first_stream, first_stream + len(groups)), counts).astype(np.uint32)
        self._firsts = np.concatenate([each.first_batches[:-1] for each in groups])
        self._lasts = np.concatenate([each.first_batches[1:] for each in groups])
        self._ends = np.cumsum(np.concatenate([each.windows for each in groups]), dtype=np.uint64)
        self.size = ViewSize(int(self._ends[-1]) if len(self._ends) else 0, tokens)

    def parts(self, windows: U64) -> Parts:
        group = np.searchsorted(self._ends, windows, side="right")
        before = np.concatenate([np.zeros(1, np.uint64), self._ends])[group]
        streams = self._stream[group]
        ends, starts, lengths = self._store.best_fit(
            self._seq_len, streams, self._firsts[group], self._lasts[group], (windows - before).astype(np.uint32)
        )
        return Parts(ends, np.repeat(streams, differences(ends)), starts, lengths, whole=True)


def merge(count: int, pieces: Sequence[tuple[npt.NDArray[np.int64], Parts]]) -> Parts:
    """Parts of `count` rows from those of some of the rows each."""
    if len(pieces) == 1 and len(pieces[0][0]) == count:
        return pieces[0][1]
    counts = np.zeros(count, np.int64)
    for rows, parts in pieces:
        counts[rows] = parts.counts
    ends = np.cumsum(counts)
    total = int(ends[-1]) if count else 0
    streams, lengths, starts = np.empty(total, np.uint32), np.empty(total, np.uint32), np.empty(total, np.uint64)
    for rows, parts in pieces:
        mine = parts.counts
        within = np.arange(int(mine.sum())) - np.repeat(np.cumsum(mine) - mine, mine)
        place = np.repeat(ends[rows] - mine, mine) + within
        streams[place], starts[place], lengths[place] = parts.streams, parts.starts, parts.lengths
    whole = all(parts.whole for _, parts in pieces)
    return Parts(ends.astype(np.uint32), streams, starts, lengths, whole=whole)
