"""What a token is, as small numbers: the bins in which drift counts tokens, each a table over the vocabulary.

Every feature is a sum over ids, so a profile is made from id counts alone, and a served row from its ids, with no text
decoded. `token_rank` bins ids by octave (merges come in the order of their frequency); `vocabulary` deals ids into 64
bins by a fixed hash, a blind projection that moves when any part of the vocabulary is used otherwise, such as by
another language in the same script; `bytes_per_token` bins their lengths; `byte_fallback` tells pieces of characters
from whole ones; `script` is the writing system.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
from headrace.server.corpus.scripts import SCRIPTS, is_whole, script_number
from headrace.tokenizer.tokenizer import Tokenizer

TOKEN_FEATURES = ("token_rank", "vocabulary", "bytes_per_token", "byte_fallback", "script")
VOCABULARY_BINS = 64
_LENGTH_STARTS = np.array([0, 1, 2, 3, 4, 5, 7, 9, 13, 17])
_HASH = 0x9E3779B97F4A7C15
BINS: Mapping[str, int] = {
    "token_rank": 33,
    "vocabulary": VOCABULARY_BINS,
    "bytes_per_token": len(_LENGTH_STARTS),
    "byte_fallback": 2,
    "script": len(SCRIPTS),
}
"""Bins of each feature."""


@dataclass(frozen=True)
class TokenTables:
    """The bin of every id, a table a feature, each uint8[vocab]; and the bytes of every id, 0 for special ones."""

    bins: Mapping[str, npt.NDArray[np.uint8]]
    widths: npt.NDArray[np.int64]

    @classmethod
    def of(cls, tokenizer: Tokenizer) -> TokenTables:
        specials = set(tokenizer.special_ids.values())
        tokens = [b"" if number in specials else token for number, token in enumerate(tokenizer.tokens)]
        ids = np.arange(len(tokens), dtype=np.uint64)
        widths = np.array([len(token) for token in tokens], np.int64)
        bins = {
            "token_rank": np.searchsorted(1 << np.arange(32, dtype=np.int64), ids.astype(np.int64), side="right"),
            "vocabulary": (ids * np.uint64(_HASH)) >> np.uint64(58),
            "bytes_per_token": np.searchsorted(_LENGTH_STARTS, widths, side="right") - 1,
            "byte_fallback": np.array([not is_whole(token) for token in tokens], np.uint8),
            "script": np.array([script_number(token) for token in tokens], np.uint8),
        }
        return cls({name: np.asarray(table, np.uint8) for name, table in bins.items()}, widths)

    def counts(self, id_counts: npt.NDArray[np.int64]) -> dict[str, npt.NDArray[np.int64]]:
        """Tokens in each bin of each feature, from the count of each id."""
        found = {}
        for name, table in self.bins.items():
            weights = np.bincount(table[: len(id_counts)], weights=id_counts, minlength=BINS[name])
            found[name] = weights.astype(np.int64)
        return found

    def of_rows(
        self, ids: npt.NDArray[np.unsignedinteger], row_of: npt.NDArray[np.int64], rows: int
    ) -> dict[str, npt.NDArray[np.int64]]:
        """Tokens in each bin of each feature, (rows, bins), from ids and the row that each belongs to."""
        found = {}
        for joint in self.joints:
            size = len(joint.members)
            flat = np.bincount(row_of * size + joint.table[ids], minlength=rows * size).reshape(rows, size)
            for place, name in enumerate(joint.features):
                spread = joint.members[:, place, None] == np.arange(BINS[name])
                found[name] = flat @ spread.astype(np.int64)
        return found

    @cached_property
    def joints(self) -> tuple[_Joint, ...]:
        """Features that are counted in one pass over the ids, because few of their combinations exist."""
        coarse = tuple(name for name in self.bins if name != "vocabulary")
        return _joint(self.bins, coarse), _joint(self.bins, ("vocabulary",))


@dataclass(frozen=True, slots=True)
class _Joint:
    """The combination of every id, and the bins of each combination, (combinations, features)."""

    features: tuple[str, ...]
    table: npt.NDArray[np.int64]
    members: npt.NDArray[np.int64]


def _joint(bins: Mapping[str, npt.NDArray[np.uint8]], features: tuple[str, ...]) -> _Joint:
    stacked = np.stack([bins[name].astype(np.int64) for name in features], axis=1)
    members, table = np.unique(stacked, axis=0, return_inverse=True)
    return _Joint(features, table.reshape(-1).astype(np.int64), members)
