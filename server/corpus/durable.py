"""Durable writes: a temporary name, fsync, rename, fsync of the folder. A reader sees the whole file or none."""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
import shutil
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from headrace.proto.errors import HeadraceError

_PREFIX = ".tmp-"
_LOCK = ".building"
_LOCK_SECONDS = 0.5


def _temporary() -> str:
    """A name of this process, by which `sweep` knows whether its maker is still alive."""
    return f"{_PREFIX}{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(4)}"


def sync(path: Path) -> None:
    """Forces a file or folder to disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def io_errors(doing: str, path: Path) -> Iterator[None]:
    """Turns what the operating system refuses (no space, no permission) into one message with the path."""
    try:
        yield
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else str(error)
        raise HeadraceError(f"cannot {doing} `{path}`: {reason}; make room or give access, then run it again") from None


def write_file(path: Path, data: bytes) -> None:
    """Replaces `path` by `data`, atomically and durably."""
    temporary = path.with_name(_temporary())
    with io_errors("write", path):
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with temporary.open("wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(path)
            sync(path.parent)
        finally:
            temporary.unlink(missing_ok=True)


@contextlib.contextmanager
def new_folder(parent: Path, name: Callable[[], str]) -> Iterator[Path]:
    """A folder that gets its name, asked for at the end, when the block ends well, and vanishes when it does not.

    If a folder of that name came into being meanwhile (another worker built the same content), ours is dropped.
    """
    temporary = parent / _temporary()
    try:
        with io_errors("write below", parent):
            temporary.mkdir(parents=True)
            yield temporary
            sync(temporary)
            final = parent / name()
            try:
                temporary.rename(final)
            except OSError:
                if not final.is_dir():
                    raise
            sync(parent)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


@contextlib.contextmanager
def alone(folder: Path, waiting: Callable[[], None]) -> Iterator[None]:
    """Holds `folder` against other processes that do the same; calls `waiting` twice a second until it is free.

    The lock ends with the process, however it ends. A file system without locks gives none: then two builders do the
    same work twice, and each of their files still appears whole.
    """
    with io_errors("write below", folder):
        folder.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        while not _locked(descriptor):
            waiting()
            time.sleep(_LOCK_SECONDS)
        yield
    finally:
        os.close(descriptor)


def _locked(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return True
    return True


def sweep(folder: Path) -> int:
    """Removes temporary folders and files that killed builds of this machine left in `folder`; returns how many."""
    mine = f"{_PREFIX}{socket.gethostname()}-"
    removed = 0
    for path in folder.glob(f"{mine}*"):
        pid = path.name.removeprefix(mine).partition("-")[0]
        if pid.isdigit() and not _alive(int(pid)):
            if path.is_dir():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink(missing_ok=True)
            removed += 1
    return removed


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return True
    # One that was killed and that nobody has waited for keeps its number, for ever under a lazy init.
    return not stat.rpartition(") ")[2].startswith(("Z", "X"))
