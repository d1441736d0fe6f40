"""StreamBatches: one call that carries many ranges of rows, answered one by one in the order they were asked for.

What the client says is heard as it comes, also while an answer waits for the seal: its confirmation may be what the
seal waits for. Nothing is decided here; each range is answered by the function that answers a GetBatch. What the client
asks for is its credit, and gRPC's own flow control holds an answer back until the one before it is on its way.

A message costs as much as 300 KiB of ids do, whatever is in it. So answers that are ready at one moment share one, up
to what the client takes: small steps then travel as fast as big ones. Nothing is held back for it.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass

from headrace.proto.errors import HeadraceError, LimitError, name_of
from headrace.proto.v1 import data_pb2 as pb
from headrace.server.service.rows import Answer, pack

MOST_RANGES = 4096


@dataclass(frozen=True, kw_only=True, slots=True)
class Wanted:
    """A range, and why the message that asked for it is refused, if it is; or an answer that is no range's."""

    range: pb.RowRange
    error: HeadraceError | None = None
    answer: Answer | None = None


class Asked:
    """The ranges of a stream that wait for their answer."""

    def __init__(
        self,
        requests: AsyncIterator[pb.StreamBatchesRequest],
        hear: Callable[[pb.StreamBatchesRequest], Awaitable[None]],
    ) -> None:
        self.pack_bytes = 0
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
            if request.HasField("pack_bytes"):
                self.pack_bytes = request.pack_bytes
            self._waiting.extend(Wanted(range=wanted, error=error) for wanted in request.ranges)
            if not self._news.is_set():
                self._news.set()
                await asyncio.sleep(0)  # `next` has waited: it answers before the message after this one is asked for

    def say(self, answer: Answer) -> None:
        """Has something told to the client before the ranges that wait."""
        self._waiting.appendleft(Wanted(range=pb.RowRange(), answer=answer))
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

    def waiting(self) -> Iterator[Wanted]:
        """Those that wait now, in order."""
        return iter(self._waiting)

    def peek(self) -> Wanted | None:
        """The range that `take` gives, if there is one by now."""
        return self._waiting[0] if self._waiting else None

    def take(self) -> Wanted:
        """The next range, which must be there."""
        return self._waiting.popleft()

    async def close(self) -> None:
        """Stops reading."""
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError, Exception):
            await self._task


async def stream_batches(
    asked: Asked,
    answer: Callable[[pb.RowRange], Awaitable[Answer]],
    ready: Callable[[pb.RowRange], int | None],
    *,
    most_bytes: int,
) -> AsyncIterator[bytes]:
    """The answers to the ranges asked for, until the client has no more of them.

    `ready` gives the bytes of ids of a range that can be answered at once: while there are such, they share a message
    of at most `most_bytes` and what the client takes.
    """
    try:
        while (wanted := await asked.next()) is not None:
            size = _size(wanted, ready)  # before it is made: rows that were built ahead are let go then
            made = [await _made(wanted, answer)]
            room = min(asked.pack_bytes or -math.inf, most_bytes) - min(size, sum(map(len, made[0])))
            while (follower := asked.peek()) is not None and (room := room - _size(follower, ready)) >= 0:
                made.append(await _made(asked.take(), answer))
            yield pack(made)
    finally:
        await asked.close()


def _size(wanted: Wanted, ready: Callable[[pb.RowRange], int | None]) -> float:
    size = 0 if wanted.error is not None or wanted.answer is not None else ready(wanted.range)
    return math.inf if size is None else size


async def _made(wanted: Wanted, answer: Callable[[pb.RowRange], Awaitable[Answer]]) -> Answer:
    try:
        if wanted.error is not None:
            raise wanted.error
        if wanted.answer is not None:
            return wanted.answer
        return await answer(wanted.range)
    except HeadraceError as error:
        refused = pb.Refused(code=error.status.value[0], error=name_of(error), message=str(error))
        return (pb.GetBatchResponse(refused=refused).SerializeToString(),)
