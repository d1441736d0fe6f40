"""Server-sent events: a run's snapshot whenever it has changed, a beat when it has not, to a bounded number of pages.

A page that reads slowly holds one message back, never a queue of them: the next one it gets is the newest. Who may look
is judged again with each message, so that a token that was taken back ends its streams too.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable

from headrace.proto.errors import AuthError, HeadraceError, LimitError
from headrace.server.watch.feed import Feed, to_json

MOST_STREAMS = 64
BEAT_SECONDS = 5.0
STREAM_SECONDS = 1800.0
"""A page connects again after it; so pages spread over replicas again."""


class Streams:
    """The streams under way; `stopping` ends them."""

    def __init__(self, most: int = MOST_STREAMS) -> None:
        self._most = most
        self._open = 0
        self.stopping = asyncio.Event()

    def check(self) -> None:
        """Raises LimitError when there are as many streams as there may be."""
        if self._open >= self._most:
            raise LimitError(f"{self._most} pages are connected to this server already; close one, or look later")

    async def of(self, feed: Feed, judge: Callable[[], object]) -> AsyncIterator[bytes]:
        """The messages of one page. `judge` raises AuthError when its user may not look any more."""
        self.check()
        self._open += 1
        try:
            version, until = 0, time.monotonic() + STREAM_SECONDS
            yield b"retry: 2000\n\n"
            while not self.stopping.is_set() and time.monotonic() < until:
                judge()
                shown = await self._newer(feed, version)
                if shown is None:
                    yield _message("beat", to_json({"now_us": time.time_ns() // 1000}))
                    continue
                version, body = shown
                yield _message("snapshot", body)
        except AuthError:
            yield _message("refused", b"{}")
        except HeadraceError as error:
            yield _message("failed", to_json({"message": str(error)}))
        finally:
            self._open -= 1

    async def _newer(self, feed: Feed, version: int) -> tuple[int, bytes] | None:
        """The next snapshot; None when there is none for a while, or the server stops."""
        waiting = asyncio.ensure_future(feed.newer(version, BEAT_SECONDS))
        stopping = asyncio.ensure_future(self.stopping.wait())
        try:
            await asyncio.wait((waiting, stopping), return_when=asyncio.FIRST_COMPLETED)
            shown = waiting.result() if waiting.done() else None
            return None if shown is None else (shown.version, shown.body)
        finally:
            waiting.cancel()
            stopping.cancel()


def _message(event: str, data: bytes) -> bytes:
    """JSON has no line breaks of its own, so one `data` line holds it."""
    return b"event: " + event.encode() + b"\ndata: " + data + b"\n\n"
