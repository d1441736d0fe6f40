"""Guards the loader against `fork`: a child never uses, and never hangs on, what its parent had open.

gRPC's C core survives a fork only when its fork handlers are on and no call is under way; with them switched off a
child hangs past every deadline. So this module asks for the handlers (unless the user has decided otherwise, and
before grpc is imported), and each process-bound object asks `Owner.check` before it takes a lock, because a lock that
another thread of the parent held at the fork stays locked in the child for ever.

What was given up: carrying a live connection over a fork. A loader that had connected is refused in the child, with
the two ways out; one that had not connects there on its own.
"""

from __future__ import annotations

import os

from headrace.proto.errors import UsageError

# Must be set before the first import of grpc in the process; a value that the user set is left alone.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "1")


class ForkError(UsageError):
    """A live loader was carried into a child process by fork."""


class Owner:
    """Remembers the process that opened something."""

    __slots__ = ("_pid", "_what")

    def __init__(self, what: str) -> None:
        self._pid = os.getpid()
        self._what = what

    def here(self) -> bool:
        """Whether this process is the one that opened it."""
        return os.getpid() == self._pid

    def check(self) -> None:
        """Raises ForkError in any process but the one that opened it."""
        if not self.here():
            raise ForkError(
                f"{self._what} was connected in process {self._pid} and cannot be used in its child {os.getpid()}: "
                "a connection does not survive a fork; make the loader in the process that uses it, or use "
                'num_workers=0, or multiprocessing_context="forkserver" or "spawn"'
            )
