"""The store off the event loop: each call runs in a small pool of threads, so that a slow disk stops no batch.

One pool a process; its size bounds the connections to the store. Given up: an async driver, which would be a second
set of code for SQLite and PostgreSQL each, for calls that happen about once a second.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from headrace.server.control.store import Store

_Result = TypeVar("_Result")
_THREADS = 4


class AsyncStore:
    """Runs store calls in threads: `await store.call(lambda store: store.runs())`."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self._pool = ThreadPoolExecutor(max_workers=_THREADS, thread_name_prefix="headrace-store")

    async def call(self, work: Callable[[Store], _Result]) -> _Result:
        """The result of `work` on the store, or what it raises. A call that began is finished even if cancelled."""
        begun = asyncio.get_running_loop().run_in_executor(self._pool, work, self.store)
        begun.add_done_callback(heard)
        return await asyncio.shield(begun)

    def close(self) -> None:
        """Waits for calls under way, then closes the store."""
        self._pool.shutdown(wait=True)
        self.store.close()


def heard(done: asyncio.Future[_Result]) -> None:
    """Takes note of a failure that whoever waited for it may have left: else asyncio logs it as a defect."""
    if not done.cancelled():
        done.exception()
