"""A run as this server follows it: its newest view, and what ranks have said since the last write.

Everything here runs on the event loop; the store runs in threads. Words of ranks and the raising of the seal go to the
store in one transaction, which brings what others have written back with it. `headrace.server.service.handle` adds the
task that decides when.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import deque
from collections.abc import Callable, Sequence

from headrace.proto.errors import DataLossError, FencedError, HeadraceError, OutOfRangeError
from headrace.server.control.aio import AsyncStore, heard
from headrace.server.control.database import refuses_writes
from headrace.server.control.events import Check, Wish
from headrace.server.control.leases import Granted, OpenLease
from headrace.server.control.listen import EVENT
from headrace.server.control.losses import DomainLoss
from headrace.server.control.records import Appended, Heard, LeaseRecord, LossReport
from headrace.server.control.seal import Advanced, Raise
from headrace.server.plan.log import GrowBody
from headrace.server.service.loading import Opener
from headrace.server.service.logs import remedy_of, tell
from headrace.server.service.view import View


class LiveRun:
    """A run of a store, followed. `notes` are what a rank is to be warned of with its next answer, by its token."""

    def __init__(self, store: AsyncStore, opener: Opener, view: View) -> None:
        self.view = view
        self.store_error: HeadraceError | None = None
        self.data_error: DataLossError | None = None
        self._failed = 0.0  # when that was found last, as time.monotonic says
        self.notes: dict[bytes, str] = {}
        self.checksum_failures = 0
        self._failures: deque[str] = deque(maxlen=100)
        self._store = store
        self._opener = opener
        self._words: dict[bytes, int] = {}  # steps taken, by the token of the rank that says so
        self._wake = asyncio.Event()  # there is something to do
        self._moved = asyncio.Event()  # the view was replaced
        self._written = 0.0
        self._asked = time.monotonic()
        self._waiters = 0
        self._told = False
        self._refreshing: asyncio.Task[None] | None = None
        self._turn_lock = asyncio.Lock()

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
        self._keep_word(token, next_step)
        if self._target() > self.view.run.seal:
            self._wake.set()

    def _news(self, lease: LeaseRecord | None) -> dict[bytes, int]:
        """The words that say more than the store knows of the ranks of a lease."""
        known = {rank.token: rank.next_step for rank in lease.open_ranks} if lease else {}
        return {token: step for token, step in self._words.items() if step > known.get(token, -1)}

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

    async def open_lease(self, wish: OpenLease) -> Granted:
        """Takes or joins the lease, in the store, and starts raising the seal under it."""
        if self._news(self.view.lease):
            await self._advance(None)  # whether the attempt has confirmed a step decides who may join it
        before = self.view.lease
        granted = await self._store.call(lambda store: store.open_lease(self.view.run.id, wish))
        self._replace(self.view.with_lease(granted.lease))
        if granted.first:
            self._words = self._news(before)  # the others are of ranks that are fenced now, and say nothing
        if not self._words:
            self._written = time.monotonic()  # what this rank says is in the store already
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
                if appended.event.previous_hash == self.view.run.head:
                    self._replace(self.view.with_event(appended.event))
                else:  # others have written in between, or it was in the log already
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

    # -- what keeps the run from going on ---------------------------------------------------------------------------

    @property
    def store_refuses_writes(self) -> bool:
        """Whether the store answered the last write by saying that it is full or read-only."""
        return refuses_writes(str(self.store_error or ""))

    def count_failure(self, error: DataLossError) -> None:
        """Each failure once, however often it is met again."""
        if str(error) not in self._failures:
            self.checksum_failures += 1
            self._failures.append(str(error))
            tell(logging.ERROR, "checksum-failed", self.view.run.name, str(error), remedy=remedy_of(error))

    @property
    def damage(self) -> str:
        """How many reads failed their checksum since this server opened the run, and the newest; "" when none did."""
        if not self._failures:
            return ""
        return f"{self.checksum_failures} found by this server, the newest: {self._failures[-1]}"

    @property
    def can_go_on(self) -> bool:
        """Whether nothing that this server lacks or cannot read stands before a step to come."""
        return self.view.plan.known_until is None and self.data_error is None

    # -- what the store says -------------------------------------------------------------------------------------

    async def refresh(self) -> None:
        """Reads the run anew. Callers that come while a read is under way share the one after it."""
        if self._refreshing is not None and not self._refreshing.done():  # what an older one came to is over
            await asyncio.shield(self._refreshing)
        if self._refreshing is None or self._refreshing.done():
            self._refreshing = asyncio.create_task(self._advance(None))
            self._refreshing.add_done_callback(heard)
        await asyncio.shield(self._refreshing)

    def news(self, kind: str) -> None:
        """Another server has changed the run: an event is looked at now, a moved seal when somebody waits for it."""
        self._told = True
        if kind == EVENT or self._waiters:
            self._wake.set()

    async def wait(self, ready: Callable[[View], bool], seconds: float) -> bool:
        """Waits until a view is `ready`, at most this long, or until data that are needed turn out to be damaged still.

        A shared store is asked often while somebody waits.
        """
        begun = time.monotonic()
        until = begun + seconds
        self._waiters += 1
        try:
            while not ready(self.view):
                left = until - time.monotonic()
                if left <= 0 or (self.data_error is not None and self._failed >= begun):
                    return ready(self.view)
                self._wake.set()
                moved = self._moved
                await within(left, moved)
        finally:
            self._waiters -= 1
        return True

    def _replace(self, view: View) -> None:
        self.view = view
        self._stir()

    def _fail(self, error: DataLossError) -> None:
        """The seal cannot rise: who waits for it is told."""
        self.data_error, self._failed = error, time.monotonic()
        self._stir()

    def _stir(self) -> None:
        """Has all that wait look again."""
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
                for token, step in words.items():
                    self._keep_word(token, step)
                self.store_error = error
                raise
            self.store_error = None
            self._asked = time.monotonic()
            self._written = self._asked if words else self._written
            self._adopt(advanced)

    def _keep_word(self, token: bytes, next_step: int) -> None:
        self._words[token] = max(next_step, self._words.get(token, 0))

    def _adopt(self, advanced: Advanced) -> None:
        name = advanced.run.name
        if advanced.fenced:
            what = f"words of {len(advanced.fenced)} fenced ranks did not count"
            tell(logging.WARNING, "fenced", name, what, remedy="stop the processes of the older attempt")
        for word in advanced.refused:
            what = f"a rank confirmed step {word.next_step}, above the seal"
            tell(logging.WARNING, "confirmed-above-seal", name, what, step=word.next_step)
        self._replace(self.view.after(advanced))


async def within(seconds: float, event: asyncio.Event) -> None:
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
