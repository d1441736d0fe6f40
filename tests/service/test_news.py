"""Servers on one PostgreSQL store hear of each other's changes as they commit, and else find out by asking."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from headrace.server.control.aio import AsyncStore
from headrace.server.control.events import Wish
from headrace.server.control.store import Store
from headrace.server.plan.log import WeightsBody
from headrace.server.service import handle as handles
from headrace.server.service.changes import checker
from headrace.server.service.handle import RunHandle
from headrace.server.service.registry import Registry
from postgres import PostgresServer
from rig import write_run


async def until(ready: Callable[[], bool], seconds: float = 10.0) -> float:
    """How long it took."""
    begun = time.monotonic()
    while not ready():
        assert time.monotonic() - begun < seconds, "nobody heard of it"
        await asyncio.sleep(0.005)
    return time.monotonic() - begun


async def swap(handle: RunHandle, part: float) -> None:
    body = WeightsBody(weights={"a": part, "b": 1 - part, "c": 0.0})
    await handle.append(Wish(body=body), checker(handle.view))


def test_a_swap_is_seen_at_once_and_also_after_the_news_were_away(
    postgres: PostgresServer, tmp_path: Path, corpus: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Only news can be as quick as this: nobody asks by himself for a minute.
    monkeypatch.setattr(handles, "_WRITE_EVERY", 60.0)
    run = write_run(tmp_path, corpus)
    url = postgres.new_database()

    async def replicas() -> None:
        stores = [AsyncStore(Store(url, writable=True)) for _ in range(2)]
        registries = [Registry(store) for store in stores]
        try:
            for registry in registries:
                await registry.create_from_file(run)
                await registry.by_name("r")
                registry.listen()
            one, two = (registry.handles[0] for registry in registries)
            await until(lambda: all(store.store.is_listening for store in stores))
            for number in range(1, 4):
                await swap(one if number % 2 else two, number / 10)
                await until(lambda number=number: one.view.run.sequence == two.view.run.sequence == number)
            await asyncio.to_thread(postgres.stop)
            await until(lambda: not any(store.store.is_listening for store in stores))
            await asyncio.to_thread(postgres.start)
            await until(lambda: all(store.store.is_listening for store in stores), 20.0)
            await swap(two, 0.9)
            await until(lambda: one.view.run.sequence == two.view.run.sequence == 4)
        finally:
            for registry, store in zip(registries, stores, strict=True):
                await registry.close()
                await asyncio.to_thread(store.close)

    asyncio.run(replicas())
