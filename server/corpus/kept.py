"""What costs much to count, kept beside the store behind its own hash.

A file that is damaged, or a folder that cannot be written, costs the counting again and nothing else.
"""

from __future__ import annotations

import contextlib
from pathlib import Path

from headrace.native import Blake3
from headrace.proto.errors import HeadraceError
from headrace.server.corpus.durable import write_file

_HASH_BYTES = 32


def keep(path: Path, data: bytes) -> None:
    """Writes the file, if the folder takes it."""
    with contextlib.suppress(HeadraceError):
        write_file(path, _hash(data) + data)


def kept(path: Path) -> bytes | None:
    """What was kept in this file; None when nothing was, or it is not whole."""
    try:
        whole = path.read_bytes()
    except OSError:
        return None
    data = whole[_HASH_BYTES:]
    return data if _hash(data) == whole[:_HASH_BYTES] else None


def _hash(data: bytes) -> bytes:
    hasher = Blake3()
    hasher.update(data)
    return hasher.digest()
