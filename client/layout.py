"""Which rows of a step are this rank's, and how they are asked for: the same for all steps of one shape."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any

import numpy as np
from headrace.client.launch import Rank
from headrace.client.session import Opened, Shape
from headrace.proto.errors import DataLossError


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Layout:
    """`rows` rows from slot `first_slot` on, of `columns` ids of the type `kind`.

    `ranges` are (first row, rows) of each call, none above what a message holds.
    """

    rows: int
    first_slot: int
    columns: int
    kind: np.dtype[Any]
    ranges: tuple[tuple[int, int], ...]

    @property
    def row_bytes(self) -> int:
        return self.columns * self.kind.itemsize


class Layouts:
    """Layouts of a run, the one used last kept. Not thread-safe: the caller holds its lock."""

    def __init__(self, opened: Opened, rank: Rank, *, message_bytes: int) -> None:
        self._opened = opened
        self._rank = rank
        self._message_bytes = message_bytes
        self._kind = np.dtype(np.uint16 if opened.id_bytes == 2 else np.uint32).newbyteorder("<")
        self._last: tuple[Shape, Layout] | None = None

    def of(self, step: int) -> Layout:
        """A step without a known shape lies past the last phase: it is asked for as one row, to be told of the end."""
        if self._last is not None and self._last[0].holds(step):
            return self._last[1]
        shape = self._opened.shape(step)
        if shape is None:
            return Layout(rows=1, first_slot=0, columns=1, kind=self._kind, ranges=((0, 1),))
        self._last = (shape, self._made(step, shape))
        return self._last[1]

    def _made(self, step: int, shape: Shape) -> Layout:
        if shape.batch % self._rank.world:
            raise DataLossError(f"step {step}: {shape.batch} rows cannot be shared by {self._rank.world} ranks")
        rows, columns = shape.batch // self._rank.world, shape.seq_len + 1
        most = max(1, min(self._opened.max_rows, self._message_bytes // (columns * self._kind.itemsize)))
        calls = -(-rows // most)
        bounds = [rows * i // calls for i in range(calls + 1)]
        return Layout(
            rows=rows,
            first_slot=self._rank.rank * rows,
            columns=columns,
            kind=self._kind,
            ranges=tuple((begin, end - begin) for begin, end in itertools.pairwise(bounds)),
        )
