"""One run in a server: its newest view, what ranks have said since the last write, and the task that raises the seal.

Everything here runs on the event loop; the store and the reading of blocks run in threads. The task writes words at
most once a second, or at once when the seal can rise with them. It alone raises the seal, and only under a train lease;
requests wait for it. Before it raises, it reads the rows of the steps concerned, so that a bad block stops the seal in
front of its step and not a trainer in the middle of one.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import deque
from collections.abc import Callable, Sequence

from headrace.proto.errors import (
    ConflictError,
    DataLossError,
    FencedError,
    HeadraceError,
    LimitError,
    OutOfRangeError,
)
from headrace.server.control.aio import AsyncStore
from headrace.server.control.events import Check, Wish
from headrace.server.control.leases import Granted, OpenLease
from headrace.server.control.listen import EVENT
from headrace.server.control.losses import DomainLoss
from headrace.server.control.records import Appended, Heard, LeaseRecord, LossReport
from headrace.server.control.seal import Advanced, Raise
from headrace.server.plan.log import GrowBody
from headrace.server.service.cache import BuiltSteps
from headrace.server.service.changes import quarantine_check, quarantine_wish
from headrace.server.service.loading import Opener
from headrace.server.service.logs import remedy_of, told
from headrace.server.service.rows import StepRows, build_rows
from headrace.server.service.view import View

logger = logging.getLogger("headrace.server")

_WRITE_EVERY = 1.0
_RETRY_AFTER = 0.5
_POLL_SOON = 0.05


class RunHandle:
    """A run that this server serves."""

    def __init__(self, store: AsyncStore, opener: Opener, view: View, *, bad_blocks: str = "fail") -> None:
        self.on_built: Callable[[float], None] = lambda seconds: None
        self.view = view
        self.store_error: HeadraceError | None = None
        self.data_error: DataLossError | None = None
        self.checksum_failures = 0
        self._failures: deque[str] = deque(maxlen=100)
        self.missing = ""
        self.built = BuiltSteps()
        self._store = store
        self._opener = opener
        self._bad_blocks = bad_blocks
        self._away = ""
        self._words: dict[bytes, int] = {}
        self.notes: dict[bytes, str] = {}  # what a rank is to be warned of with its next answer
        self._wake = asyncio.Event()
        self._moved = asyncio.Event()
        self._written = 0.0
        self._asked = time.monotonic()
        self._waiters = 0
        self._told = False
        self._refreshing: asyncio.Task[None] | None = None
        self._turn_lock = asyncio.Lock()
        self._task = asyncio.create_task(self._keep_sealing(), name=f"seal {view.run.name}")

    async def close(self) -> None:
        """Stops the task and writes what ranks have said, if the store takes it."""
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task
        if self._words:
            with contextlib.suppress(HeadraceError):
                await self._advance(None)

    # -- what ranks say ------------------------------------------------------------------------------------------

    async def judge(self, token: bytes) -> str:
        """The label of the rank that holds this lease token; asks the store before it refuses one."""
        if token not in self.view.labels:
            await self.refresh()
        label = self.view.labels.get(token)
        if label is None:
            raise FencedError(_why_fenced(self.view.run.name, self.view.lease))
        return label

    async def hear(self, token: bytes, next_step: int) -> None:
        """A rank has taken `next_step` steps. Raises OutOfRangeError when that is above the seal in the store."""
        if next_step > self.view.run.seal:
            await self.refresh()
        if next_step > self.view.run.seal:
            raise OutOfRangeError(
                f"a rank says that it has taken {next_step} steps of run `{self.view.run.name}`, but only "
                f"{self.view.run.seal} are sealed and were ever served; confirm steps that were received"
            )
        self._words[token] = max(next_step, self._words.get(token, 0))
        if self._target() > self.view.run.seal:
            self._wake.set()

    @property
    def store_refuses_writes(self) -> bool:
        """Whether the store answered the last write by saying that it is full or read-only."""
        words = str(self.store_error or "")
        return isinstance(self.store_error, LimitError) or "readonly" in words or "read-only" in words

    def count_failure(self, error: DataLossError) -> None:
        """Each failure once, however often it is met again."""
        if str(error) not in self._failures:
            self.checksum_failures += 1
            self._failures.append(str(error))
            name = self.view.run.name
            fields = told("checksum-failed", run=name, remedy=remedy_of(error))
            logger.error("run %s: %s", name, error, extra=fields)

    @property
    def damage(self) -> str:
        """How many reads failed their checksum since this server opened the run, and the newest; "" when none did."""
        if not self._failures:
            return ""
        return f"{self.checksum_failures} found by this server, the newest: {self._failures[-1]}"

    def touch(self, token: bytes) -> None:
        """A rank was heard, without news."""
        self._words.setdefault(token, 0)

    @property
    def confirmed(self) -> int:
        """Steps taken, words that are not written yet included."""
        return max(self.view.run.confirmed, *self._words.values(), 0)

    def _target(self) -> int:
        """How far the seal may rise with all that is known now."""
        return self.view.limit(self.confirmed)

    @property
    def can_go_on(self) -> bool:
        """Whether nothing that this server lacks or cannot read stands before a step to come."""
        return self.view.plan.known_until is None and self.data_error is None

    async def open_lease(self, wish: OpenLease) -> Granted:
        """Takes or joins the lease, in the store, and starts raising the seal under it."""
        if self._words:
            await self._advance(None)  # whether the attempt has confirmed a step decides who may join it
        granted = await self._store.call(lambda store: store.open_lease(self.view.run.id, wish))
        self._replace(self.view.with_lease(granted.lease))
        self._words[granted.token] = wish.next_step
        self._wake.set()
        return granted

    async def close_rank(self, token: bytes) -> None:
        """Writes the rank's last word and gives its part of the lease back."""
        if token in self._words:
            await self._advance(None)
        await self._store.call(lambda store: store.close_rank(self.view.run.id, token))
        await self.refresh()

    async def append(self, wish: Wish, check: Check) -> Appended:
        """Appends an event in the store and plans with it. Once it is durable, nothing may report it as failed."""
        view = self.view
        appended = await self._store.call(lambda store: store.append(view.run.id, wish, check, known=view.events))
        if not wish.dry_run:
            with contextlib.suppress(HeadraceError):
                await self.refresh()
        return appended

    async def open_generation(self, body: GrowBody) -> None:
        """Opens the manifest of a generation here, so that the plan can read it; raises when it is another one."""
        view = await asyncio.to_thread(self._opener.with_generation, self.view, body)
        if view.run.sequence == self.view.run.sequence:
            self._replace(view.with_lease(self.view.lease, run=self.view.run))

    async def store_losses(self, reports: Sequence[LossReport]) -> None:
        """Keeps what a rank measured."""
        await self._store.call(lambda store: store.store_losses(self.view.run.id, reports))

    async def losses(self, from_step: int, to_step: int) -> tuple[DomainLoss, ...]:
        """Losses of the first reported steps of a range."""
        return await self._store.call(lambda store: store.losses(self.view.run.id, from_step, to_step))

    # -- what the store says -------------------------------------------------------------------------------------

    async def refresh(self) -> None:
        """Reads the run anew. Callers that come while a read is under way share the one after it."""
        if self._refreshing is not None:
            await asyncio.shield(self._refreshing)
        if self._refreshing is None or self._refreshing.done():
            self._refreshing = asyncio.create_task(self._advance(None))
        await asyncio.shield(self._refreshing)

    def news(self, kind: str) -> None:
        """Another server has changed the run: an event is looked at now, a moved seal when somebody waits for it."""
        self._told = True
        if kind == EVENT or self._waiters:
            self._wake.set()

    async def wait(self, ready: Callable[[View], bool], seconds: float) -> bool:
        """Waits until a view is `ready`, at most this long. A shared store is asked often while somebody waits."""
        until = time.monotonic() + seconds
        self._waiters += 1
        try:
            while not ready(self.view):
                left = until - time.monotonic()
                if left <= 0 or self.data_error is not None:
                    return ready(self.view)
                self._wake.set()
                moved = self._moved
                await _within(left, moved)
        finally:
            self._waiters -= 1
        return True

    def _replace(self, view: View) -> None:
        self.view = view
        self._moved.set()
        self._moved = asyncio.Event()

    async def _advance(self, wish: Raise | None) -> None:
        """One transaction: the words gathered so far, and the seal."""
        async with self._turn_lock:
            words, self._words = self._words, {}
            heard = tuple(Heard(token=token, next_step=step) for token, step in words.items())
            run = self.view.run
            try:
                advanced = await self._store.call(
                    lambda store: store.advance(run.id, heard=heard, wish=wish, known_sequence=run.sequence)
                )
            except HeadraceError as error:  # away, full, or read-only: nothing was written
                self._put_back(words)
                self.store_error = error
                raise
            self.store_error = None
            self._asked = time.monotonic()
            self._written = self._asked if words else self._written
            self._adopt(advanced)

    def _put_back(self, words: dict[bytes, int]) -> None:
        for token, step in words.items():
            self._words[token] = max(step, self._words.get(token, 0))

    def _adopt(self, advanced: Advanced) -> None:
        if advanced.fenced:
            name, count = advanced.run.name, len(advanced.fenced)
            remedy = "stop the processes of the older attempt"
            logger.warning(
                "run %s: words of %d fenced ranks did not count",
                name,
                count,
                extra=told("fenced", run=name, remedy=remedy),
            )
        for word in advanced.refused:
            logger.warning(
                "run %s: a rank confirmed step %d, above the seal",
                advanced.run.name,
                word.next_step,
                extra=told("confirmed-above-seal", run=advanced.run.name, step=word.next_step),
            )
        self._replace(self.view.after(advanced))

    # -- the task ------------------------------------------------------------------------------------------------

    async def _keep_sealing(self) -> None:
        while True:
            await _within(_POLL_SOON if self._must_poll() else _WRITE_EVERY, self._wake)
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

    def _tell_away(self, error: HeadraceError) -> None:
        """One line when the store goes, however often it is tried again."""
        run = self.view.run
        if self._away != type(error).__name__:
            logger.warning(
                "run %s: %s; serving goes on up to step %d, the seal",
                run.name,
                error,
                run.seal,
                extra=told("store-away", run=run.name, step=run.seal, remedy=remedy_of(error)),
            )
        self._away = type(error).__name__

    def _tell_back(self) -> None:
        if self._away:
            run = self.view.run
            logger.info(
                "run %s: the control store answers again",
                run.name,
                extra=told("store-back", run=run.name, step=run.seal),
            )
        self._away = ""

    async def _turn(self) -> None:
        if self.view.plan.known_until is not None:
            await self._open_missing()
        view, target = self.view, self._target()
        if target > view.run.seal and view.lease is not None and view.labels:
            built = await self._checked(view, target)
            to = view.run.seal + len(built)
            if built:
                await self._advance(Raise(to=to, head=view.run.head, anchors=view.anchors(to)))
                if self.view.events == view.events:
                    self.built.keep(built[: self.view.run.seal - view.run.seal])
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
                run = self.view.run
                step = self.view.plan.known_until
                fields = told("generation-missing", run=run.name, step=step, remedy=remedy_of(error))
                logger.error("run %s: no step from %d on: %s", run.name, step, error, extra=fields)
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
                batch, started = view.plan.shape(step).batch, time.perf_counter()
                built.append(await asyncio.to_thread(build_rows, view.plan, view.library, step, 0, batch))
                self.on_built(time.perf_counter() - started)
            except DataLossError as error:
                self.count_failure(error)
                if await self._quarantined(view, error):
                    self._wake.set()  # plan again under the log with the event in it
                    return built
                if self.data_error is None or str(self.data_error) != str(error):
                    fields = told("seal-stopped", run=view.run.name, step=step, remedy=remedy_of(error))
                    logger.error("run %s: the seal stops before step %d: %s", view.run.name, step, error, extra=fields)
                self.data_error = error
                return built
        self.data_error = None
        return built

    async def _quarantined(self, view: View, error: DataLossError) -> bool:
        """Masks the shard that an error is about from the first unsealed step on, where the server is told to."""
        name = view.library.shard_of(error)
        if self._bad_blocks != "quarantine" or not name:
            return False
        try:
            appended = await self.append(quarantine_wish(name, error), quarantine_check(view, name))
        except ConflictError:  # it is in quarantine already, and what it is needed for is not its tokens
            return False
        logger.error(
            "run %s: %s; event %d puts `%s` into quarantine from step %d on",
            view.run.name,
            error,
            appended.event.sequence,
            name,
            appended.event.from_step,
            extra=told(
                "quarantine",
                run=view.run.name,
                step=appended.event.from_step,
                remedy=f"restore `{name}` from its origin, then cancel event {appended.event.sequence}",
                shard=name,
            ),
        )
        return True


async def _within(seconds: float, event: asyncio.Event) -> None:
    """Waits for the event, at most this long.

    Not `asyncio.wait_for`, which up to Python 3.11 loses a cancellation that comes as the event is set: a server that
    was told to stop at that moment never did.
    """
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()


def _why_fenced(name: str, lease: LeaseRecord | None) -> str:
    if lease is None or not lease.open_ranks:
        return f"the lease on run `{name}` is not valid any more and nobody holds it; open the run again"
    return (
        f"the lease on run `{name}` is not valid any more: attempt {lease.attempt} of job `{lease.job}` "
        f"({lease.holder}) holds it; stop this process if that is a newer attempt of this job"
    )
