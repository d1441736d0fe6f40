"""Named moments at which a test may kill the process: `HEADRACE_FAILPOINT=name:n` at the n-th time it gets there.

The kill is SIGKILL, so nothing is flushed, rolled back or closed by us: what is left is what the store made durable.
Without the variable a moment costs one comparison.
"""

from __future__ import annotations

import os
import signal

NAMES = (
    "append-begin",
    "append-row",  # the event's row is there, the run's row does not name it yet
    "append-written",
    "append-committed",
    "append-answered",  # planned with, and the answer is about to go out
    "seal-begin",
    "seal-written",
    "seal-committed",
)

_wanted, _, _count = os.environ.get("HEADRACE_FAILPOINT", "").partition(":")
_left = int(_count or 1)


def reach(name: str) -> None:
    """Says that the moment has come."""
    global _left
    if name != _wanted:
        return
    _left -= 1
    if _left <= 0:
        os.kill(os.getpid(), signal.SIGKILL)
