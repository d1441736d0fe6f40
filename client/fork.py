"""Guards the loader against `fork`: a child never uses, and never hangs on, what its parent had open.

gRPC survives a fork only when its fork handlers are on (`headrace.client` switches them on before grpc is imported,
unless the user has decided otherwise) and no thread is inside it: a lock that another thread holds at the fork stays
locked in the child for ever, and gRPC's own handler waits for it there. So every call passes a gate; before a fork the
gate is shut, calls under way get a moment to end and are cancelled after it, and the parent's threads try them again.
What is bound to a process asks `Owner.check` before it takes a lock.

What was given up: carrying a live connection over a fork. A loader that had connected is refused in the child, with
the ways out; one that had not connects there on its own.
"""

from __future__ import annotations

import contextlib
import importlib
import mmap
import os
import threading
import time
import weakref
from types import TracebackType
from typing import Protocol

import grpc
from headrace.proto.errors import UsageError

# How long a fork waits for calls under way, before and after they are cancelled.
_DRAIN_SECONDS = 0.5
_CANCEL_SECONDS = 2.0

_SWITCH = "_GRPC_ENABLE_FORK_SUPPORT"
_OFF = ("0", "false", "no", "off")


def _switch_on() -> None:
    """gRPC reads the variable when it is imported: where a program has done that before, it is told here."""
    core = importlib.import_module("grpc._cython.cygrpc")
    if not _is_off() and getattr(core, _SWITCH, None) is False:
        setattr(core, _SWITCH, True)


def _is_off() -> bool:
    return os.environ.get("GRPC_ENABLE_FORK_SUPPORT", "").lower() in _OFF


_switch_on()


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


class Gate:
    """Entered around every call. Shut while the process forks."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._inside = 0
        self._shut = False

    def __enter__(self) -> None:
        with self._changed:
            while self._shut:
                self._changed.wait()
            self._inside += 1

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._changed:
            self._inside -= 1
            self._changed.notify_all()

    def shut(self) -> None:
        with self._changed:
            self._shut = True

    def open(self) -> None:
        with self._changed:
            self._shut = False
            self._changed.notify_all()

    def drained(self, seconds: float) -> bool:
        """Whether nobody is inside any more, within that time."""
        until = time.monotonic() + seconds
        with self._changed:
            while self._inside and (left := until - time.monotonic()) > 0:
                self._changed.wait(left)
            return not self._inside


class Connected(Protocol):
    """What has channels that a fork may have to cancel."""

    def cancel(self) -> None: ...
    def break_streams(self) -> None: ...


class _Process:
    """The gate and the connections of this process; new ones in a forked child."""

    def __init__(self) -> None:
        self.gate = Gate()
        self.connections: weakref.WeakSet[Connected] = weakref.WeakSet()
        self.inherited: list[Connected] = []  # kept: taking a parent's channel apart in a child may hang
        self.mapped: weakref.WeakSet[mmap.mmap] = weakref.WeakSet()
        self.poisoned = False


_process = _Process()
_watching = False


def gate() -> Gate:
    return _process.gate


def register(connection: Connected) -> None:
    """Counts a connection among those of this process. Raises ForkError where it could only hang."""
    if _process.poisoned:
        raise ForkError(
            "this process was forked from one that was connected, with gRPC's fork handlers off "
            "(GRPC_ENABLE_FORK_SUPPORT=0): a connection made here would hang; unset the variable, or start the "
            'process with the "forkserver" or "spawn" method'
        )
    _watch()
    _process.connections.add(connection)


def mapped(memory: mmap.mmap) -> None:
    """Counts memory shared with a server among what a child has no use for: it is unmapped there."""
    _process.mapped.add(memory)


def _watch() -> None:
    """Asks to be told of forks, before gRPC is: what is asked for last is called first, and once gRPC has stopped its
    threads for a fork, a stream can no longer be cancelled. gRPC asks when the first channel is made."""
    global _watching
    if not _watching:
        _watching = True
        grpc.insecure_channel("127.0.0.1:1").close()
        os.register_at_fork(before=_before, after_in_parent=_after_in_parent, after_in_child=_after_in_child)


def _before() -> None:
    if not _process.connections:
        return
    _process.gate.shut()
    for connection in list(_process.connections):
        connection.break_streams()  # they would not end by themselves
    if not _process.gate.drained(_DRAIN_SECONDS):
        for connection in list(_process.connections):
            connection.cancel()
        _process.gate.drained(_CANCEL_SECONDS)


def _after_in_parent() -> None:
    _process.gate.open()


def _after_in_child() -> None:
    global _process
    before, _process = _process, _Process()
    _process.inherited = [*before.inherited, *before.connections]
    for memory in before.mapped:
        with contextlib.suppress(BufferError):  # a thread that is gone here was reading it
            memory.close()
    _process.poisoned = before.poisoned or (_is_off() and bool(_process.inherited))
