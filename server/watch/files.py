"""The static files of the page, read once at the start: what a browser gets is what the package holds, and no more."""

from __future__ import annotations

import gzip
import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.resources import files
from importlib.resources.abc import Traversable

KINDS = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
    ".txt": "text/plain; charset=utf-8",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class StaticFile:
    """Content as it is and compressed, with its type and a tag that changes with it."""

    kind: str
    tag: str
    content: bytes
    packed: bytes


def static_files() -> dict[str, StaticFile]:
    """All files by path below `static`."""
    return dict(_found(files("headrace.server.watch") / "static", ""))


def _found(folder: Traversable, prefix: str) -> Iterator[tuple[str, StaticFile]]:
    for entry in folder.iterdir():
        if entry.is_dir():
            yield from _found(entry, f"{prefix}{entry.name}/")
            continue
        kind = KINDS.get("." + entry.name.rpartition(".")[2])
        if kind is not None:
            content = entry.read_bytes()
            tag = f'"{hashlib.sha256(content).hexdigest()[:16]}"'
            yield prefix + entry.name, StaticFile(kind=kind, tag=tag, content=content, packed=gzip.compress(content))
