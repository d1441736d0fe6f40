"""The demo's output folder: made fresh, and never at the cost of somebody else's files.

A folder that the demo made carries a marker file, which is locked while a demo runs. Such a folder is emptied; one
without the marker, or with entries that the demo does not make, is refused before anything is deleted.
"""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from headrace.proto.errors import UsageError

MARKER = ".headrace-demo"
OWN = frozenset(
    {MARKER, "aligned", "checkpoint", "configs", "corpus", "logs", "proxy", "raw", "steps", "store", "tokenizers"}
    | {"weights.json"}
)


@contextmanager
def fresh_folder(path: Path) -> Iterator[Path]:
    """The folder, empty but for its marker, held by a lock until the block ends.

    Raises UsageError when it holds anything that the demo has not made, or when another demo uses it.
    """
    folder = path.resolve()
    _refuse_foreign(folder)
    folder.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(folder / MARKER, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise UsageError(
                f"another demo is running in `{folder}`; wait for it, or name another with --out"
            ) from None
        _empty(folder)
        yield folder
    finally:
        os.close(descriptor)


def _refuse_foreign(folder: Path) -> None:
    if not folder.exists():
        return
    if not folder.is_dir():
        raise UsageError(f"`{folder}` is not a folder; name another with --out")
    entries = sorted(entry.name for entry in folder.iterdir())
    foreign = [name for name in entries if name not in OWN or (folder / name).is_symlink()]
    if entries and MARKER not in entries:
        raise UsageError(
            f"`{folder}` is not empty and no demo made it (it holds `{entries[0]}`); name another with --out"
        )
    if foreign:
        raise UsageError(
            f"`{folder}` holds `{foreign[0]}`, which the demo did not make; move it away, or name another with --out"
        )


def _empty(folder: Path) -> None:
    for entry in folder.iterdir():
        if entry.name == MARKER:
            continue
        if entry.is_dir():
            shutil.rmtree(entry)
        else:
            entry.unlink()
