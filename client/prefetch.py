"""Fetches the steps ahead of the trainer, several calls at once, and hands them out in order.

Steps are asked for in order, each as ranges of rows, over one stream where the server offers it (see
`headrace.client.stream`), while three bounds allow it: what is in flight, the bytes that waiting steps hold (one step
is always allowed), and the run's lead (a step that is `lead` or more past what the trainer has taken cannot be sealed).
Workers try a call again for as long as it takes; only the trainer's wait has an
end: `stall_timeout`, after which StallError says step, rank, endpoint and cause. An error of one step reaches the
trainer when it gets there, because the steps before it are good; one about the lease reaches it at once.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from headrace.client.assembly import Assembly
from headrace.client.batch import Batch
from headrace.client.buffers import Pool
from headrace.client.calls import Calls
from headrace.client.endpoints import NoStreamError
from headrace.client.layout import Layouts
from headrace.client.ledger import Ledger
from headrace.client.retry import ClosedError
from headrace.client.session import DigestError, Session
from headrace.client.settings import Settings
from headrace.client.stage import Stage
from headrace.client.stream import Pump, Work
from headrace.client.wire import Reply
from headrace.proto.errors import ConflictError, DeadlineError, HeadraceError, UnavailableError

log = logging.getLogger("headrace.client")

# For so long steps that were taken are gathered, to ask for as many others at once.
_GATHER_SECONDS = 0.03


class StallError(DeadlineError):
    """The trainer has waited for one batch longer than it is allowed to."""


@dataclass(kw_only=True, slots=True)
class Stats:
    """What the trainer's waiting has come to. Seconds and counts since the run was opened."""

    batches: int = 0
    wait_seconds: float = 0.0
    longest_wait: float = 0.0
    stalls: int = 0
    retries: int = 0
    digest_errors: int = 0
    bytes_received: int = 0
    bytes_shared: int = 0  # of those, through memory shared with the server


@dataclass(kw_only=True, slots=True)
class _Shared:
    """What the condition of a Prefetcher guards."""

    next_step: int  # first step not scheduled yet
    held: int = 0  # bytes of steps scheduled and not handed out
    end: int | None = None
    end_reason: str = ""
    fatal: HeadraceError | None = None
    work: deque[Work] = field(default_factory=deque)  # to ask for
    steps: dict[int, Assembly] = field(default_factory=dict)
    cause: str = ""  # newest reason of a failed try
    gather: int = 1  # ranges to wait for before they are asked for
    asked: float = 0.0  # when that was last done


