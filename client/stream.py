"""Fetches what a prefetcher has scheduled over one StreamBatches call, several times cheaper than a call for a range.

A thread of gRPC's takes requests from `_requests` as work comes up; this one reads the answers, which come in the order
of the ranges. Rows asked for and not answered are bounded by `in_flight` times `message_bytes`. When the stream breaks,
what was not answered is put back and asked for again over another one, from the next server where there are several.
A range that is refused with "try again" is put back too; any other refusal belongs to its step alone.
"""

from __future__ import annotations

import random
import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Protocol

from headrace.client.assembly import Assembly
from headrace.client.ledger import Ledger
from headrace.client.session import DigestError, Session
from headrace.client.settings import Settings
from headrace.client.share import Share
from headrace.client.wire import Bytes, Reply
from headrace.proto.errors import HeadraceError, OutOfRangeError, UnavailableError
from headrace.proto.v1 import data_pb2

Work = tuple[Assembly, int, int]  # step, first row, rows

# How often the requesting side looks whether the oldest answer is overdue.
_TICK = 1.0
_DIGEST_TRIES = 3
_MOST_ASKED = 1024


class Desk(Protocol):
    """What hands out work and takes answers: the prefetcher."""

    def some_work(self, room: int, *, asked: int, seconds: float) -> list[Work]: ...
    def put_back(self, work: Iterable[Work]) -> None: ...
    def received(self, assembly: Assembly, first: int, reply: Reply) -> None: ...
    def delivered(self) -> None: ...
    def fail(self, assembly: Assembly, error: HeadraceError) -> None: ...
    def changed(self, error: DigestError, *, again: bool) -> None: ...
    def note(self, error: UnavailableError) -> None: ...


@dataclass(kw_only=True, slots=True)
class _Asked:
    """A range that waits for its answer; the first of a message carries its confirmation."""

    work: Work
    size: int
    place: int  # in the memory that the stream shares with the server, or 0
    at: float  # when it was asked for
    confirmation: data_pb2.Confirmation | None = None


