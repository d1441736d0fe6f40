"""What the trainer has taken, and what of it the server has not been told yet.

One number counts: `taken`, the first step the trainer has not taken. The state carries it and confirmations carry it.
Digests of taken rows wait here until a call that carries them has been answered; a call that failed gives them back.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Iterable, Sequence

from headrace.proto.v1 import data_pb2

# Digests in one confirmation: with 16 bytes a row this stays well below the 256 KiB that a request may have.
_ROWS_AT_ONCE = 6_000


class Ledger:
    """Thread-safe."""

    def __init__(self, taken: int, *, told: int) -> None:
        self._lock = threading.RLock()
        self._taken = taken
        self._told = told
        self._heard = time.monotonic()
        self._waiting: deque[data_pb2.RowsReceived] = deque()
        self._waits = (0, 0)

    @property
    def taken(self) -> int:
        return self._taken

    @property
    def silent(self) -> float:
        """Seconds since the server last answered a confirmation."""
        return time.monotonic() - self._heard

    @property
    def behind(self) -> bool:
        """Whether there is anything to tell."""
        return bool(self._waiting) or self._told < self._taken

    def take(self, step: int, digests: Iterable[tuple[int, bytes]]) -> None:
        """The trainer has taken its rows of `step`, the next one: (first slot, row digests) of each range of them."""
        size = 16 * _ROWS_AT_ONCE
        parts = [
            data_pb2.RowsReceived(
                step=step, first_slot=first_slot + begin // 16, row_digests=received[begin : begin + size]
            )
            for first_slot, received in digests
            for begin in range(0, len(received), size)
        ]
        with self._lock:
            self._taken = step + 1
            self._waiting.extend(parts)

    def waits(self, seconds: float, stalls: int) -> None:
        """What the trainer's waiting has come to; the next confirmation tells the server."""
        self._waits = (int(seconds * 1e6), stalls)

    def next(self, *, always: bool = False) -> data_pb2.Confirmation | None:
        """A confirmation to send, or None when there is nothing to tell. Answer it with `done` or `failed`."""
        with self._lock:
            if not always and not self.behind:
                return None
            waited_us, stalls = self._waits
            confirmation = data_pb2.Confirmation(next_step=self._taken, waited_us=waited_us, stalls=stalls)
            rows = 0
            while self._waiting and rows < _ROWS_AT_ONCE:
                rows += len(self._waiting[0].row_digests) // 16
                if rows > _ROWS_AT_ONCE and confirmation.received:
                    break
                confirmation.received.append(self._waiting.popleft())
            return confirmation

    def done(self, confirmation: data_pb2.Confirmation | None) -> None:
        """The call was answered: the server knows it."""
        if confirmation is not None:
            with self._lock:
                self._told = max(self._told, confirmation.next_step)
                self._heard = time.monotonic()

    def failed(self, confirmation: data_pb2.Confirmation | None) -> None:
        """The call failed: its digests wait again."""
        if confirmation is not None:
            received: Sequence[data_pb2.RowsReceived] = confirmation.received
            with self._lock:
                self._waiting.extendleft(reversed(received))
