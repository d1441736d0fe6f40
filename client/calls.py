"""Fetches what a prefetcher has scheduled by one GetBatch call a range, for servers that offer no stream.

Several threads do this at once. A call is tried again for as long as it takes; the pause before it ends early once
another thread got an answer.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Protocol

from headrace.client.assembly import Assembly
from headrace.client.ledger import Ledger
from headrace.client.retry import ClosedError, keep_trying
from headrace.client.session import DigestError, Session
from headrace.client.settings import Settings
from headrace.client.stream import Work
from headrace.client.wire import Reply
from headrace.proto.errors import HeadraceError, OutOfRangeError, UnavailableError

# How often rows that arrive changed are asked for again.
_DIGEST_TRIES = 3


class Desk(Protocol):
    """What hands out work and takes answers: the prefetcher."""

    def next_work(self) -> Work | None: ...
    def pause(self, seconds: float) -> None: ...
    def received(self, assembly: Assembly, first: int, reply: Reply) -> None: ...
    def delivered(self) -> None: ...
    def fail(self, assembly: Assembly, error: HeadraceError) -> None: ...
    def changed(self, error: DigestError, *, again: bool) -> None: ...
    def note(self, error: UnavailableError) -> None: ...


class Calls:
    """One range after another, until there is no more work."""

    def __init__(
        self, session: Session, ledger: Ledger, desk: Desk, *, settings: Settings, stop: threading.Event, confirms: bool
    ) -> None:
        self._session = session
        self._ledger = ledger
        self._desk = desk
        self._settings = settings
        self._stop = stop
        self._confirms = confirms

    def run(self) -> None:
        """Returns when told to stop."""
        while (work := self._desk.next_work()) is not None:
            assembly, first, rows = work
            try:
                self._desk.received(assembly, first, self._fetch(assembly, first, rows))
                self._desk.delivered()
            except ClosedError:
                return
            except HeadraceError as error:
                self._desk.fail(assembly, error)

    def _fetch(self, assembly: Assembly, first: int, rows: int) -> Reply:
        for left in reversed(range(_DIGEST_TRIES)):
            try:
                return keep_trying(
                    lambda: self._ask(assembly, first, rows),
                    settings=self._settings,
                    stop=self._stop,
                    note=self._desk.note,
                    wait=self._desk.pause,
                )
            except DigestError as error:
                self._desk.changed(error, again=bool(left))
                if not left:
                    raise
        raise AssertionError("unreachable")

    def _ask(self, assembly: Assembly, first: int, rows: int) -> Reply:
        wanted, room = (assembly.step, assembly.first_slot + first, rows), assembly.room(first, rows)
        if not self._confirms:
            return self._observe(lambda: self._session.get(*wanted, None, room))
        # Always said: a server that was killed may have forgotten what it heard last, and would refuse the step.
        confirmation = self._ledger.next(always=True)
        try:
            reply = self._session.get(*wanted, confirmation, room)
        except BaseException as error:
            # Rows that arrived changed were answered: the confirmation was heard.
            heard = isinstance(error, DigestError)
            (self._ledger.done if heard else self._ledger.failed)(confirmation)
            raise
        self._ledger.done(confirmation)
        return reply

    def _observe(self, get: Callable[[], Reply]) -> Reply:
        """A step far above the seal is out of range for a trainer, and not yet there for an observer."""
        try:
            return get()
        except OutOfRangeError as error:
            raise UnavailableError(str(error)) from None
