"""Child processes of the demo: started with a log file, and gone when the demo is, however it ends.

Three nets: leaving the `Children` block kills what still runs; SIGTERM and SIGHUP of the demo become an exception, so
that the block is left; and on Linux the kernel kills each child when its parent dies, even by SIGKILL. A signal that
comes while a child is forked waits for its end: Python drops what a handler raises amid the hooks of a fork.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType, TracebackType
from typing import IO, Any, NoReturn, Self

from headrace.client.cli.demo.console import say
from headrace.proto.errors import HeadraceError

HEADRACE = (sys.executable, "-m", "headrace.client.cli")
Handler = Callable[[int, FrameType | None], Any] | int | None
_LIBC = ctypes.CDLL(None) if sys.platform == "linux" else None
_PR_SET_PDEATHSIG = 1
_LAST_LINES = 12
_PATIENCE_S = 3.0
_ENDINGS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class DemoError(HeadraceError):
    """A check of the demo failed, or a process that it needs."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Child:
    """A running process, its name for messages and its log."""

    name: str
    process: subprocess.Popen[bytes]
    log: Path

    def check_alive(self) -> None:
        """Raise DemoError with the end of the log when the process has ended."""
        code = self.process.poll()
        if code is not None:
            raise DemoError(
                f"{self.name} ended early with exit code {code}; the end of `{self.log}`:\n{tail(self.log)}"
            )

    def kill(self) -> None:
        """SIGKILL, as a machine that fails would do it; returns when it is gone."""
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def wait(self, timeout_s: float) -> None:
        """Wait for a good end; raises DemoError on another exit code or after `timeout_s` seconds."""
        try:
            code = self.process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            raise DemoError(f"{self.name} did not end within {timeout_s:.0f} s; see `{self.log}`") from None
        if code != 0:
            raise DemoError(f"{self.name} failed with exit code {code}; the end of `{self.log}`:\n{tail(self.log)}")


class Children:
    """Context manager that owns the processes started through it; they work in `folder` and log to `folder/logs`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._children: list[Child] = []
        self._handlers: dict[signal.Signals, Handler] = {}

    def __enter__(self) -> Self:
        (self.folder / "logs").mkdir(parents=True, exist_ok=True)
        self._handlers = {number: signal.signal(number, _leave) for number in (signal.SIGTERM, signal.SIGHUP)}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number in self._handlers:
            signal.signal(number, signal.SIG_IGN)  # a second signal must not cut the clean-up short
        running = [child for child in self._children if child.process.poll() is None]
        for child in running:
            child.process.terminate()
        deadline = time.monotonic() + _PATIENCE_S
        for child in running:
            try:
                child.process.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                child.kill()
        for number, handler in self._handlers.items():
            signal.signal(number, handler)

    def start(self, name: str, argv: Sequence[str], *, env: Mapping[str, str] | None = None) -> Child:
        """Start a process whose output goes to `logs/<name>.log`, appended."""
        log = self.folder / "logs" / f"{name}.log"
        with log.open("ab") as output, _endings_wait():
            process = _start(argv, folder=self.folder, output=output, env=env)
            child = Child(name=name, process=process, log=log)
            self._children.append(child)
        return child

    def start_headrace(self, name: str, *arguments: str) -> Child:
        """Start a `headrace` command that stays."""
        say(f"$ headrace {' '.join(arguments)}")
        return self.start(name, [*HEADRACE, *arguments])

    def headrace(self, *arguments: str, show: str | None = None, env: Mapping[str, str] | None = None) -> str:
        """Run a `headrace` command to its end and return what it printed; DemoError with its message when it fails.

        `show` is what to print in place of the arguments, for those that are long.
        """
        shown = show or " ".join(arguments)
        say(f"$ headrace {shown}")
        pipe, process = subprocess.PIPE, None
        try:
            with _endings_wait():
                process = _start([*HEADRACE, *arguments], folder=self.folder, output=pipe, errors=pipe, env=env)
            output, errors = process.communicate()
        except BaseException:
            if process is not None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
            raise
        if process.returncode != 0:
            command, message = " ".join(arguments), errors.decode(errors="replace").strip()
            raise DemoError(
                f"`headrace {command}` in `{self.folder}` ended with exit code {process.returncode}: {message}"
            )
        return output.decode()


def _start(
    argv: Sequence[str],
    *,
    folder: Path,
    output: IO[bytes] | int,
    errors: int = subprocess.STDOUT,
    env: Mapping[str, str] | None = None,
) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        argv,
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=errors,
        env={**os.environ, **(env or {})},
        start_new_session=True,  # Ctrl-C reaches the demo alone, which then ends its children in order
        preexec_fn=_die_with_parent,
    )


@contextlib.contextmanager
def _endings_wait() -> Iterator[None]:
    """Signals that end the demo are heard when the block is over. To block them would not do: another thread, of a
    library, may take one, and Python then calls the handler in this thread all the same."""
    came: list[int] = []
    before = {number: signal.signal(number, lambda number, _: came.append(number)) for number in _ENDINGS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        if came:
            signal.raise_signal(came[0])


def wait_until_listening(child: Child, address: str, *, timeout_s: float = 30.0) -> None:
    """Wait until a TCP connection to `host:port` succeeds; DemoError when the child ends or time is up."""
    host, _, port = address.rpartition(":")
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        child.check_alive()
        with socket.socket() as probe:
            probe.settimeout(1.0)
            if probe.connect_ex((host, int(port))) == 0:
                return
        time.sleep(0.05)
    raise DemoError(f"{child.name} does not listen on {address} after {timeout_s:.0f} s; see `{child.log}`")


def free_port() -> int:
    """A TCP port of the loopback interface that was free just now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def tail(log: Path) -> str:
    """The last lines of a log."""
    return "\n".join(log.read_text(encoding="utf-8", errors="replace").splitlines()[-_LAST_LINES:])


def _leave(number: int, frame: FrameType | None) -> NoReturn:
    raise SystemExit(128 + number)


def _die_with_parent() -> None:
    if _LIBC is not None:
        _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
