"""How far a build is, in words: for a terminal, for a log, and for those whom a server tells to wait."""

from __future__ import annotations

import time

from headrace.server.corpus.build import Advance


class Pace:
    """Turns the counts of a build into words; rates are over the time since this was made."""

    def __init__(self) -> None:
        self._start = time.monotonic()

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._start

    def words(self, advance: Advance) -> str:
        """Bytes, rate, documents, tokens and the time left."""
        rate = advance.source_bytes / max(self.seconds, 1e-3)
        left = max(0.0, (advance.total_bytes - advance.source_bytes) / rate) if rate else 0.0
        return (
            f"{advance.source_bytes / 1e6:,.0f} of {advance.total_bytes / 1e6:,.0f} MB  {rate / 1e6:,.1f} MB/s  "
            f"{advance.documents:,} documents  {advance.tokens:,} tokens  {left:,.0f} s left"
        )
