"""Where batches lie and what is made of them before the trainer asks: the seam that `headrace.client.torch` fills."""

from __future__ import annotations

from typing import Protocol

from headrace.client.batch import Batch
from headrace.client.buffers import Buffer, plain_buffer


class Stage(Protocol):
    """Called on the loader's threads. What raises in `warm` reaches the trainer at that step."""

    def buffer(self, size: int) -> Buffer:
        """A writable array of `size` bytes for the token ids of a batch."""
        ...

    def warm(self, batch: Batch) -> None:
        """Makes ahead of time what the trainer is going to ask of a whole batch."""
        ...


class PlainStage:
    """Ordinary memory, and nothing made ahead."""

    def buffer(self, size: int) -> Buffer:
        return plain_buffer(size)

    def warm(self, batch: Batch) -> None:
        pass
