"""Durable files and digests of inputs: a file is there whole or not at all."""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from headrace.mixer.simplex import Vector


def write_atomic(path: Path, data: bytes) -> None:
    """Write beside the target, flush to the disk, rename: a crash leaves the old file or the new one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def parse_json(text: str) -> Any:
    """JSON in which no object names anything twice; JSON itself would keep the last of two. Raises ValueError."""
    return json.loads(text, object_pairs_hook=_once)


def _once(entries: list[tuple[str, Any]]) -> dict[str, Any]:
    table = dict(entries)
    if len(table) < len(entries):
        names = [name for name, _ in entries]
        raise ValueError(f"`{next(name for name in names if names.count(name) > 1)}` is in it twice")
    return table


def digest_numbers(values: Mapping[str, float]) -> str:
    """SHA-256, hex, of numbers by name in canonical JSON."""
    text = json.dumps({name: float(value) for name, value in values.items()}, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def digest_vectors(values: Mapping[str, Vector]) -> str:
    """SHA-256, hex, of vectors by name: name, length and little-endian float64 of each, names sorted bytewise."""
    digest = hashlib.sha256()
    for name in sorted(values, key=str.encode):
        data = values[name].astype("<f8").tobytes()
        digest.update(f"{name}\0{len(data)}\0".encode() + data)
    return digest.hexdigest()


def digest_file(path: Path) -> str:
    """SHA-256, hex, of a file's bytes."""
    return hashlib.sha256(path.read_bytes()).hexdigest()
