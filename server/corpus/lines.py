"""Whole lines of a source, some at a time. A line ends at LF and nowhere else."""

from __future__ import annotations

import codecs
import io
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
    rest, first = b"", True
    held: io.BytesIO | None = None  # a line longer than a chunk: grows in place, and is handed out without a copy
    for chunk in source.chunks():
        cut = chunk.rfind(b"\n") + 1
        if not cut:
            held = held or _begun(rest)
            held.write(chunk)
            continue
        view = memoryview(chunk)
        # The block is nobody's but the caller's, who may let go of it before asking for the next.
        yield _block(source, rest if held is None else held, view[:cut], notes, first=first)
        rest, held, first = bytes(view[cut:]), None, False
    if rest or held:
        yield _block(source, rest if held is None else held, memoryview(b""), notes, first=first)


def _begun(rest: bytes) -> io.BytesIO:
    held = io.BytesIO()
    held.write(rest)
    return held


def _block(source: Source, begin: bytes | io.BytesIO, end: memoryview, notes: Counter[str], *, first: bool) -> bytes:
    if isinstance(begin, bytes):
        block = b"".join((begin, end))
    else:
        begin.write(end)
        block = begin.getvalue()
        begin.close()
    return without_mark(source, block, notes) if first else block


def next_line(block: bytes, at: int) -> tuple[bytes, int]:
    """The line that begins at `at`, with its LF, and where the next one begins."""
    end = block.find(b"\n", at) + 1 or len(block)
    return block[at:end], end
