"""Notes refused changes in the store, off the calls that they belong to: at most a hundred wait, the rest are counted.

A flood of refused calls costs the store one write a second, and the log says how many were not noted one by one.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time

from headrace.proto.errors import HeadraceError
from headrace.server.control.aio import AsyncStore
from headrace.server.control.refusals import Refusal

logger = logging.getLogger("headrace.server")

_WAITING = 100
_EVERY = 1.0


class Audit:
    """Gathers refusals and writes them once a second."""

    def __init__(self, store: AsyncStore) -> None:
        self._store = store
        self._waiting: list[Refusal] = []
        self._skipped = 0
        self._task = asyncio.create_task(self._keep_writing(), name="audit")

    def refused(self, *, run: str, who: str, method: str, reason: str) -> None:
        """Notes one refusal, or counts it when too many wait already."""
        if len(self._waiting) >= _WAITING:
            self._skipped += 1
            return
        time_us = time.time_ns() // 1000
        self._waiting.append(Refusal(run=run, who=who, method=method, reason=reason, time_us=time_us))

    async def close(self) -> None:
        """Writes what waits."""
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task
        with contextlib.suppress(HeadraceError):
            await self._write()

    async def _keep_writing(self) -> None:
        while True:
            await asyncio.sleep(_EVERY)
            try:
                await self._write()
            except HeadraceError as error:
                logger.warning("refused changes wait to be noted: %s", error)

    async def _write(self) -> None:
        if not self._waiting:
            return
        if self._skipped:
            logger.warning("%d refused changes more were not noted one by one", self._skipped)
        batch, self._waiting, self._skipped = self._waiting, [], 0
        try:
            await self._store.call(lambda store: store.record_refusals(batch))
        except HeadraceError:
            self._waiting = (batch + self._waiting)[:_WAITING]
            raise
