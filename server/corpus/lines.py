"""Whole lines of a source, some at a time. A line ends at LF and nowhere else."""

from __future__ import annotations

import codecs
import io
from collections import Counter
from collections.abc import Iterator

from headrace.server.corpus.bytestream import Source, SourceError

_UTF16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
Lines = tuple[bytes, int, int]
"""Whole lines: those of a block in [begin, end)."""


def mark_length(source: Source, start: bytes, notes: Counter[str]) -> int:
    """Bytes of the UTF-8 byte order mark at the begin of a file, which is counted; UTF-16 is refused."""
    if start.startswith(_UTF16):
        raise SourceError(f"`{source.name}` begins with a UTF-16 byte order mark; convert it to UTF-8")
    if start.startswith(codecs.BOM_UTF8):
        notes["byte_order_mark"] += 1
        return len(codecs.BOM_UTF8)
    return 0


def line_blocks(source: Source, notes: Counter[str]) -> Iterator[Lines]:
    """The file's lines in blocks that end with an LF, but for the last one; memory is one chunk and one line.

    A block is nobody's but the caller's, who may let go of it before asking for the next.
    """
    held, first = io.BytesIO(), True
    for chunk in source.chunks():
        begin = 0
        if held.tell():
            # The line that the chunk before began; one longer than a chunk grows in place and is not copied.
            begin = chunk.find(b"\n") + 1 or len(chunk)
            held.write(memoryview(chunk)[:begin])
            if not chunk.endswith(b"\n", 0, begin):
                continue
            yield _begun(source, held, notes, first=first)
            held, first = io.BytesIO(), False
        cut = chunk.rfind(b"\n") + 1
        if cut > begin:
            yield chunk, begin + (mark_length(source, chunk, notes) if first else 0), cut
            first = False
        held.write(memoryview(chunk)[max(begin, cut) :])
    if held.tell():
        yield _begun(source, held, notes, first=first)


def _begun(source: Source, held: io.BytesIO, notes: Counter[str], *, first: bool) -> Lines:
    block = held.getvalue()
    held.close()
    return block, mark_length(source, block, notes) if first else 0, len(block)


def next_line(block: bytes, at: int, end: int) -> tuple[bytes, int]:
    """The line that begins at `at`, with its LF, and where the next one begins."""
    after = block.find(b"\n", at, end) + 1 or end
    return block[at:after], after
