"""What a domain's documents look like, in a few counts: the fixed reference that drift is measured against.

Document lengths are counted in bins of an eighth of an octave, token ids in octaves (ids of a trained vocabulary come
in the order of their frequency, so these are rank bins in all but name). Coarse bins on purpose: between two samples
of one distribution their divergence is a thousand times smaller than over the whole vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

LENGTH_EDGES = np.unique(np.ceil(2.0 ** (np.arange(8 * 32) / 8)).astype(np.int64))
"""A document of n tokens is in the last bin whose edge is at most n."""
ID_EDGES = 1 << np.arange(32, dtype=np.int64)
"""Id i is in bin bit_length(i): bin 0 is id 0 alone."""


def length_bins(lengths: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Documents in each bin of LENGTH_EDGES, from their lengths in tokens (0 counts as 1)."""
    which = np.searchsorted(LENGTH_EDGES, np.maximum(lengths, 1), side="right") - 1
    return np.bincount(which, minlength=len(LENGTH_EDGES))


def id_bins(counts: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Tokens in each octave of ids, from the count of each id."""
    which = np.searchsorted(ID_EDGES, np.arange(len(counts)), side="right")
    return np.bincount(which, weights=counts, minlength=len(ID_EDGES) + 1).astype(np.int64)


@dataclass(frozen=True, kw_only=True, slots=True)
class Profile:
    """Counts by bin; both tuples end with their last bin that is not empty."""

    lengths: tuple[int, ...] = ()
    ids: tuple[int, ...] = ()

    @classmethod
    def of(cls, lengths: npt.NDArray[np.int64], ids: npt.NDArray[np.int64]) -> Profile:
        return cls(lengths=_trimmed(lengths), ids=_trimmed(ids))

    @classmethod
    def total(cls, profiles: Iterable[Profile]) -> Profile:
        """The profile of all of them together."""
        lengths, ids = np.zeros(len(LENGTH_EDGES), np.int64), np.zeros(len(ID_EDGES) + 1, np.int64)
        for profile in profiles:
            lengths[: len(profile.lengths)] += profile.lengths
            ids[: len(profile.ids)] += profile.ids
        return cls.of(lengths, ids)

    def quantile(self, share: float) -> int:
        """Length in tokens below which `share` of the documents lie, to the bin (within 9 %)."""
        sums = np.cumsum(self.lengths)
        if not len(sums):
            return 0
        return int(LENGTH_EDGES[int(np.searchsorted(sums, share * sums[-1]))])

    def to_json(self) -> dict[str, Any]:
        return {"lengths": list(self.lengths), "ids": list(self.ids)}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Profile:
        return cls(lengths=tuple(value["lengths"]), ids=tuple(value["ids"]))


def _trimmed(counts: npt.NDArray[np.int64]) -> tuple[int, ...]:
    last = int(np.flatnonzero(counts)[-1]) + 1 if counts.any() else 0
    return tuple(int(count) for count in counts[:last])
