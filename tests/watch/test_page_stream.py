"""The stream of snapshots: bounded, ended by a stop or a token that is taken back, and never a queue."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest
from headrace.proto.errors import HeadraceError, LimitError, UnauthenticatedError, UnavailableError
from headrace.server.watch import stream
from headrace.server.watch.feed import Shown
from headrace.server.watch.stream import Streams


class Feed:
    """Snapshots as they are put in."""

    def __init__(self) -> None:
        self.version = 1
        self.error: HeadraceError | None = None

    async def newer(self, version: int, seconds: float) -> Shown | None:
        for _ in range(20):
            if self.error is not None:
                raise self.error
            if self.version != version:
                body = json.dumps({"version": self.version}).encode()
                return Shown(version=self.version, snapshot=None, body=body)  # type: ignore[arg-type]
            await asyncio.sleep(seconds / 20)
        return None


def parsed(message: bytes) -> tuple[str, Any]:
    event, data = message.decode().strip().split("\n")
    return event.removeprefix("event: "), json.loads(data.removeprefix("data: "))


async def read(streams: Streams, feed: Feed, judge: Callable[[], object], count: int) -> list[tuple[str, Any]]:
    """The first messages after the one that says how soon to come back; fewer when the stream ends."""
    found: list[tuple[str, Any]] = []
    messages = streams.of(feed, judge)  # type: ignore[arg-type]
    async for message in messages:
        if message.startswith(b"retry"):
            continue
        found.append(parsed(message))
        if len(found) == count:
            break
    await messages.aclose()  # type: ignore[attr-defined]
    return found


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "BEAT_SECONDS", 0.2)


def nothing() -> None:
    """Everybody may look."""


def test_a_slow_page_gets_the_newest_and_beats_between() -> None:
    async def go() -> None:
        feed, streams = Feed(), Streams()
        messages = streams.of(feed, nothing)  # type: ignore[arg-type]
        await anext(messages)
        assert parsed(await anext(messages)) == ("snapshot", {"version": 1})
        feed.version = 9
        assert parsed(await anext(messages)) == ("snapshot", {"version": 9})
        event, data = parsed(await anext(messages))
        assert event == "beat"
        assert data["now_us"] > 0
        await messages.aclose()  # type: ignore[attr-defined]

    asyncio.run(go())


def test_no_more_pages_than_there_may_be_and_a_closed_one_makes_room() -> None:
    async def go() -> None:
        feed, streams = Feed(), Streams(most=2)
        held = [streams.of(feed, nothing) for _ in range(2)]  # type: ignore[arg-type]
        for messages in held:
            await anext(messages)
        with pytest.raises(LimitError, match="2 pages"):
            streams.check()
        await held[0].aclose()  # type: ignore[attr-defined]
        assert await read(streams, feed, nothing, 1)

    asyncio.run(go())


def test_stopping_ends_a_waiting_page_at_once() -> None:
    async def go() -> None:
        feed, streams = Feed(), Streams()
        task = asyncio.create_task(read(streams, feed, nothing, 99))
        await asyncio.sleep(0.05)
        streams.stopping.set()
        found = await asyncio.wait_for(task, 1)
        assert found[0] == ("snapshot", {"version": 1})
        assert len(found) <= 2

    asyncio.run(go())


def test_a_token_that_is_taken_back_ends_the_stream() -> None:
    async def go() -> None:
        feed, streams = Feed(), Streams()
        asked = 0

        def judge() -> None:
            nonlocal asked
            asked += 1
            if asked > 1:
                raise UnauthenticatedError("gone")

        assert [event for event, _ in await read(streams, feed, judge, 9)] == ["snapshot", "refused"]

    asyncio.run(go())


def test_figures_that_cannot_be_made_are_told() -> None:
    async def go() -> None:
        feed, streams = Feed(), Streams()
        feed.error = UnavailableError("the corpus is away")
        assert await read(streams, feed, nothing, 9) == [("failed", {"message": "the corpus is away"})]

    asyncio.run(go())
