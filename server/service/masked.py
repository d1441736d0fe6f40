"""Masked ids in rows as they are served: which rows they leave without a label.

A position has a label when the id after it is real. It loses the label when that id or its own is masked: nothing is
to be learned at, or from, padding that stands for a document which was taken down.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt


def spans(mask_ends: npt.NDArray[np.uint32], masks: npt.NDArray[np.uint32], row: int) -> Iterator[tuple[int, int]]:
    """The masked offsets [begin, end) of a row."""
    if masks.size:
        begin = int(mask_ends[row - 1]) if row else 0
        mine = masks[begin : int(mask_ends[row])].tolist()
        yield from zip(mine[::2], mine[1::2], strict=True)


def emptied(
    real_ids: npt.NDArray[np.uint32], mask_ends: npt.NDArray[np.uint32], masks: npt.NDArray[np.uint32]
) -> npt.NDArray[np.bool_]:
    """(rows,): whether masks leave a row that has labels none of them."""
    empty = np.zeros(len(real_ids), dtype=np.bool_)
    if masks.size:
        touched = np.flatnonzero(np.diff(mask_ends, prepend=np.uint32(0)))
        for row in touched.tolist():
            labels = int(real_ids[row]) - 1
            empty[row] = labels > 0 and _covers(spans(mask_ends, masks, row), labels)
    return empty


def _covers(found: Iterator[tuple[int, int]], labels: int) -> bool:
    """Whether the positions that lose their label are all of [0, labels)."""
    reached = 0
    for begin, end in found:
        if begin - 1 > reached:
            return False
        reached = max(reached, end)
    return reached >= labels
