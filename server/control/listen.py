"""News between servers on one PostgreSQL store: who changes a run says so as it commits, and the others look at once.

`NOTIFY` travels with the transaction, so nobody hears of what was rolled back. A server that does not hear (its
connection broke, the news was lost) finds out by asking, as before: news only make it ask sooner.
"""

from __future__ import annotations

import logging
import secrets
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

import sqlalchemy as sa

if TYPE_CHECKING:
    import psycopg

logger = logging.getLogger("headrace.server")

CHANNEL = "headrace"
EVENT, SEAL = "event", "seal"
_RETRY_SECONDS = 1.0
_LOOK_SECONDS = 0.5


def notify(connection: sa.Connection, run_id: str, kind: str, origin: str) -> None:
    """Tells the other servers, when the transaction commits, that a run has an event, or that its seal has moved."""
    news = {"channel": CHANNEL, "news": f"{kind} {run_id} {origin}"}
    connection.execute(sa.text("SELECT pg_notify(:channel, :news)"), news)


def new_origin() -> str:
    """A name by which a server knows its own news."""
    return secrets.token_hex(4)


class Listener:
    """A thread that hears news of other servers and calls `hear(run id, kind)`; after a gap the id is "": any run."""

    def __init__(self, url: sa.URL, origin: str, hear: Callable[[str, str], None]) -> None:
        self._url = url.set(drivername="postgresql").render_as_string(hide_password=False)
        self._origin = origin
        self._hear = hear
        self._stop = threading.Event()
        self.alive = False
        self._thread = threading.Thread(target=self._run, name="headrace-listen", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Ends the thread."""
        self._stop.set()
        self._thread.join(5 * _LOOK_SECONDS)

    def _run(self) -> None:
        import psycopg

        while not self._stop.is_set():
            try:
                self._listen(psycopg.connect(self._url, autocommit=True, connect_timeout=5))
            except psycopg.Error as error:
                if self.alive:
                    logger.warning("no news from other servers, the store is asked instead: %s", str(error).strip())
            self.alive = False
            self._stop.wait(_RETRY_SECONDS)

    def _listen(self, connection: psycopg.Connection) -> None:
        with connection:
            connection.execute(f"LISTEN {CHANNEL}")
            self.alive = True
            self._hear("", EVENT)
            while not self._stop.is_set():
                for news in connection.notifies(timeout=_LOOK_SECONDS):
                    kind, run_id, origin = news.payload.split(" ")
                    if origin != self._origin:
                        self._hear(run_id, kind)
