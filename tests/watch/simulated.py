"""Simulated domains whose distribution does not change: what windows hold when documents differ from each other."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import numpy.typing as npt

Counts = npt.NDArray[np.int64]
Draw = Callable[[np.random.Generator, int], Counts]
"""(generator, units) -> counts (units, bins)."""


def zipf(bins: int, power: float = 1.0) -> npt.NDArray[np.float64]:
    weights = 1 / np.arange(1, bins + 1) ** power
    return weights / weights.sum()


def multinomial(base: npt.NDArray[np.float64], size: int) -> Draw:
    """All windows alike."""
    return lambda random, units: random.multinomial(size, base, units)


def clustered(base: npt.NDArray[np.float64], size: int, concentration: float) -> Draw:
    """Each window its own distribution around the base: one document or topic a window."""

    def draw(random: np.random.Generator, units: int) -> Counts:
        gammas = random.gamma(np.maximum(base * concentration, 1e-3), size=(units, len(base)))
        return random.multinomial(size, gammas / gammas.sum(axis=1, keepdims=True))

    return draw


def with_rare(common: Draw, rare: Draw, part: float) -> Draw:
    """A part of the windows is of another kind altogether, such as another language."""

    def draw(random: np.random.Generator, units: int) -> Counts:
        is_rare = random.random(units) < part
        return np.where(is_rare[:, None], rare(random, units), common(random, units))

    return draw


def lengths(median: float, spread: float, seq_len: int, bins: int = 32) -> Draw:
    """Octaves of the log-normal lengths of the documents that begin in windows."""

    def draw(random: np.random.Generator, units: int) -> Counts:
        begun = random.poisson(seq_len / (median * np.exp(spread**2 / 2)), units)
        octaves = np.log2(np.maximum(1, random.lognormal(np.log(median), spread, begun.sum()))).astype(np.int64)
        flat = np.repeat(np.arange(units), begun) * bins + np.minimum(octaves, bins - 1)
        return np.bincount(flat, minlength=units * bins).reshape(units, bins)

    return draw


def rate(part: float) -> Draw:
    """One of two things a unit, such as a repeated document."""
    return lambda random, units: np.eye(2, dtype=np.int64)[(random.random(units) < part).astype(np.int64)]


_FOREIGN = np.roll(zipf(64), 31)
DOMAINS: Mapping[str, tuple[str, Draw]] = {
    "alike": ("vocabulary", multinomial(zipf(64), 4096)),
    "clustered": ("vocabulary", clustered(zipf(64), 4096, 20.0)),
    "heavily clustered": ("vocabulary", clustered(zipf(64), 4096, 3.0)),
    "2 % foreign": ("vocabulary", with_rare(clustered(zipf(64), 2048, 50.0), clustered(_FOREIGN, 2048, 50.0), 0.02)),
    "short windows": ("vocabulary", clustered(zipf(64), 32, 20.0)),
    "scripts, 1 % foreign": (
        "script",
        with_rare(multinomial(np.array([0.3, 0.7, 0.0]), 2048), multinomial(np.array([0.2, 0.0, 0.8]), 2048), 0.01),
    ),
    "ranks": ("token_rank", clustered(zipf(17, 0.3), 4096, 30.0)),
    "documents, few a window": ("document_length", lengths(800, 1.2, 1024)),
    "documents, many a window": ("document_length", lengths(100, 1.0, 4096)),
    "repeats, 0.5 %": ("near_duplicate", rate(0.005)),
}
"""Name -> feature and its draw."""


def population(draw: Draw, random: np.random.Generator, *, units: int) -> npt.NDArray[np.float64]:
    """The exact shares, nearly: from very many units."""
    total = sum(draw(random, 5000).sum(axis=0) for _ in range(units // 5000))
    return np.asarray(total / total.sum())
