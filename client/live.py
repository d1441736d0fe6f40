"""Everything of a loader that is bound to one process: connections, threads, lease."""

from __future__ import annotations

import logging

from headrace.client.buffers import keep_freed_memory
from headrace.client.endpoints import Endpoints
from headrace.client.feedback import Reporter
from headrace.client.fork import Owner
from headrace.client.launch import Rank
from headrace.client.ledger import Ledger
from headrace.client.prefetch import Prefetcher
from headrace.client.session import Opened, Session
from headrace.client.settings import Settings
from headrace.client.stage import Stage
from headrace.proto.errors import FencedError, HeadraceError, UsageError

log = logging.getLogger("headrace.client")

# How long closing waits for calls under way, and then for the server to hear of it.
_CALLS_SECONDS = 2.0
_CLOSE_SECONDS = 5.0


class Live:
    """An open run with its threads, until `close`."""

    def __init__(
        self, endpoints: Endpoints, opened: Opened, *, rank: Rank, settings: Settings, stage: Stage, confirms: bool
    ) -> None:
        keep_freed_memory()
        self.owner = Owner(f"the loader of run `{opened.run}`")
        self.opened = opened
        self.ledger = Ledger(opened.next_step, told=opened.confirmed)
        self._endpoints = endpoints
        self._session = Session(endpoints, opened, rank=rank, settings=settings)
        self._confirms = confirms
        self.prefetcher = Prefetcher(self._session, self.ledger, settings=settings, stage=stage, confirms=confirms)
        self._settings = settings
        self._reporter: Reporter | None = None
        self._ended = False

    def reporter(self) -> Reporter:
        """The thread that sends losses, started when it is first needed."""
        if not self._confirms:
            raise UsageError("an observer reports no losses; open the run with mode='train'")
        if self._reporter is None:
            self._reporter = Reporter(self._endpoints, self.opened, settings=self._settings)
        return self._reporter

    def confirm_quietly(self) -> None:
        """Tells the server what was taken; that it cannot be told now is only logged."""
        if not self._confirms:
            return
        try:
            self.prefetcher.confirm()
        except HeadraceError as error:
            log.warning("%s", error)

    def close(self) -> None:
        """Confirms, gives the lease back, ends threads and connections. Does nothing twice, or in a forked child."""
        if self._ended or not self.owner.here():
            return
        self._stop()
        if self._confirms:
            try:
                self._session.close(self.ledger.next(), timeout=_CLOSE_SECONDS)
            except FencedError:
                pass  # the lease is another's: there is nothing to give back
            except HeadraceError as error:
                log.warning("%s; the lease ends by itself when nothing has been heard of it for a minute", error)
        self._end()

    def _stop(self) -> None:
        self._ended = True
        if self._reporter is not None:
            self._reporter.close(_CALLS_SECONDS)
        self.prefetcher.stop()
        self.prefetcher.join(_CALLS_SECONDS)

    def _end(self) -> None:
        self._endpoints.close()
        self.prefetcher.join(_CLOSE_SECONDS)
