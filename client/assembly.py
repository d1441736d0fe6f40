"""One step's rows while its ranges arrive: a buffer of the rank's rows, filled range by range, then a Batch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import numpy as np
from headrace.client.batch import Batch
from headrace.client.buffers import Buffer, Pool
from headrace.client.layout import Layout
from headrace.client.session import Session
from headrace.client.stage import Stage
from headrace.client.wire import Part
from headrace.proto.errors import DataLossError, HeadraceError
from numpy.typing import NDArray

Words = NDArray[np.uint32]
Kind = TypeVar("Kind", bound=np.generic)


class Assembly:
    """A step that is being fetched. The caller's lock guards all but `room` and `fill`: ranges do not overlap."""

    def __init__(self, session: Session, step: int, layout: Layout, pool: Pool) -> None:
        self.step = step
        self.error: HeadraceError | None = None
        self.handed_out = False
        self._session = session
        self._pool = pool
        self._layout = layout
        self.rows = layout.rows
        self.first_slot = layout.first_slot
        self._row_bytes = layout.row_bytes
        self.size = self.rows * self._row_bytes
        self._missing = self.rows
        self._batch: Batch | None = None
        self._parts: dict[int, Part] = {}

    def allocate(self) -> None:
        """Takes the buffer. Not in the constructor, so that a step which the bounds forbid takes none."""
        self._flat = self._pool.take(self.size)
        self._ids = self._flat.view(self._layout.kind).reshape(self.rows, self._layout.columns)

    @property
    def complete(self) -> bool:
        return self._batch is not None or self.error is not None

    def room(self, first: int, rows: int) -> Buffer:
        """Where the ids of a range belong."""
        return self._flat[first * self._row_bytes : (first + rows) * self._row_bytes]

    def fill(self, first: int, part: Part) -> None:
        """A range whose ids lie in its `room`."""
        self._parts[first] = part

    def arrived(self, rows: int) -> bool:
        """Whether these were the last rows missing: then the caller is to `finish`."""
        self._missing -= rows
        return self._missing == 0

    def finish(self, stage: Stage) -> Batch:
        """Makes the batch and warms it, without the lock; `done` publishes it."""
        batch = self._join()
        stage.warm(batch)
        return batch

    def done(self, batch: Batch) -> None:
        self._batch = batch

    def batch(self) -> Batch:
        assert self._batch is not None
        return self._batch

    def digests(self) -> list[tuple[int, bytes]]:
        """(first slot, row digests) of each range, as it was asked for."""
        return [(self.first_slot + first, part.row_digests) for first, part in sorted(self._parts.items())]

    def _join(self) -> Batch:
        parts = [self._parts[first] for first in sorted(self._parts)]
        head = parts[0]
        for part in parts[1:]:
            if (part.segment, part.plan_hash) != (head.segment, head.plan_hash):
                raise DataLossError(
                    f"step {self.step}: its ranges come from segments {head.segment} and {part.segment}; "
                    "the servers do not agree on the plan"
                )
        edge_ends, edges = _joined([(part.edge_ends, part.edges) for part in parts])
        if any(part.masks.size for part in parts):
            mask_ends, masks = _joined([(_mask_ends(part), part.masks) for part in parts])
        else:
            mask_ends, masks = head.mask_ends, head.masks
        digests = np.frombuffer(b"".join(part.row_digests for part in parts), dtype=np.uint8)
        return Batch(
            step=self.step,
            segment=head.segment,
            first_slot=self.first_slot,
            token_ids=self._ids,
            real_ids=_whole([part.real_ids for part in parts]),
            domain=_whole([part.domains for part in parts]),
            domain_names=self._session.domain_names,
            loss_weight=_whole([part.loss_weights for part in parts]),
            edge_ends=edge_ends,
            edges=edges,
            row_digests=digests.reshape(-1, 16),
            plan_hash=head.plan_hash,
            next_plan_hash=head.next_plan_hash,
            pad_id=self._session.opened.pad_id,
            mask_ends=mask_ends,
            masks=masks,
        )


def _joined(parts: Sequence[tuple[Words, Words]]) -> tuple[Words, Words]:
    """Lists of rows as (ends, values), range after range."""
    if len(parts) == 1:
        return parts[0]
    offsets = np.cumsum([0, *(values.size for _, values in parts)]).astype(np.uint32)
    ends = [ends + offset for (ends, _), offset in zip(parts, offsets, strict=False)]
    return np.concatenate(ends), np.concatenate([values for _, values in parts])


def _whole(arrays: Sequence[NDArray[Kind]]) -> NDArray[Kind]:
    """One after another; most steps come in one range and are not copied again."""
    return arrays[0] if len(arrays) == 1 else np.concatenate(arrays)


def _mask_ends(part: Part) -> Words:
    return part.mask_ends if part.masks.size else np.zeros(part.rows, dtype=np.uint32)
