"""One rank's rows of one step, as NumPy arrays, and what trainers derive from them.

What came over the wire is kept as it came: `token_ids` in the width the server chose, on a writable buffer. What a
trainer asks for besides (shifted labels, masks, positions) is made when it is asked for and kept, so a trainer that
needs only ids pays only for ids. A batch stays valid for as long as anything refers to it or to one of its arrays;
after that its buffer is used again (see `headrace.client.buffers`).

Shapes: R rows of S tokens (`seq_len`); arrays over ids have S + 1 columns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import numpy as np
from headrace.proto.errors import UsageError
from numpy.typing import NDArray

# Label of a position that no loss is taken on: the default `ignore_index` of torch.
IGNORE = -100

T = TypeVar("T")
Ids = NDArray[np.uint16] | NDArray[np.uint32]


def _nothing() -> NDArray[np.uint32]:
    return np.zeros(0, dtype=np.uint32)


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Batch:
    """Rows [first_slot, first_slot + R) of a step.

    step, segment   the optimizer step, and the range of steps with one weight vector that it lies in
    token_ids       (R, S + 1), uint16 or uint32: inputs are all but the last column, labels all but the first
    real_ids        (R,) uint32: how many ids of each row are real; those after them are padding
    domain          (R,) uint32: index of each row's domain in `domain_names`
    loss_weight     (R,) float32; 0 for a row that masks leave no label
    edges           offsets in the rows at which another document begins, row after row; `edge_ends` (R,) says where
                    each row's end: those of row r are edges[edge_ends[r-1]:edge_ends[r]]
    masks           offsets of ids that are masked (their document was taken down) and served as padding: pairs begin,
                    end; those of row r are masks[mask_ends[r-1]:mask_ends[r]]; both are empty when nothing is masked
    row_digests     (R, 16) uint8, made anew from what was received
    plan_hash       32 bytes, at this step; `next_plan_hash` at the next one
    micro           (index, count) when the step is handed out in micro-batches; then `whole` is the step
    """

    step: int
    segment: int
    first_slot: int
    token_ids: Ids
    real_ids: NDArray[np.uint32]
    domain: NDArray[np.uint32]
    domain_names: tuple[str, ...]
    loss_weight: NDArray[np.float32]
    edge_ends: NDArray[np.uint32]
    edges: NDArray[np.uint32]
    row_digests: NDArray[np.uint8]
    plan_hash: bytes
    next_plan_hash: bytes
    pad_id: int
    mask_ends: NDArray[np.uint32] = field(default_factory=_nothing)
    masks: NDArray[np.uint32] = field(default_factory=_nothing)
    micro: tuple[int, int] = (0, 1)
    whole: Batch | None = field(default=None, repr=False)
    _made: dict[str, Any] = field(default_factory=dict, repr=False)

    def __len__(self) -> int:
        return len(self.token_ids)

    @property
    def seq_len(self) -> int:
        return int(self.token_ids.shape[1]) - 1

    @property
    def input_ids(self) -> Ids:
        """(R, S), a view of `token_ids` (not contiguous): what the model reads."""
        return self.token_ids[:, :-1]

    @property
    def labels(self) -> NDArray[np.int64]:
        """(R, S): the id after each input, IGNORE where there is none or either of the two is masked."""
        return self.once("labels", self._labels)

    @property
    def loss_mask(self) -> NDArray[np.bool_]:
        """(R, S): whether the position has a label."""
        return self.once("loss_mask", self._loss_mask)

    @property
    def position_ids(self) -> NDArray[np.int32]:
        """(R, S): distance from the start of the document, or of the row where the document began before it."""
        return self.once("position_ids", self._position_ids)

    @property
    def document_ids(self) -> NDArray[np.int32]:
        """(R, S): number of the piece of a document in its row, from 0; padding is a piece of its own."""
        return self.once("document_ids", lambda: np.cumsum(self._starts(), axis=1, dtype=np.int32) - 1)

    @property
    def cu_seqlens(self) -> NDArray[np.int32]:
        """(pieces + 1,): where each piece of a document starts in the R * S inputs laid end to end, and R * S."""
        return self.once("cu_seqlens", self._cu_seqlens)

    @property
    def max_seqlen(self) -> int:
        """Length of the longest piece of a document."""
        return int(np.diff(self.cu_seqlens).max(initial=0))

    @property
    def names(self) -> list[str]:
        """Domain name of each row."""
        return [self.domain_names[index] for index in self.domain.tolist()]

    @property
    def tokens(self) -> int:
        """Positions that have a label: what a loss is averaged over."""
        if self.masks.size:
            return int(self.loss_mask.sum())
        return int(np.maximum(self.real_ids.astype(np.int64) - 1, 0).sum())

    @property
    def emptied(self) -> NDArray[np.bool_]:
        """(R,): whether masks leave a row that had labels none of them."""
        if not self.masks.size:
            return np.zeros(len(self), dtype=np.bool_)
        return (self.real_ids > 1) & ~self.loss_mask.any(axis=1)

    def split(self, parts: int) -> Iterator[Batch]:
        """The same rows in `parts` equal micro-batches, in order, on the same buffer."""
        if parts < 1 or len(self) % parts:
            raise UsageError(
                f"step {self.step}: its {len(self)} rows on this rank cannot be split into {parts} equal micro-batches"
            )
        return (self.part(i, parts) for i in range(parts))

    def part(self, index: int, parts: int) -> Batch:
        """Micro-batch `index` of so many, which must divide the rows."""
        size = len(self) // parts
        return self._rows(index * size, (index + 1) * size, (index, parts))

    def bare(self) -> Batch:
        """The same rows, with nothing made of them yet."""
        return replace(self, whole=self.whole.bare() if self.whole is not None else None, _made={})

    def _rows(self, begin: int, end: int, micro: tuple[int, int]) -> Batch:
        first_edge = int(self.edge_ends[begin - 1]) if begin else 0
        mask_ends, masks = self._mask_rows(begin, end)
        return replace(
            self,
            first_slot=self.first_slot + begin,
            token_ids=self.token_ids[begin:end],
            real_ids=self.real_ids[begin:end],
            domain=self.domain[begin:end],
            loss_weight=self.loss_weight[begin:end],
            edge_ends=self.edge_ends[begin:end] - np.uint32(first_edge),
            edges=self.edges[first_edge : int(self.edge_ends[end - 1])],
            row_digests=self.row_digests[begin:end],
            mask_ends=mask_ends,
            masks=masks,
            micro=micro,
            whole=self if self.whole is None else self.whole,
            _made={},
        )

    def _mask_rows(self, begin: int, end: int) -> tuple[NDArray[np.uint32], NDArray[np.uint32]]:
        """`mask_ends` and `masks` of some of the rows."""
        if not self.masks.size:
            return self.mask_ends, self.masks
        first = int(self.mask_ends[begin - 1]) if begin else 0
        masks = self.masks[first : int(self.mask_ends[end - 1])]
        return (self.mask_ends[begin:end] - np.uint32(first) if masks.size else _nothing()), masks

    def once(self, name: str, make: Callable[[], T]) -> T:
        """What `make` makes, made once and kept with the batch under that name."""
        if name not in self._made:
            self._made[name] = make()
        return self._made[name]  # type: ignore[no-any-return]

    def peek(self, name: str) -> Any:
        """What `once` has made under that name, or None."""
        return self._made.get(name)

    def _loss_mask(self) -> NDArray[np.bool_]:
        mask = np.arange(1, self.seq_len + 1, dtype=np.uint32) < self.real_ids[:, None]
        for row, begin, end in self._masked_spans():
            mask[row, max(begin - 1, 0) : end] = False
        return mask

    def _masked_spans(self) -> Iterator[tuple[int, int, int]]:
        """(row, begin, end) of every run of masked ids."""
        if self.masks.size:
            rows = np.repeat(np.arange(len(self)), np.diff(self.mask_ends, prepend=np.uint32(0)) // 2)
            yield from zip(rows.tolist(), self.masks[::2].tolist(), self.masks[1::2].tolist(), strict=True)

    def _labels(self) -> NDArray[np.int64]:
        labels = self.token_ids[:, 1:].astype(np.int64)
        for row in np.flatnonzero(self.real_ids <= self.seq_len):
            labels[row, max(int(self.real_ids[row]) - 1, 0) :] = IGNORE
        for masked, begin, end in self._masked_spans():
            labels[masked, max(begin - 1, 0) : end] = IGNORE
        return labels

    def _starts(self) -> NDArray[np.bool_]:
        """(R, S): where a piece of a document, or the padding, begins; column 0 always does."""
        starts = np.zeros(self.token_ids.shape, dtype=np.bool_)
        starts[:, 0] = True
        counts = self.edge_ends - np.concatenate([[0], self.edge_ends[:-1]])
        starts[np.repeat(np.arange(len(self)), counts), self.edges] = True
        padded = np.flatnonzero(self.real_ids < self.seq_len)
        starts[padded, self.real_ids[padded]] = True
        return starts[:, :-1]

    def _position_ids(self) -> NDArray[np.int32]:
        columns = np.arange(self.seq_len, dtype=np.int32)
        begins = np.where(self._starts(), columns, np.int32(0))
        return columns - np.maximum.accumulate(begins, axis=1)

    def _cu_seqlens(self) -> NDArray[np.int32]:
        flat = np.flatnonzero(self._starts())
        return np.append(flat, self._starts().size).astype(np.int32)
