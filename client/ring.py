"""Places in a piece of memory for ranges that are given back in the order in which they were taken."""

from __future__ import annotations

from collections import deque

_ALIGN = 64


class Ring:
    """Bytes [begin, end), both multiples of 64. Not thread-safe: the caller holds its lock."""

    def __init__(self, begin: int, end: int) -> None:
        self._begin = begin
        self._end = end
        self._taken: deque[tuple[int, int]] = deque()

    def take(self, size: int) -> int:
        """The first byte of so many that are free, or 0: there are not so many in one piece."""
        size = -(-size // _ALIGN) * _ALIGN
        if not self._taken:
            places = [(self._begin, self._end)]  # where the memory is still in the caches
        else:
            oldest, newest = self._taken[0][0], self._taken[-1]
            whole = newest[0] >= oldest
            places = [(newest[1], self._end), (self._begin, oldest)] if whole else [(newest[1], oldest)]
        for begin, end in places:
            if size <= end - begin:
                self._taken.append((begin, begin + size))
                return begin
        return 0

    def free(self) -> None:
        """Gives the range back that was taken first."""
        self._taken.popleft()