class Prefetcher:
    """Threads that fetch an open run from `ledger.taken` on."""

    def __init__(self, session: Session, ledger: Ledger, *, settings: Settings, stage: Stage, confirms: bool) -> None:
        self._session = session
        self._stage = stage
        self._ledger = ledger
        self._settings = settings
        self._confirms = confirms
        # An observer has no lead: it reads what is sealed, or waits.
        self._lookahead = session.opened.lead if confirms else max(session.opened.lead, 2 * settings.in_flight)
        self._layouts = Layouts(session.opened, session.rank, message_bytes=settings.message_bytes)
        self._pool = Pool(keep=2 * self._lookahead + 2, make=stage.buffer)
        # One lock, three kinds of waiting: the trainer for a batch, the workers for work, and between two tries.
        # Reentrant, as are the locks of the ledger and the endpoints: a loader that nobody refers to may be closed by
        # the garbage collector anywhere. The trainer's thread takes the lock itself: Ctrl-C in the `__enter__` of a
        # condition, which is Python, would leave it locked.
        self._lock = threading.RLock()
        self._changed, self._hungry, self._answered = (threading.Condition(self._lock) for _ in range(3))
        self._stop = threading.Event()
        self._shared = _Shared(next_step=ledger.taken)
        self.stats = Stats()
        self._threads = self._fetchers(streams=settings.stream and session.opened.streams)
        if confirms:
            self._threads.append(threading.Thread(target=self._beat, name="headrace-heartbeat", daemon=True))
        for thread in tuple(self._threads):  # the first may bring in others while the rest are started
            thread.start()

    def _fetchers(self, *, streams: bool) -> list[threading.Thread]:
        if streams:
            return [threading.Thread(target=self._guarded, args=(self._pump,), name="headrace-stream", daemon=True)]
        names = [f"headrace-fetch-{i}" for i in range(self._settings.in_flight)]
        return [threading.Thread(target=self._guarded, args=(self._call,), name=name, daemon=True) for name in names]

    def _guarded(self, work: Callable[[], None]) -> None:
        """What a fetching thread does, with its failure told to the trainer."""
        try:
            work()
        except HeadraceError as error:
            self._die(error)
        except Exception as error:  # a defect must not leave the trainer waiting on a thread that is gone
            log.exception("a thread of the loader failed")
            self._die(HeadraceError(f"a thread of the loader failed: {type(error).__name__}: {error}"))

    def _call(self) -> None:
        Calls(
            self._session, self._ledger, self, settings=self._settings, stop=self._stop, confirms=self._confirms
        ).run()

    # ---- the trainer's side ----

    def take(self, step: int) -> Batch | None:
        """The rows of `step`, waited for, the same again until it was `took`; None when the stream ends before it."""
        begin = time.monotonic()
        warned = 0
        with self._lock:
            while not self._ready(step):
                waited = time.monotonic() - begin
                if waited >= self._settings.stall_timeout:
                    raise StallError(self._stall(step, waited) + "; giving up")
                if waited >= self._settings.stall_log * (warned + 1):
                    warned += 1
                    self.stats.stalls += warned == 1
                    log.warning("%s", self._stall(step, waited))
                    self._ledger.waits(self.stats.wait_seconds + waited, self.stats.stalls)
                self._changed.wait(min(self._settings.stall_log, self._settings.stall_timeout - waited))
            self._count(time.monotonic() - begin)
            return self._hand_out(step)

    def _ready(self, step: int) -> bool:
        shared = self._shared
        if self._stop.is_set():
            raise ClosedError(f"the loader of run `{self._session.opened.run}` is closed")
        if shared.fatal is not None:
            raise shared.fatal
        if shared.end is not None and step >= shared.end:
            return True
        assembly = shared.steps.get(step)
        if assembly is None:
            self._schedule()
        if shared.work and shared.work[0][0].step <= step:
            self._hungry.notify_all()
        return assembly is not None and assembly.complete

    def _hand_out(self, step: int) -> Batch | None:
        assembly = self._shared.steps.get(step)
        if assembly is None:
            return None
        if assembly.error is not None:
            raise assembly.error
        if not assembly.handed_out:
            assembly.handed_out = True
            self._shared.held -= assembly.size
        return assembly.batch()

    def took(self, step: int) -> None:
        """The trainer has taken the whole of the step that it was handed last: the window moves on.

        Said again, it changes nothing.
        """
        with self._lock:
            assembly = self._shared.steps.get(step)
            if assembly is None:
                return
            self._ledger.take(step, assembly.digests())
            del self._shared.steps[step]
            self.stats.batches += 1
            self._schedule()

    def _count(self, waited: float) -> None:
        self.stats.wait_seconds += waited
        self.stats.longest_wait = max(self.stats.longest_wait, waited)
        self._ledger.waits(self.stats.wait_seconds, self.stats.stalls)

    def _stall(self, step: int, waited: float) -> str:
        rank = self._session.rank
        return (
            f"rank {rank.rank} of {rank.world} has waited {waited:.0f} s for step {step} of run "
            f"`{self._session.opened.run}` from `{self._session.endpoints.current}`: "
            f"{self._shared.cause or 'no answer yet'}"
        )

    # ---- the window ----

    def _schedule(self) -> None:
        """Puts every step that the bounds allow on the list. Called with the lock held."""
        shared = self._shared
        while self._may_ask(shared.next_step):
            layout = self._layouts.of(shared.next_step)
            assembly = Assembly(self._session, shared.next_step, layout, self._pool)
            if shared.held and shared.held + assembly.size > self._settings.buffer_bytes:
                break
            assembly.allocate()
            ranges = [(assembly, first, rows) for first, rows in layout.ranges]
            # Without a call among them, so that Ctrl-C in the trainer's thread comes before or after them all.
            shared.steps[assembly.step] = assembly
            shared.held += assembly.size
            shared.next_step += 1
            shared.work += ranges
        self._tell()

    def _tell(self) -> None:
        """Wakes who fetches, once there is enough to ask for."""
        if self._enough():
            self._hungry.notify(len(self._shared.work))

    def _enough(self) -> bool:
        shared = self._shared
        late = time.monotonic() - shared.asked > _GATHER_SECONDS
        return bool(shared.work) and (late or len(shared.work) >= shared.gather)

    def _may_ask(self, step: int) -> bool:
        if self._stop.is_set() or (self._shared.end is not None and step >= self._shared.end):
            return False
        return step < self._ledger.taken + self._lookahead

    # ---- fetching over one stream ----

    def _pump(self) -> None:
        pump = Pump(
            self._session, self._ledger, self, settings=self._settings, stop=self._stop, confirms=self._confirms
        )
        try:
            pump.run()
        except NoStreamError as error:
            log.info("%s; each range is fetched by a call of its own", error)
            workers = self._fetchers(streams=False)
            self._threads.extend(workers)
            for worker in workers:
                worker.start()

    def _die(self, error: HeadraceError) -> None:
        with self._changed:
            self._shared.fatal = error
            self._changed.notify_all()

    def some_work(self, room: int, *, asked: int, seconds: float) -> list[Work]:
        """Ranges of `room` bytes at most, waited for; one of any size when none is `asked`. May be empty.

        A request costs both sides as much as some 100 KiB of ids. So a trainer that takes steps faster than
        `_GATHER_SECONDS` has them asked for when half of what may be asked is free.
        """
        with self._changed:
            self._schedule()
            shared = self._shared
            shared.gather = max(1, (asked + len(shared.work)) // 2) if asked else 1
            if not self._enough() or not self._picked(room, not asked, take=False):
                self._hungry.wait(seconds)
                self._schedule()
            shared.gather = 1
            picked = self._picked(room, not asked, take=True)
            if picked:
                shared.asked = time.monotonic()
            return picked

    def _picked(self, room: int, idle: bool, *, take: bool) -> list[Work]:
        picked: list[Work] = []
        for assembly, first, rows in self._shared.work:
            room -= assembly.size * rows // assembly.rows
            if room < 0 and (picked or not idle):
                break
            picked.append((assembly, first, rows))
        for _ in picked if take else ():
            self._shared.work.popleft()
        return picked

    def put_back(self, work: Iterable[Work]) -> None:
        """Ranges that were not answered, to be asked for before all others."""
        with self._changed:
            end = self._shared.end
            self._shared.work.extendleft(one for one in reversed(list(work)) if end is None or one[0].step < end)
            self._hungry.notify_all()

    def changed(self, error: DigestError, *, again: bool) -> None:
        """Rows arrived that differ from their digests."""
        self.stats.digest_errors += 1
        log.error("%s%s", error, "; asking again" if again else "")

    # ---- what fetchers ask and tell ----

    def next_work(self) -> Work | None:
        """One range, waited for; None when it is time to stop."""
        with self._changed:
            self._schedule()
            while not self._shared.work and not self._stop.is_set():
                self._hungry.wait()
            return None if self._stop.is_set() else self._shared.work.popleft()

    def pause(self, seconds: float) -> None:
        """Ends early when another thread got an answer: the server is back, and ranks came back spread out already."""
        with self._changed:
            if not self._stop.is_set():
                self._answered.wait(seconds)

    def note(self, error: UnavailableError) -> None:
        """A try failed, and there will be another."""
        with self._changed:
            self.stats.retries += 1
            self._shared.cause = str(error)

    def received(self, assembly: Assembly, first: int, reply: Reply) -> None:
        """Rows of a step from number `first` on, or the end of the stream."""
        if reply.part is None:
            self._end(reply)
            return
        assembly.fill(first, reply.part)
        with self._lock:
            size = assembly.size * reply.part.rows // assembly.rows
            self.stats.bytes_received += size
            self.stats.bytes_shared += size * reply.part.shared
            last = assembly.arrived(reply.part.rows)
        if last:
            batch = assembly.finish(self._stage)
            with self._lock:
                assembly.done(batch)

    def delivered(self) -> None:
        """Rows were received: tells all that wait, once for those that came together."""
        with self._changed:
            self._shared.cause = ""
            self._answered.notify_all()
            self._tell()
            self._changed.notify_all()

    def _end(self, reply: Reply) -> None:
        shared = self._shared
        with self._changed:
            shared.end = min(reply.end_step, shared.end if shared.end is not None else reply.end_step)
            shared.end_reason = reply.end_reason
            shared.work = deque(item for item in shared.work if item[0].step < reply.end_step)
            shared.steps = {step: assembly for step, assembly in shared.steps.items() if step < reply.end_step}
            self._changed.notify_all()

    def fail(self, assembly: Assembly, error: HeadraceError) -> None:
        """A step cannot be had; the trainer is told when it gets there, or now when it is about the lease."""
        with self._changed:
            if isinstance(error, ConflictError):
                self._shared.fatal = error
            assembly.error = error
            self._changed.notify_all()

    # ---- the heartbeat ----

    def _beat(self) -> None:
        """Says that this rank lives while no GetBatch does, so that no other job takes a paused trainer's lease."""
        while not self._stop.wait(self._settings.heartbeat / 4):
            if self._ledger.silent < self._settings.heartbeat:
                continue
            try:
                self.confirm(always=True)
            except UnavailableError as error:
                self.note(error)
            except ConflictError as error:
                with self._changed:
                    self._shared.fatal = error
                    self._changed.notify_all()
            except HeadraceError as error:
                log.warning("%s", error)

    def confirm(self, *, always: bool = False) -> None:
        """Tells the server now, in one try, what it has not been told."""
        confirmation = self._ledger.next(always=always)
        if confirmation is None:
            return
        try:
            self._session.confirm(confirmation)
        except BaseException:
            self._ledger.failed(confirmation)
            raise
        self._ledger.done(confirmation)

    @property
    def end_reason(self) -> str:
        return self._shared.end_reason

    def stop(self) -> None:
        """Ends the threads. Calls under way end with the channels: close those next, then `join`."""
        self._stop.set()
        with self._changed:
            self._changed.notify_all()
            self._hungry.notify_all()
            self._answered.notify_all()

    def join(self, timeout: float) -> None:
        until = time.monotonic() + timeout
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join(max(0.0, until - time.monotonic()))
