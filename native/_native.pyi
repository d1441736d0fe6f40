from collections.abc import Sequence
from typing import Any, final

import numpy as np
import numpy.typing as npt

__all__ = [
    "version",
    "Piece",
    "key",
    "permute",
    "permute_many",
    "plan_tokens",
    "random_u64",
    "row_digests",
    "step_digest",
]

version: str

_Words = npt.NDArray[np.uint64]
_Slots = tuple[npt.NDArray[np.uint32], _Words, _Words, _Words]

def key(seed: int, purpose: str, number: int, name: str) -> tuple[int, int]: ...
def random_u64(key: tuple[int, int], counter: int) -> int: ...
def permute(key: tuple[int, int], n: int, index: int) -> int: ...
def permute_many(key: tuple[int, int], n: int, indices: _Words) -> _Words: ...
def plan_tokens(state: _Words) -> _Words: ...
def row_digests(
    ids: bytes | bytearray | memoryview,
    row_bytes: int,
    edge_ends: npt.NDArray[np.uint32],
    edges: npt.NDArray[np.uint32],
    names: list[str],
    domains: npt.NDArray[np.uint32],
    loss_weights: npt.NDArray[np.float32],
) -> bytes: ...
def step_digest(row_digests: bytes | bytearray | memoryview) -> bytes: ...

@final
class Piece:
    def __new__(
        cls,
        *,
        seed: int,
        draw: str,
        order: str,
        batch: int,
        members: Sequence[dict[str, Any]],
        ramp: tuple[int, int, str] | None = None,
    ) -> Piece: ...
    def advance(self, state: _Words, step: int, steps: int) -> tuple[_Words, int, int | None]: ...
    def advance_watching(
        self, state: _Words, step: int, steps: int
    ) -> tuple[_Words, int, int | None, npt.NDArray[np.int64], npt.NDArray[np.int64]]: ...
    def deal(self, state: _Words, step: int) -> tuple[_Slots | None, int | None]: ...
    def parts(self, step: int) -> _Words: ...
    def shares(self, step: int) -> npt.NDArray[np.int64]: ...
    def windows_left(self, state: _Words) -> _Words: ...
