"""A run that is told to stop does, at whatever moment of its task."""

from __future__ import annotations

import asyncio
from pathlib import Path

from headrace.server.control.aio import AsyncStore
from headrace.server.control.store import Store
from headrace.server.service.registry import Registry
from rig import write_run


async def _close_after(store: AsyncStore, turns: int) -> None:
    """Wakes the task that raises the seal, lets the loop turn so many times, then stops it."""
    registry = Registry(store)
    handle = await registry.by_name("r")
    await asyncio.sleep(0.02)  # it waits by now
    handle._wake.set()
    for _ in range(turns):
        await asyncio.sleep(0)
    await asyncio.wait_for(registry.close(), 5)


def test_a_stop_in_the_turn_in_which_the_task_wakes(tmp_path: Path, corpus: Path) -> None:
    """A cancellation that the waiting swallows leaves the task running and the stop waiting for ever."""
    path = write_run(tmp_path, corpus)

    async def stops() -> None:
        store = AsyncStore(Store(f"sqlite:///{tmp_path}/control.db", writable=True))
        try:
            await Registry(store).create_from_file(path)
            for turns in range(8):
                await _close_after(store, turns)
        finally:
            store.close()

    asyncio.run(stops())
