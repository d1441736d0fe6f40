"""The newest snapshot of each run, made at most once a second and in a thread of its own.

However many pages look, a run's figures are made once and sent to all. One thread makes them for all runs, so that
the page can never take more than one core, nor a thread that serving or sealing waits for.
"""

from __future__ import annotations

import asyncio
import json
import math
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar

from headrace.proto.errors import HeadraceError
from headrace.server.control.aio import AsyncStore
from headrace.server.service.handle import RunHandle
from headrace.server.service.registry import Registry
from headrace.server.service.view import View
from headrace.server.watch.drift_figures import DriftFigure
from headrace.server.watch.history import History, columns
from headrace.server.watch.snapshot import make_snapshot
from headrace.server.watch.values import Snapshot, Surroundings

EVERY = 1.0
"""Seconds that a snapshot is good for while its run moves."""
IDLE_EVERY = 10.0
"""Seconds after which it is made anew though nothing has moved: what is silent shows by then."""
PACE_SECONDS = 60.0

Drift = Callable[[RunHandle], Sequence[DriftFigure]]
T = TypeVar("T")


@dataclass(frozen=True, kw_only=True, slots=True)
class Shown:
    """A snapshot with its JSON; `version` rises with each."""

    version: int
    snapshot: Snapshot
    body: bytes


class Feed:
    """The snapshots of one run."""

    def __init__(self, handle: RunHandle, registry: Registry, pool: ThreadPoolExecutor, drift: Drift) -> None:
        self._handle = handle
        self._registry = registry
        self._pool = pool
        self._drift = drift
        self._history = History()
        self._pace = Pace()
        self._lock = asyncio.Lock()
        self._shown: Shown | None = None
        self._seen: object = None
        self._made = float("-inf")

    async def now(self) -> Shown:
        """The newest one, at most a second old."""
        async with self._lock:
            age = time.monotonic() - self._made
            if self._shown is None or age >= IDLE_EVERY or (age >= EVERY and self._seen is not self._handle.view):
                self._shown = await self._make()
            return self._shown

    async def newer(self, version: int, seconds: float) -> Shown | None:
        """The first one after a version, or None when there is none for so long."""
        until = time.monotonic() + seconds
        while True:
            shown = await self.now()
            if shown.version != version:
                return shown
            if time.monotonic() + EVERY > until:
                return None
            await asyncio.sleep(EVERY)

    async def columns(self, wanted: Sequence[str]) -> dict[str, Any]:
        """The history of some domains, for plots."""
        view = self._handle.view

        def make() -> dict[str, Any]:
            now = self._history.reach(view.plan, view.run.confirmed)
            return columns(self._history, now, view.plan, wanted)

        return await self._away(make)

    async def on(self, work: Callable[[View], T]) -> T:
        """Work on the newest view, in the thread of the page."""
        view = self._handle.view
        return await self._away(lambda: work(view))

    async def _make(self) -> Shown:
        handle, view = self._handle, self._handle.view
        self._pace.saw(time.monotonic(), view.run.confirmed)
        around = Surroundings(
            now_us=time.time_ns() // 1000,
            store_error="" if handle.store_error is None else str(handle.store_error),
            data_error="" if handle.data_error is None else str(handle.data_error),
            damage=handle.damage,
            steps_per_second=self._pace.steps_per_second,
            refused=in_words(self._registry.refused),
        )
        drift = self._drift(handle)
        version = 1 if self._shown is None else self._shown.version + 1
        snapshot, body = await self._away(lambda: _made(view, self._history, around, drift))
        self._seen, self._made = view, time.monotonic()
        return Shown(version=version, snapshot=snapshot, body=body)

    async def _away(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._pool, work)


def _made(view: View, history: History, around: Surroundings, drift: Sequence[DriftFigure]) -> tuple[Snapshot, bytes]:
    snapshot = make_snapshot(view, history, around, [finite(figure.as_dict()) for figure in drift])
    return snapshot, to_json(snapshot.as_dict())


def finite(values: Mapping[str, Any]) -> dict[str, Any]:
    """The same with None for what is no number of JSON, such as a PSI over an empty bin."""
    return {
        name: None if isinstance(value, float) and not math.isfinite(value) else value for name, value in values.items()
    }


def to_json(value: object) -> bytes:
    """Compact JSON; NaN and infinity, which it does not have, are bugs of ours."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()


def in_words(refused: Mapping[str, HeadraceError]) -> dict[str, str]:
    """Refused runs and why, by name."""
    return {name: str(error) for name, error in sorted(refused.items())}


class Pace:
    """Steps a second over the last minute of looks."""

    def __init__(self) -> None:
        self._looks: deque[tuple[float, int]] = deque()

    def saw(self, now: float, confirmed: int) -> None:
        """So many steps are confirmed now."""
        self._looks.append((now, confirmed))
        while len(self._looks) > 2 and now - self._looks[0][0] > PACE_SECONDS:
            self._looks.popleft()

    @property
    def steps_per_second(self) -> float | None:
        """None until two looks lie two seconds apart."""
        first, last = self._looks[0], self._looks[-1]
        seconds = last[0] - first[0]
        return (last[1] - first[1]) / seconds if seconds >= 2 else None


class Feeds:
    """The feed of each run, and the list of the runs that there are."""

    def __init__(self, registry: Registry, drift: Drift) -> None:
        self._registry = registry
        self._drift = drift
        self._pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix="page")
        self._feeds: dict[str, tuple[RunHandle, Feed]] = {}
        self._names: tuple[float, tuple[str, ...]] = (float("-inf"), ())

    async def of(self, run: str) -> Feed:
        """The feed of a run; raises NotFoundError naming the runs there are."""
        handle = await self._registry.by_name(run)
        held = self._feeds.get(run)
        if held is None or held[0] is not handle:
            self._feeds[run] = (handle, Feed(handle, self._registry, self._pool, self._drift))
        return self._feeds[run][1]

    async def names(self) -> tuple[str, ...]:
        """Every run of the store; those that are open here while the store is away."""
        asked, names = self._names
        if time.monotonic() - asked >= EVERY:
            try:
                names = await _names(self._registry.store)
            except HeadraceError:
                names = tuple(handle.view.run.name for handle in self._registry.handles)
            self._names = (time.monotonic(), names)
        return names

    @property
    def refused(self) -> dict[str, str]:
        """Runs that this server is to serve and cannot, and why."""
        return in_words(self._registry.refused)

    async def away(self, work: Callable[[], T]) -> T:
        """Work in the thread of the page."""
        return await asyncio.get_running_loop().run_in_executor(self._pool, work)

    def close(self) -> None:
        """Ends the thread after what it does now."""
        self._pool.shutdown(wait=False, cancel_futures=True)


async def _names(store: AsyncStore) -> tuple[str, ...]:
    return tuple(run.name for run in await store.call(lambda found: found.runs()))
