"""Tries again what is worth it: UNAVAILABLE and DEADLINE_EXCEEDED, with jitter and growing pauses, until told to stop.

Every pause is uniform between 0 and its bound ("full jitter"), so that many ranks that lost one server do not come
back at the same moment.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from typing import TypeVar

from headrace.client.settings import Settings
from headrace.proto.errors import HeadraceError, UnavailableError

T = TypeVar("T")


class ClosedError(HeadraceError):
    """The loader was closed while something waited on it."""


def keep_trying(
    attempt: Callable[[], T],
    *,
    settings: Settings,
    stop: threading.Event,
    note: Callable[[UnavailableError], None],
    until: float | None = None,
    wait: Callable[[float], object] | None = None,
) -> T:
    """The result of `attempt`. Raises its first error that is not worth a retry; the last one once `until`
    (monotonic seconds) has passed; ClosedError when `stop` is set. `note` hears every failed try. `wait` pauses for so
    many seconds, or less when it knows that the next try is worth it."""
    pause = settings.backoff
    wait = wait or stop.wait
    while True:
        try:
            return attempt()
        except UnavailableError as error:
            if stop.is_set():
                raise ClosedError("the loader was closed") from None
            note(error)
            if until is not None and time.monotonic() >= until:
                raise
        wait(random.uniform(0, pause))
        if stop.is_set():
            raise ClosedError("the loader was closed")
        pause = min(2 * pause, settings.backoff_max)
