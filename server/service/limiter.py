"""How many changes a run takes: a bucket of tokens a run, so that a program in a loop costs trainers nothing.

A change that finds the bucket empty is refused before anything is read or written, with the time after which one would
be taken. Such refusals are counted, and named in the log once in a while, never one by one. They are answered after a
moment only: a connection has no more than so many calls under way, so one that asks without end waits in its own client
and not in this process.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass

from headrace.proto.errors import BusyError

logger = logging.getLogger("headrace.server")

SAVED_SECONDS = 4
HOLD_SECONDS, MOST_HELD = 0.2, 256
"""How long a refusal is kept at most, and how many at once: more are answered at once."""
MOST_BUCKETS = 1024
_LOG_EVERY = 10.0


@dataclass(kw_only=True, slots=True)
class _Bucket:
    tokens: float
    filled: float  # when it was looked at last
    refused: int = 0
    logged: float = float("-inf")


class Limiter:
    """At most `rate` changes a second and run, those of four quiet seconds saved up; 0 means no limit."""

    def __init__(self, rate: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._rate = rate
        self._clock = clock
        self._buckets: dict[str, _Bucket] = {}
        self._held = 0

    async def admit(self, run: str) -> None:
        """Counts one change as `take` does, whose refusal comes after the time that it names, or HOLD_SECONDS."""
        try:
            self.take(run)
        except BusyError as error:
            if self._held < MOST_HELD:
                self._held += 1
                try:
                    await asyncio.sleep(min(error.retry_after, HOLD_SECONDS))
                finally:
                    self._held -= 1
            raise

    def take(self, run: str) -> None:
        """Counts one change. Raises BusyError, which says when to try again."""
        if not self._rate:
            return
        now, most = self._clock(), float(self._rate * SAVED_SECONDS)
        run = self._named(run, now)
        bucket = self._buckets.setdefault(run, _Bucket(tokens=most, filled=now))
        bucket.tokens = min(most, bucket.tokens + (now - bucket.filled) * self._rate)
        bucket.filled = now
        if bucket.tokens < 1:
            bucket.refused += 1
            self._log(run, bucket, now)
            raise BusyError(
                f"run `{run or '-'}` takes {self._rate} changes a second (changes_per_second in SERVER.toml); "
                f"try again in {(wait := (1 - bucket.tokens) / self._rate):.3f} s, and send fewer",
                retry_after=wait,
            )
        bucket.tokens -= 1

    def _named(self, run: str, now: float) -> str:
        """The name of the bucket: names that nobody has heard of must not fill the memory, so there are so many."""
        if run not in self._buckets and len(self._buckets) >= MOST_BUCKETS:
            self._buckets = {name: one for name, one in self._buckets.items() if now - one.filled < SAVED_SECONDS}
        return run if run in self._buckets or len(self._buckets) < MOST_BUCKETS else ""

    def _log(self, run: str, bucket: _Bucket, now: float) -> None:
        if now - bucket.logged >= _LOG_EVERY:
            logger.warning("run %s: too many changes, %d were refused since the last word", run or "-", bucket.refused)
            bucket.refused, bucket.logged = 0, now
