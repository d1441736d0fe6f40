"""What a domain's documents look like, in a few counts: the fixed reference that drift is measured against.

Document lengths are counted in bins of an eighth of an octave, token ids in octaves (ids of a trained vocabulary come
in the order of their frequency, so these are rank bins in all but name). Coarse bins on purpose: between two samples
of one distribution their divergence is a thousand times smaller than over the whole vocabulary. `tokens` has the counts
of the other features of `token_tables`; a profile that was made before there were any has none.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

PROFILE_VERSION = 2
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
    """Counts by bin; all tuples end with their last bin that is not empty."""

    lengths: tuple[int, ...] = ()
    ids: tuple[int, ...] = ()
    tokens: Mapping[str, tuple[int, ...]] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        lengths: npt.NDArray[np.int64],
        ids: npt.NDArray[np.int64],
        tokens: Mapping[str, npt.NDArray[np.int64]] | None = None,
    ) -> Profile:
        by_feature = {name: _trimmed(counts) for name, counts in sorted((tokens or {}).items())}
        return cls(lengths=_trimmed(lengths), ids=_trimmed(ids), tokens=by_feature)

    @classmethod
    def total(cls, profiles: Iterable[Profile]) -> Profile:
        """The profile of all of them together; a feature that one of them lacks is left out."""
        lengths, ids = np.zeros(len(LENGTH_EDGES), np.int64), np.zeros(len(ID_EDGES) + 1, np.int64)
        tokens: dict[str, npt.NDArray[np.int64]] | None = None
        for profile in profiles:
            lengths[: len(profile.lengths)] += profile.lengths
            ids[: len(profile.ids)] += profile.ids
            tokens = _added(tokens, profile.tokens)
        return cls.of(lengths, ids, tokens)

    def quantile(self, share: float) -> int:
        """Length in tokens below which `share` of the documents lie, to the bin (within 9 %)."""
        sums = np.cumsum(self.lengths)
        if not len(sums):
            return 0
        return int(LENGTH_EDGES[int(np.searchsorted(sums, share * sums[-1]))])

    def to_json(self) -> dict[str, Any]:
        tokens = {name: list(counts) for name, counts in self.tokens.items()}
        return {"version": PROFILE_VERSION, "lengths": list(self.lengths), "ids": list(self.ids), "tokens": tokens}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Profile:
        tokens = {name: tuple(counts) for name, counts in value.get("tokens", {}).items()}
        return cls(lengths=tuple(value["lengths"]), ids=tuple(value["ids"]), tokens=tokens)


def _added(
    total: Mapping[str, npt.NDArray[np.int64]] | None, more: Mapping[str, tuple[int, ...]]
) -> dict[str, npt.NDArray[np.int64]]:
    if total is None:
        return {name: np.array(counts, np.int64) for name, counts in more.items()}
    found = {}
    for name in total.keys() & more.keys():
        found[name] = np.zeros(max(len(total[name]), len(more[name])), np.int64)
        found[name][: len(total[name])] += total[name]
        found[name][: len(more[name])] += more[name]
    return found


def _trimmed(counts: npt.NDArray[np.int64]) -> tuple[int, ...]:
    last = int(np.flatnonzero(counts)[-1]) + 1 if counts.any() else 0
    return tuple(int(count) for count in counts[:last])
