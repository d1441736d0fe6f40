"""Calls of the store that somebody no longer waits for."""

from __future__ import annotations

import asyncio
import gc
import threading
from pathlib import Path
from typing import Any

from headrace.proto.errors import UnavailableError
from headrace.server.control.aio import AsyncStore
from headrace.server.control.store import Store


def test_a_failure_that_nobody_waits_for_is_no_defect(tmp_path: Path) -> None:
    """A client whose deadline has passed while the store was away: asyncio would log a traceback."""
    told: list[dict[str, Any]] = []
    go = threading.Event()

    def fail(store: Store) -> None:
        go.wait(10)
        raise UnavailableError("away")

    async def leave() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: told.append(context))
        store = AsyncStore(Store(f"sqlite:///{tmp_path}/control.db", writable=True))
        call = asyncio.create_task(store.call(fail))
        await asyncio.sleep(0.1)
        call.cancel()
        await asyncio.wait((call,))
        go.set()
        await asyncio.to_thread(store.close)
        await asyncio.sleep(0.1)
        gc.collect()

    asyncio.run(leave())
    assert told == []
