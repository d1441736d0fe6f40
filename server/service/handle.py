"""A run in a server: the task that raises its seal, and when it writes what ranks have said.

It writes words at most once a second, or when the seal rises with them: as soon as half of the lead is used up, and
within `_RAISE_EVERY` otherwise, so that a fast trainer costs one transaction for several steps. It alone raises the
seal, and only under a train lease; requests wait for it. Before it raises, it reads the rows of the steps concerned, in
threads, so that a bad block stops the seal in front of its step and not a trainer in the middle of one.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable

from headrace.proto.errors import ConflictError, DataLossError, HeadraceError
from headrace.server.control.aio import AsyncStore
from headrace.server.control.seal import Raise
from headrace.server.service.cache import BuiltSteps
from headrace.server.service.changes import quarantine_check, quarantine_wish
from headrace.server.service.live_run import LiveRun, within
from headrace.server.service.loading import Opener
from headrace.server.service.logs import remedy_of, tell
from headrace.server.service.rows import StepRows, build_rows
from headrace.server.service.view import View

logger = logging.getLogger("headrace.server")

_WRITE_EVERY = 1.0
_RAISE_EVERY = 0.05
_RETRY_AFTER = 0.5
_POLL_SOON = 0.05
# A larger step is left to its ranks, which ask for a part each and are served side by side.
_AHEAD_BYTES = 8 << 20
# Reads under way of what is not kept built: a run on a slow disk leaves most of the threads to the others.
_READS = 8


class RunHandle(LiveRun):
    """A run that this server serves. `missing` says why a generation of its log is not open here, "" if all are."""

    def __init__(self, store: AsyncStore, opener: Opener, view: View, *, bad_blocks: str = "fail") -> None:
        super().__init__(store, opener, view)
        self.on_built: Callable[[float], None] = lambda seconds: None
        self.missing = ""
        self.built = BuiltSteps()
        self.reads = asyncio.Semaphore(_READS)
        self._bad_blocks = bad_blocks
        self._away = ""
        self._expected: dict[int, asyncio.Task[None]] = {}
        self._raised = 0.0  # when that was tried last, as time.monotonic says
        self._in_vain = False  # it left the seal where it was: tried again when something happens, not every 50 ms
        self._task = asyncio.create_task(self._keep_sealing(), name=f"seal {view.run.name}")

    async def close(self) -> None:
        """Stops the task and writes what ranks have said, if the store takes it."""
        for task in (self._task, *self._expected.values()):
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
        if self._words:
            try:
                await self._advance(None)
            except HeadraceError as error:
                what = f"the newest confirmations are not written: {error}; ranks say them again when they go on"
                tell(logging.WARNING, "confirmations-lost", self.view.run.name, what)

    def expect(self, step: int) -> None:
        """Somebody is about to ask for a step: builds it whole if it is sealed and small, to be there by then."""
        view = self.view
        if not view.plan.first <= step < view.run.seal or step in self._expected or self.built.size(step, 1):
            return
        shape = view.plan.shape(step)
        if shape.batch * (shape.seq_len + 1) * view.library.base.id_bytes <= _AHEAD_BYTES:
            self._expected[step] = asyncio.create_task(self._build_expected(view, step), name=f"build step {step}")

    async def expected(self, step: int) -> None:
        """Waits for a step that is being built."""
        if step in self._expected:
            await asyncio.wait((self._expected[step],))

    async def _build_expected(self, view: View, step: int) -> None:
        """What goes wrong is told to whoever asks for the step."""
        try:
            async with self.reads:
                with contextlib.suppress(HeadraceError):
                    self.built.keep([await self._build_whole(view, step)])
        finally:
            del self._expected[step]

    async def _build_whole(self, view: View, step: int) -> StepRows:
        batch, started = view.plan.shape(step).batch, time.perf_counter()
        built = await asyncio.to_thread(build_rows, view.plan, view.library, step, 0, batch)
        self.on_built(time.perf_counter() - started)
        return built

    async def _keep_sealing(self) -> None:
        while True:
            await within(self._patience(), self._wake)
            self._wake.clear()
            try:
                await self._turn()
                self._tell_back()
            except HeadraceError as error:
                self._tell_away(error)
                await asyncio.sleep(_RETRY_AFTER)
            except Exception:
                logger.exception("run %s: the seal task failed and goes on", self.view.run.name)
                await asyncio.sleep(_RETRY_AFTER)

    def _patience(self) -> float:
        """Seconds until there is something to do, unless something happens."""
        if self._can_rise() and not self._in_vain:
            return max(0.0, self._raised + _RAISE_EVERY - time.monotonic())
        return _POLL_SOON if self._must_poll() else _WRITE_EVERY

    def _can_rise(self) -> bool:
        return self._target() > self.view.run.seal and self.view.lease is not None and bool(self.view.labels)

    def rises_past(self, step: int) -> bool:
        """Whether the seal is about to rise past a step, with all that is known now."""
        return self._can_rise() and step < self._target()

    def _is_time(self) -> bool:
        """Whether a seal that can rise should: the fastest rank has half of its lead left at most, or has waited."""
        run = self.view.run
        half_used = run.seal - self.confirmed <= run.lead // 2
        return half_used or time.monotonic() - self._raised >= _RAISE_EVERY

    def _tell_away(self, error: HeadraceError) -> None:
        """One line when the store goes, however often it is tried again."""
        run = self.view.run
        if self._away != type(error).__name__:
            what = f"{error}; serving goes on up to step {run.seal}, the seal"
            tell(logging.WARNING, "store-away", run.name, what, step=run.seal, remedy=remedy_of(error))
        self._away = type(error).__name__

    def _tell_back(self) -> None:
        if self._away:
            run = self.view.run
            tell(logging.INFO, "store-back", run.name, "the control store answers again", step=run.seal)
        self._away = ""

    async def _turn(self) -> None:
        if self.view.plan.known_until is not None:
            await self._open_missing()
        view, target = self.view, self._target()
        if self._can_rise() and self._is_time():
            self._raised, self._in_vain = time.monotonic(), True
            built = await self._checked(view, target)
            to = view.run.seal + len(built)
            if built:
                await self._advance(Raise(to=to, head=view.run.head, anchors=view.anchors(to)))
                if self.view.events == view.events:
                    self.built.keep(built[: self.view.run.seal - view.run.seal])
                    self._in_vain = self.view.run.seal == view.run.seal
                else:
                    self._wake.set()  # an event came in between: plan again
        if self._is_due():
            await self._advance(None)

    async def _open_missing(self) -> None:
        """A generation that joined through another server is opened here too, if this machine has it."""
        try:
            view = await asyncio.to_thread(self._opener.with_generations, self.view)
        except HeadraceError as error:
            if str(error) != self.missing:
                name, step = self.view.run.name, self.view.plan.known_until
                what = f"no step from {step} on: {error}"
                tell(logging.ERROR, "generation-missing", name, what, step=step, remedy=remedy_of(error))
            self.missing = str(error)
            return
        self.missing = ""
        if view.run.sequence == self.view.run.sequence:
            self._replace(view.with_lease(self.view.lease, run=self.view.run))

    def _is_due(self) -> bool:
        """Words wait for a second at most; what other servers have written to a shared store is read as often."""
        now = time.monotonic()
        if self._words and now - self._written >= _WRITE_EVERY:
            return True
        if not self._store.store.is_shared:
            return False
        told, self._told = self._told, False
        return told or now - self._asked >= (_POLL_SOON if self._must_poll() else _WRITE_EVERY)

    def _must_poll(self) -> bool:
        """Somebody waits for what another server may change, and no news of it come."""
        store = self._store.store
        return bool(self._waiters) and store.is_shared and not store.is_listening

    async def _checked(self, view: View, target: int) -> list[StepRows]:
        """Steps from the seal on, up to the first that cannot be read."""
        built: list[StepRows] = []
        for step in range(view.run.seal, target):
            try:
                built.append(await self._build_whole(view, step))
            except DataLossError as error:
                self.count_failure(error)
                if await self._quarantined(view, error):
                    self._wake.set()  # plan again under the log with the event in it
                    return built
                if self.data_error is None or str(self.data_error) != str(error):
                    what = f"the seal stops before step {step}: {error}"
                    tell(logging.ERROR, "seal-stopped", view.run.name, what, step=step, remedy=remedy_of(error))
                self._fail(error)
                return built
        if self.data_error is not None:
            tell(logging.INFO, "seal-goes-on", view.run.name, "the seal goes on", step=view.run.seal)
        self.data_error = None
        return built

    async def _quarantined(self, view: View, error: DataLossError) -> bool:
        """Masks the shard that an error is about from the first unsealed step on, where the server is told to."""
        name = view.library.shard_of(error)
        if self._bad_blocks != "quarantine" or not name:
            return False
        try:
            event = (await self.append(quarantine_wish(name, error), quarantine_check(view, name))).event
        except ConflictError:  # it is in quarantine already, and what it is needed for is not its tokens
            return False
        what = f"{error}; event {event.sequence} puts `{name}` into quarantine from step {event.from_step} on"
        remedy = f"restore `{name}` from its origin, then cancel event {event.sequence}"
        tell(logging.ERROR, "quarantine", view.run.name, what, step=event.from_step, remedy=remedy, shard=name)
        return True
