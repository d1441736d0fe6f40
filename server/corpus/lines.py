"""Whole lines of a source, some at a time. A line ends at LF and nowhere else."""

from __future__ import annotations

import codecs
from collections import Counter
from collections.abc import Iterator

from headrace.server.corpus.bytestream import Source, SourceError

_UTF16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


def without_mark(source: Source, start: bytes, notes: Counter[str]) -> bytes:
    """The begin of a file without its UTF-8 byte order mark, which is counted; UTF-16 is refused."""
    if start.startswith(_UTF16):
        raise SourceError(f"`{source.name}` begins with a UTF-16 byte order mark; convert it to UTF-8")
    if start.startswith(codecs.BOM_UTF8):
        notes["byte_order_mark"] += 1
        return start[len(codecs.BOM_UTF8) :]
    return start


def line_blocks(source: Source, notes: Counter[str]) -> Iterator[bytes]:
    """The file in blocks that end with an LF, but for the last one; memory is one chunk and one line."""
    parts: list[bytes] = []
    first = True
    for chunk in source.chunks():
        cut = chunk.rfind(b"\n") + 1
        if not cut:
            parts.append(chunk)
            continue
        block = b"".join([*parts, chunk[:cut]])
        yield without_mark(source, block, notes) if first else block
        parts, first = [chunk[cut:]], False
    block = b"".join(parts)
    block = without_mark(source, block, notes) if first else block
    if block:
        yield block
