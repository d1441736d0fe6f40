"""One lock that keeps a second server, or an offline writer, off an SQLite store.

An advisory `flock` on a file beside the store: the kernel drops it when the process dies, however it dies. The file
says who holds it. Readers never take it. PostgreSQL needs none: its row locks do the work between servers.
"""

from __future__ import annotations

import fcntl
import os
import socket
from pathlib import Path
from typing import TextIO

from headrace.proto.errors import ConflictError


class StoreLock:
    """Holds the lock from construction to `release`."""

    def __init__(self, path: Path) -> None:
        self._path = path.with_name(path.name + ".lock")
        self._file: TextIO | None = self._path.open("a+", encoding="utf-8")
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self._file.seek(0)
            holder = self._file.read().strip() or "unknown"
            self._file.close()
            self._file = None
            raise ConflictError(
                f"store {path} is in use by another server or writer ({holder}); ask that server (--server ADDR), "
                f"or stop it first"
            ) from None
        self._file.truncate(0)
        self._file.write(f"pid {os.getpid()} on {socket.gethostname()}\n")
        self._file.flush()

    def release(self) -> None:
        """Gives the lock back; the file stays, so that two servers never lock two different files."""
        if self._file is not None:
            self._file.close()
            self._file = None


def holder_of(path: Path) -> str:
    """Who has the store open for writing, as the lock's file says; "" when nobody has."""
    try:
        with path.with_name(path.name + ".lock").open(encoding="utf-8") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return path.with_name(path.name + ".lock").read_text(encoding="utf-8").strip() or "unknown"
    except OSError:
        return ""
    return ""
