"""Candidate mixtures for a sweep of proxies, drawn around the token shares (RegMix, arXiv 2407.01492; Olmix).

    candidate ~ Dirichlet(strength * prior),  prior ~ shares^(temperature), strength log-uniform between two ends

What holds: weights sum to 1 (the released tables do not, they are rounded after normalising); no candidate repeats a
domain beyond `largest_repeat` times its share; equal seeds give equal candidates. What was given up: rejection until
the caps of the real run hold: caps belong into the solve, sweeping inside them costs accuracy.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from headrace.mixer.simplex import Weights, named, normalise, vector
from headrace.proto.errors import UsageError


@dataclass(frozen=True, kw_only=True, slots=True)
class SwarmSpec:
    """How candidates are drawn; the defaults are those of RegMix."""

    runs: int
    seed: int = 42
    temperature: float = 0.5
    weakest: float = 0.1
    strongest: float = 5.0
    smallest: float = 2e-4
    largest_repeat: float = 15.0

    def __post_init__(self) -> None:
        if self.runs < 1 or not 0 < self.weakest <= self.strongest or self.temperature <= 0:
            raise UsageError("swarm: runs must be at least 1, temperature above 0 and 0 < weakest <= strongest")


def swarm(tokens: Mapping[str, float], spec: SwarmSpec) -> tuple[Weights, ...]:
    """`spec.runs` different mixtures. Raises UsageError when the limits leave too few."""
    shares = normalise(tokens, place="swarm")
    names, rng = tuple(shares), np.random.default_rng(spec.seed)
    natural = vector(shares, names)
    prior = natural**spec.temperature / np.sum(natural**spec.temperature)
    found: list[np.ndarray[tuple[int], np.dtype[np.float64]]] = []
    for _ in range(1000 * spec.runs):
        strength = np.exp(rng.uniform(np.log(spec.weakest), np.log(spec.strongest))) * len(names)
        candidate = rng.dirichlet(np.maximum(strength * prior, 1e-3))
        candidate[candidate < spec.smallest] = 0.0
        candidate /= candidate.sum()
        new = all(np.abs(candidate - other).sum() > 1e-5 for other in found)
        if new and (candidate <= np.minimum(spec.largest_repeat * natural, 1.0)).all():
            found.append(candidate)
        if len(found) == spec.runs:
            return tuple(named(names, candidate) for candidate in found)
    raise UsageError(
        f"swarm: only {len(found)} of {spec.runs} candidates keep every domain within {spec.largest_repeat} times its "
        "share"
    )
