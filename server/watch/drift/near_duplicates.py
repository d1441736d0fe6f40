"""Near-duplicates among documents that were served, from a few of their tokens.

A document's key is made of the four least values (one a hash) of its runs of five tokens, within its first 128 tokens:
MinHash (Broder 1997) with one band of four rows. Two documents whose sets of runs have Jaccard similarity J share the
key with probability J^4: copies always, near copies mostly (0.81 at J = 0.95), unrelated ones hardly ever. A document
counts as repeated when its key is that of another window's document among the last `history` ones.
"""

from __future__ import annotations

from collections import OrderedDict

import numpy as np
import numpy.typing as npt

U64 = npt.NDArray[np.uint64]

RUN = 5
HEAD = 128
HISTORY = 16_384
_MULTIPLIERS = np.array([0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0xD6E8FEB86659FD93], np.uint64)
_WEIGHTS = np.array([0xFF51AFD7ED558CCD, 0xC4CEB9FE1A85EC53, 0x2545F4914F6CDD1D, 0x27D4EB2F165667C5, 1], np.uint64)
_SHIFT = np.uint64(29)
_LARGEST = np.uint64(2**64 - 1)


def document_keys(heads: npt.NDArray[np.unsignedinteger], lengths: npt.NDArray[np.int64]) -> U64:
    """The key of each document, from the first tokens of each, (documents, HEAD), of which `lengths` are its own.

    A document shorter than a run has the key of all of it.
    """
    is_own = np.arange(heads.shape[1]) < lengths[:, None]
    shifted = np.where(is_own, heads.astype(np.uint64) + np.uint64(1), np.uint64(0))
    mixed = np.zeros((len(heads), heads.shape[1] - RUN + 1), np.uint64)
    for place, weight in enumerate(_WEIGHTS):
        mixed += shifted[:, place : place + mixed.shape[1]] * weight
    mixed = _mix(mixed)
    beyond = np.arange(mixed.shape[1]) > np.maximum(lengths - RUN, 0)[:, None]
    key = np.zeros(len(heads), np.uint64)
    for multiplier in _MULTIPLIERS:
        least = np.where(beyond, _LARGEST, _mix(mixed * multiplier)).min(axis=1)
        key = _mix((key ^ least) * multiplier)
    return key


def _mix(values: U64) -> U64:
    mixed: U64 = (values ^ (values >> _SHIFT)) * _WEIGHTS[0]
    return mixed ^ (mixed >> _SHIFT)


class History:
    """The keys of the last documents, with the window that each was in."""

    def __init__(self, size: int = HISTORY) -> None:
        self._size = size
        self._windows: OrderedDict[int, int] = OrderedDict()

    def __len__(self) -> int:
        return len(self._windows)

    def repeats(self, key: int, window: int) -> bool:
        """Whether the document was seen in another window, and remembers it. The same window again is a new epoch."""
        known = self._windows.pop(key, None)
        self._windows[key] = window if known is None else known
        if len(self._windows) > self._size:
            self._windows.popitem(last=False)
        return known is not None and known != window

    def clear(self) -> None:
        """Forgets: the windows are numbered anew."""
        self._windows.clear()


def expected_rate(documents: int, duplicates: int, remembered: int) -> float:
    """The part of documents that repeat one of `remembered` others, in a domain of which `duplicates` are copies."""
    if documents < 2:
        return 0.0
    pairs = 2 * duplicates / (documents * documents)
    return min(1.0, pairs * remembered)
