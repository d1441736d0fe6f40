"""Packed rows from memory, in the shape of the loader's batches: five small languages with known structure.

Each domain is a Markov chain of its own over one vocabulary, so that a proxy of any size learns something
and domains differ. `twin` is `plain` under another name: the two are redundant. `noise` cannot be learned.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

VOCAB, SEQ_LEN = 64, 32


@dataclass(frozen=True, slots=True)
class MemoryBatch:
    step: int
    input_ids: np.ndarray
    labels: np.ndarray
    loss_mask: np.ndarray
    position_ids: np.ndarray
    domain: np.ndarray
    domain_names: tuple[str, ...]


def chain(name: str) -> np.ndarray:
    """(VOCAB, VOCAB) transition matrix of a domain."""
    rng = np.random.default_rng(hash_of(name))
    if name == "noise":
        return np.full((VOCAB, VOCAB), 1 / VOCAB)
    return rng.dirichlet(np.full(VOCAB, 0.03), size=VOCAB)


def hash_of(name: str) -> int:
    """A stable number of a name; twins share one."""
    return int.from_bytes({"twin": b"plain"}.get(name, name.encode()), "big") % 2**32


def rows(name: str, count: int, seed: int) -> np.ndarray:
    """(count, SEQ_LEN + 1) ids of a domain."""
    rng = np.random.default_rng([seed, *name.encode()])
    cumulative = chain(name).cumsum(axis=1)
    ids = np.empty((count, SEQ_LEN + 1), dtype=np.uint16)
    ids[:, 0] = rng.integers(VOCAB, size=count)
    for t in range(SEQ_LEN):
        ids[:, t + 1] = (rng.random((count, 1)) > cumulative[ids[:, t]]).sum(axis=1).clip(max=VOCAB - 1)
    return ids


def batches(weights: Mapping[str, int], seed: int, start: int = 0) -> Iterator[MemoryBatch]:
    """Endless batches with `weights[name]` rows of each domain; row 0 of each batch is half padding."""
    names, step = tuple(sorted(weights)), start
    while True:
        ids = np.concatenate([rows(name, weights[name], seed * 1_000_003 + step) for name in names])
        real = np.full(len(ids), SEQ_LEN + 1)
        real[0] = SEQ_LEN // 2
        mask = np.arange(1, SEQ_LEN + 1) < real[:, None]
        ids[np.arange(SEQ_LEN + 1) >= real[:, None]] = 0
        yield MemoryBatch(
            step=step,
            input_ids=ids[:, :-1],
            labels=np.where(mask, ids[:, 1:].astype(np.int64), -100),
            loss_mask=mask,
            position_ids=np.tile(np.arange(SEQ_LEN, dtype=np.int32), (len(ids), 1)),
            domain=np.repeat(np.arange(len(names), dtype=np.uint32), [weights[name] for name in names]),
            domain_names=names,
        )
        step += 1
