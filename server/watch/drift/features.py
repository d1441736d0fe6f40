"""The features that drift is measured in: their bins, and their reference from a domain's profile in the manifest."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from headrace.server.corpus.profile import LENGTH_EDGES, Profile
from headrace.server.corpus.token_tables import BINS, TOKEN_FEATURES
from headrace.server.watch.drift.divergence import F64, shares

LENGTH_BINS = 32
LOSS_BINS = 128
LOSS_WIDTH = 0.125  # nats
FEATURES = ("document_length", *TOKEN_FEATURES, "near_duplicate", "loss")


def length_bin(lengths: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """The octave of each length in tokens; 0 counts as 1."""
    octaves: npt.NDArray[np.int64] = np.log2(np.maximum(lengths, 1)).astype(np.int64)
    return clipped(octaves, LENGTH_BINS)


def loss_bin(losses: npt.NDArray[np.float64]) -> npt.NDArray[np.int64]:
    """Eighths of a nat a token, up to 16."""
    eighths: npt.NDArray[np.int64] = (losses / LOSS_WIDTH).astype(np.int64)
    return clipped(eighths, LOSS_BINS)


def clipped(bins: npt.NDArray[np.int64], size: int) -> npt.NDArray[np.int64]:
    """Numbers beyond the last bin in the last one."""
    inside: npt.NDArray[np.int64] = np.minimum(np.maximum(bins, 0), size - 1)
    return inside


def one_hot(bins: npt.NDArray[np.int64], size: int) -> npt.NDArray[np.int64]:
    """(units,) bins as (units, size) counts."""
    counts = np.zeros((len(bins), size), np.int64)
    counts[np.arange(len(bins)), bins] = 1
    return counts


def reference(profile: Profile, feature: str) -> F64 | None:
    """The shares that the manifest records; None where it has none."""
    if feature == "document_length":
        counts = np.zeros(LENGTH_BINS)
        np.add.at(counts, length_bin(LENGTH_EDGES[: len(profile.lengths)]), profile.lengths)
        return shares(counts) if counts.any() else None
    recorded = profile.ids if feature == "token_rank" else profile.tokens.get(feature, ())
    if not any(recorded):
        return None
    counts = np.zeros(BINS[feature])
    counts[: len(recorded)] = recorded
    return shares(counts)
