"""The documents in windows, found by their edges in the shards: for `run explain`, and for drift by document."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
from headrace.native import TokenStore
from headrace.server.corpus.served import store_errors
from headrace.server.corpus.views import Parts

Begun = tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[np.int64]]
"""For each document: place of its window among those asked for, offset in it, length in tokens."""


class Documents:
    """The documents of a store's streams; `tokens` are those of each stream."""

    def __init__(self, store: TokenStore, tokens: Sequence[int]) -> None:
        self._store = store
        self._tokens = tokens

    def pieces(self, stream: int, start: int, length: int) -> list[tuple[int, int, int, int, int]]:
        """What tokens [start, start + length) hold: shard, document in it, row in its file, and tokens [begin, end)."""
        with store_errors():
            return self._store.pieces(stream, start, length)

    def begun(self, parts: Parts, within: int) -> Begun:
        """Documents that begin in the first `within` ids of rows.

        Each document of a view begins in one window, so those of windows drawn at random are drawn at random.
        """
        found: list[tuple[int, int, int]] = []
        first = 0
        for place, last in enumerate(parts.ends):
            offset = 0
            for part in range(first, int(last)):
                stream, start, length = (int(each[part]) for each in (parts.streams, parts.starts, parts.lengths))
                for at, size in self._begun(stream, start, min(length, within - offset)):
                    found.append((place, offset + at, size))
                offset += length
            first = int(last)
        table = np.array(found, np.int64).reshape(-1, 3)
        return table[:, 0], table[:, 1], table[:, 2]

    def _begun(self, stream: int, start: int, length: int) -> Iterator[tuple[int, int]]:
        """Offset and whole length of each document that begins in tokens [start, start + length) of a stream."""
        if length <= 0 or stream >= len(self._tokens):
            return
        offset = 0
        for shard, document, _, begin, end in self.pieces(stream, start, length):
            if begin == 0:
                is_cut = offset + end == length
                yield offset, self._length_of(stream, start + offset, (shard, document)) if is_cut else end
            offset += end - begin

    def _length_of(self, stream: int, start: int, which: tuple[int, int]) -> int:
        """Tokens of a document that begins at `start`, by looking ever further ahead."""
        left = self._tokens[stream] - start
        ahead = 1024
        while True:
            pieces = self.pieces(stream, start, min(ahead, left))
            size = pieces[0][4]
            if ahead >= left or len(pieces) > 1 or pieces[0][:2] != which:
                return size
            ahead *= 8
