"""What a server knows of a run after a change: what the store has, whether or not others have written meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

from headrace.server.control.aio import AsyncStore
from headrace.server.control.events import Wish
from headrace.server.control.store import Store
from headrace.server.plan.log import WeightsBody
from headrace.server.service.changes import checker
from headrace.server.service.handle import RunHandle
from headrace.server.service.loading import Opener
from headrace.server.service.registry import Registry
from rig import write_run


def weights(part: float) -> Wish:
    return Wish(body=WeightsBody(weights={"a": part, "b": 1 - part, "c": 0.0}))


def same_as_the_store(handle: RunHandle, store: Store) -> bool:
    """Row, log and plan are those that a server which starts now finds."""
    fresh, view = Opener(store).view("r"), handle.view
    hashes = [plan.hash(plan.first + 10**6) for plan in (fresh.plan, view.plan)]
    return (fresh.run, fresh.events, hashes[0]) == (view.run, view.events, hashes[1])


def in_a_server(folder: Path, corpus: Path, work: Callable[[RunHandle, Store], Awaitable[None]]) -> None:
    async def go() -> None:
        store = AsyncStore(Store(f"sqlite:///{folder}/control.db", writable=True))
        registry = Registry(store)
        try:
            await registry.create_from_file(write_run(folder, corpus, steps=10**7))
            await work(await registry.by_name("r"), store.store)
        finally:
            await registry.close()
            store.close()

    asyncio.run(go())


def test_a_change_is_planned_with_at_once(tmp_path: Path, corpus: Path) -> None:
    async def work(handle: RunHandle, store: Store) -> None:
        for number in range(1, 4):
            await handle.append(weights(number / 10), checker(handle.view))
            assert handle.view.run.sequence == number
            assert same_as_the_store(handle, store)

    in_a_server(tmp_path, corpus, work)


def test_what_others_wrote_in_between_is_read(tmp_path: Path, corpus: Path) -> None:
    async def work(handle: RunHandle, store: Store) -> None:
        view = handle.view
        store.append(view.run.id, weights(0.9), checker(view))
        await handle.append(weights(0.1), checker(view))
        assert [event.sequence for event in handle.view.events] == [1, 2]
        assert same_as_the_store(handle, store)

    in_a_server(tmp_path, corpus, work)


def test_a_dry_run_leaves_the_view_as_it_is(tmp_path: Path, corpus: Path) -> None:
    async def work(handle: RunHandle, store: Store) -> None:
        before = handle.view
        wish = Wish(body=weights(0.1).body, dry_run=True)
        await handle.append(wish, checker(before))
        assert handle.view is before
        assert same_as_the_store(handle, store)

    in_a_server(tmp_path, corpus, work)