class Pump:
    """One stream after another, until told to stop."""

    def __init__(
        self, session: Session, ledger: Ledger, desk: Desk, *, settings: Settings, stop: threading.Event, confirms: bool
    ) -> None:
        self._session = session
        self._ledger = ledger
        self._desk = desk
        self._settings = settings
        self._stop = stop
        self._confirms = confirms
        self._lock = threading.Lock()
        self._asked: deque[_Asked] = deque()
        self._bytes = 0
        self._number = 0  # of the stream: a generator of an older one ends
        self._share = Share(0)
        self._progress = time.monotonic()
        self._tries: dict[tuple[int, int], int] = {}
        self._pause = settings.backoff
        self._paused = 0.0  # when the newest pause for a refusal began

    def run(self) -> None:
        """Returns when told to stop. Raises what no other stream would mend."""
        while not self._stop.is_set():
            begun = time.monotonic()
            try:
                self._stream()
            except UnavailableError as error:
                if not self._stop.is_set():
                    self._desk.note(error)
            finally:
                self._give_back()
            self._rest(time.monotonic() - begun)

    def _rest(self, rested: float = 0.0) -> None:
        """A pause, less what the try itself has taken; never none, for all ranks lose a server at one moment."""
        pause = random.uniform(0, self._pause)
        self._stop.wait(max(pause - rested, random.uniform(0, self._settings.backoff)))
        self._pause = min(2 * self._pause, self._settings.backoff_max)

    def _stream(self) -> None:
        self._number += 1
        self._share = share = self._session.share()
        for message in self._session.stream(self._requests(self._number, share)):
            for data in message:
                if not share.heard(data):
                    self._take(data, share)
            self._desk.delivered()
        raise UnavailableError("the server has ended the stream; asking again")

    def _take(self, data: Bytes, share: Share) -> None:
        with self._lock:
            asked = self._asked.popleft()
            self._bytes -= asked.size
            self._progress = time.monotonic()
        self._answered(asked, data, share)
        share.free(asked.place)

    def _give_back(self) -> None:
        with self._lock:
            self._number += 1
            asked, self._asked, self._bytes = list(self._asked), deque(), 0
        self._share.close()
        for one in asked:
            self._ledger.failed(one.confirmation)
        self._desk.put_back(one.work for one in asked)

    # ---- asking: on a thread of gRPC's ----

    def _requests(self, number: int, share: Share) -> Iterator[data_pb2.StreamBatchesRequest]:
        request = self._session.first_request()
        share.ask(request)
        while not self._stop.is_set() and number == self._number:
            with self._lock:
                room = self._settings.in_flight * self._settings.message_bytes - self._bytes
                room = 0 if len(self._asked) > _MOST_ASKED else room
                asked = len(self._asked)
            work = self._desk.some_work(room, asked=asked, seconds=min(_TICK, self._settings.call_timeout / 4))
            if work and self._ask(request, work, number, share):
                yield request
                request = data_pb2.StreamBatchesRequest()
            elif asked and time.monotonic() - self._progress > self._settings.call_timeout:
                self._session.break_streams()  # the reader finds it broken, and says why

    def _ask(self, request: data_pb2.StreamBatchesRequest, work: list[Work], number: int, share: Share) -> bool:
        """Fills a request; false when its stream is over meanwhile, and the work is put back."""
        sizes = [assembly.size * rows // assembly.rows for assembly, _, rows in work]
        with self._lock:
            if number != self._number:
                self._desk.put_back(work)
                return False
            # What came changed is asked for in the message: the memory itself may be bad.
            rooms = [
                0 if (one[0].step, one[1]) in self._tries else share.take(n) for one, n in zip(work, sizes, strict=True)
            ]
            now = time.monotonic()
            asked = [_Asked(work=one, size=n, place=at, at=now) for one, n, at in zip(work, sizes, rooms, strict=True)]
            if not self._asked:
                self._progress = now
            if self._confirms and (confirmation := self._ledger.next(always=True)):
                asked[0].confirmation = confirmation
                request.confirmation.CopyFrom(confirmation)
            self._asked.extend(asked)
            self._bytes += sum(sizes)
        for one in asked:
            assembly, first, rows = one.work
            slot = assembly.first_slot + first
            request.ranges.add(step=assembly.step, first_slot=slot, rows=rows, share_at=one.place)
        return True

    # ---- reading ----

    def _answered(self, asked: _Asked, data: Bytes, share: Share) -> None:
        assembly, first, rows = asked.work
        slot, room = assembly.first_slot + first, assembly.room(first, rows)
        try:
            shared = share.view(asked.place, asked.size)
            reply = self._session.read(data, assembly.step, slot, rows, room, shared)
        except DigestError as error:
            self._ledger.done(asked.confirmation)
            self._changed(asked.work, error)
        except HeadraceError as error:
            self._refused(asked, error)
        else:
            self._ledger.done(asked.confirmation)
            self._pause = self._settings.backoff
            self._desk.received(assembly, first, reply)

    def _changed(self, work: Work, error: DigestError) -> None:
        key = (work[0].step, work[1])
        self._tries[key] = self._tries.get(key, 0) + 1
        again = self._tries[key] < _DIGEST_TRIES
        self._desk.changed(error, again=again)
        if again:
            self._desk.put_back([work])
        else:
            self._desk.fail(work[0], error)

    def _refused(self, asked: _Asked, error: HeadraceError) -> None:
        self._ledger.failed(asked.confirmation)
        if isinstance(error, OutOfRangeError) and not self._confirms:
            # Far above the seal is out of range for a trainer, and not yet there for an observer.
            error = UnavailableError(str(error))
        if isinstance(error, UnavailableError):
            self._desk.note(error)
            self._desk.put_back([asked.work])
            if asked.at >= self._paused:  # one that was asked for before says nothing new
                self._paused = time.monotonic()
                self._desk.delivered()  # what came with it need not wait
                self._rest()
        else:
            self._desk.fail(asked.work[0], error)
