"""Memory for token ids, used again once nobody looks at it.

A fresh megabyte for every batch costs a page fault for each of its pages, and glibc gives the pages back every time.
So a pool keeps the arrays that it has given out, and gives one out again when nothing refers to it any more: neither
the batch nor any array or tensor made from it. A trainer may therefore keep a batch as long as it likes; it costs one
more buffer. This reads CPython's reference counts and so needs the GIL; without one, memory is never used again.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

# Just below 32 MiB, the most that glibc's threshold follows.
_LARGEST_DYNAMIC = (32 << 20) - (64 << 10)

Buffer = NDArray[np.uint8]


def keep_freed_memory() -> None:
    """Keeps glibc from giving the pages of every freed message back to the kernel, only to fault them in again.

    It does so above thresholds that follow the largest block freed so far, up to 32 MiB. So one such block is freed
    here, untouched; nothing is set that a trainer could have set otherwise. Measured with messages of 1 MiB: it halves
    the CPU time that the client needs.
    """
    np.empty(_LARGEST_DYNAMIC, dtype=np.uint8)  # of `bytearray` every page would be touched: 10 ms and more


def plain_buffer(size: int) -> Buffer:
    """Ordinary memory."""
    return np.empty(size, dtype=np.uint8)


def _references(buffers: list[Buffer]) -> list[int]:
    return [sys.getrefcount(buffer) for buffer in buffers]


# What the function above counts for a buffer that only its list holds: measured, for versions of CPython differ.
_IDLE = _references([plain_buffer(0)])[0]
_GIL: bool = getattr(sys, "_is_gil_enabled", lambda: True)()


class Pool:
    """Holds up to `keep` buffers of the size asked for last. Not thread-safe: the caller holds its lock."""

    def __init__(self, keep: int, make: Callable[[int], Buffer] = plain_buffer) -> None:
        self._keep = keep if _GIL else 0
        self._make = make
        self._buffers: list[Buffer] = []

    def take(self, size: int) -> Buffer:
        """A writable buffer of exactly `size` bytes, contents undefined."""
        if self._buffers and self._buffers[0].size != size:
            self._buffers.clear()
        for index, count in enumerate(_references(self._buffers)):
            if count == _IDLE:
                return self._buffers[index]
        fresh = self._make(size)
        if len(self._buffers) < self._keep:
            self._buffers.append(fresh)
        return fresh
