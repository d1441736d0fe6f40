"""StreamBatches: one call that carries many ranges of rows, answered one by one in the order they were asked for.

What the client says is heard as it comes, also while an answer waits for the seal: its confirmation may be what the
seal waits for. Nothing is decided here; each range is answered by the function that answers a GetBatch. What the client
asks for is its credit, and gRPC's own flow control holds an answer back until the one before it is on its way.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass

from headrace.proto.errors import HeadraceError, LimitError, name_of
from headrace.proto.v1 import data_pb2 as pb

MOST_RANGES = 4096


@dataclass(frozen=True, kw_only=True, slots=True)
class Wanted:
    """A range, and why the message that asked for it is refused, if it is."""

    range: pb.RowRange
    error: HeadraceError | None


class Asked:
    """The ranges of a stream that wait for their answer."""

    def __init__(
        self,
        requests: AsyncIterator[pb.StreamBatchesRequest],
        hear: Callable[[pb.StreamBatchesRequest], Awaitable[None]],
    ) -> None:
        self._hear = hear
        self._waiting: deque[Wanted] = deque()
        self._news = asyncio.Event()
        self._task = asyncio.create_task(self._read(requests))
        self._task.add_done_callback(lambda _: self._news.set())

    async def _read(self, requests: AsyncIterator[pb.StreamBatchesRequest]) -> None:
        async for request in requests:
            error = None
            try:
                await self._hear(request)
            except HeadraceError as found:
                if not request.ranges:
                    raise
                error = found
            if len(self._waiting) + len(request.ranges) > MOST_RANGES:
                raise LimitError(f"more than {MOST_RANGES} ranges wait in one stream; ask for more as answers arrive")
            self._waiting.extend(Wanted(range=wanted, error=error) for wanted in request.ranges)
            self._news.set()

    async def next(self) -> Wanted | None:
        """The next range; None when the client has no more. Raises what is wrong with the stream itself."""
        while not self._waiting:
            if self._task.done():
                self._task.result()
                return None
            self._news.clear()
            await self._news.wait()
        return self._waiting.popleft()

    async def close(self) -> None:
        """Stops reading."""
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError, Exception):
            await self._task


async def stream_batches(asked: Asked, answer: Callable[[pb.RowRange], Awaitable[bytes]]) -> AsyncIterator[bytes]:
    """The answers to the ranges asked for, until the client has no more of them."""
    try:
        while (wanted := await asked.next()) is not None:
            try:
                if wanted.error is not None:
                    raise wanted.error
                made = await answer(wanted.range)
            except HeadraceError as error:
                made = _refused(error)
            yield made
    finally:
        await asked.close()


def _refused(error: HeadraceError) -> bytes:
    refused = pb.Refused(code=error.status.value[0], error=name_of(error), message=str(error))
    return pb.GetBatchResponse(refused=refused).SerializeToString()
