"""The journal of the mixer: one JSON object a line, each on the disk before anything follows from it.

What holds: a line that a crash tore is cut off when the journal is opened again, and said; two services cannot write
one journal; everything the service decided follows from the lines. What was given up: rotation; a line a window is
small.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from headrace.proto.errors import ConfigError, ConflictError

Entry = Mapping[str, Any]


class Journal:
    """Open for appending, locked for this process; a context manager."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self.path = path
        self._file = path.open("a+b")
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self._file.close()
            raise ConflictError(
                f"`{path}`: another mixer writes this journal; stop it, or name another folder"
            ) from None
        self.torn = self._cut_torn_line()

    def _cut_torn_line(self) -> int:
        """Remove what follows the last line feed; the number of bytes removed."""
        data = self.path.read_bytes()
        whole = data.rfind(b"\n") + 1
        if whole < len(data):
            self._file.truncate(whole)
            os.fsync(self._file.fileno())
        return len(data) - whole

    def append(self, entry: Entry) -> None:
        """Write one entry and wait until it is on the disk."""
        line = json.dumps(entry, sort_keys=True, separators=(",", ":"), allow_nan=False)
        self._file.write(line.encode() + b"\n")
        self._file.flush()
        os.fsync(self._file.fileno())

    def entries(self) -> Iterator[Entry]:
        """All entries from the first on. Raises ConfigError naming the line that is none."""
        for number, line in enumerate(self.path.read_bytes().splitlines(), start=1):
            try:
                entry = json.loads(line)
            except ValueError as error:
                raise ConfigError(f"`{self.path}` line {number}: not a journal entry: {error}") from error
            if not isinstance(entry, dict) or "kind" not in entry:
                raise ConfigError(f"`{self.path}` line {number}: not a journal entry")
            yield entry

    def close(self) -> None:
        """Give the journal to others."""
        self._file.close()

    def __enter__(self) -> Journal:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
