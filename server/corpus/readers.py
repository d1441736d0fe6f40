"""Rows of a source file, one function a format; the rules for odd text are in `documents`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import PurePosixPath

import numpy as np
from headrace.proto.errors import ConfigError
from headrace.server.corpus.bytestream import Source, SourceError, hash_file
from headrace.server.corpus.documents import EMPTY, Row, Rows, decode
from headrace.server.corpus.jsonl import jsonl_rows
from headrace.server.corpus.lines import line_blocks, mark_length, next_line
from headrace.server.corpus.spec import DomainSpec
from headrace.server.corpus.tables import arrow_rows, check_table, parquet_rows

_COMPRESSED = (".gz", ".zst")
_SUFFIXES = {
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "jsonl",
    ".txt": "text",
    ".text": "text",
    ".parquet": "parquet",
    ".arrow": "arrow",
    ".feather": "arrow",
}
_TABLES = ("parquet", "arrow")


def format_of(source: Source, spec: DomainSpec) -> str:
    """The format of a file: what the domain says, else its suffix below `.gz` and `.zst`."""
    suffixes = PurePosixPath(source.location.partition("?")[0]).suffixes
    inner = [suffix for suffix in suffixes if suffix not in _COMPRESSED]
    kind = spec.format if spec.format != "auto" else _SUFFIXES.get(inner[-1] if inner else "")
    if kind is None:
        known = ", ".join(sorted(_SUFFIXES))
        raise ConfigError(
            f"domain `{spec.name}`: no format is known for `{source.name}` (only {known}); name the one it has, as in "
            f'`format = "text"`, or leave the file out of `files`'
        )
    if kind in _TABLES and suffixes and suffixes[-1] in _COMPRESSED:
        raise ConfigError(f"`{source.name}`: {kind} files compress inside; unpack this one first")
    return kind


def check_source(source: Source, spec: DomainSpec) -> None:
    """What can be told of a file without reading it all: its format, and a table's schema."""
    kind = format_of(source, spec)
    if kind in _TABLES:
        check_table(source, kind, spec)


def read_rows(source: Source, spec: DomainSpec, notes: Counter[str]) -> Iterator[Rows]:
    """Rows of a source in order; `notes` counts what is no row (byte order marks, blank lines)."""
    kind = format_of(source, spec)
    replace = spec.on_bad == "replace"
    if kind in _TABLES:
        return _table(source, kind, spec)
    if kind == "jsonl":
        return jsonl_rows(source, spec, notes)
    if spec.document == "file":
        return _whole(source, notes, replace=replace)
    if spec.document == "separator":
        return _separated(source, spec.separator.encode(), notes, replace=replace)
    return _lines(source, notes, replace=replace)


def _table(source: Source, kind: str, spec: DomainSpec) -> Iterator[Rows]:
    """A table is read in pieces and out of order, so it is hashed first, and must be the same afterwards."""
    before = source.stamp()
    hash_file(source)
    yield from parquet_rows(source, spec) if kind == "parquet" else arrow_rows(source, spec)
    if source.stamp() != before:
        raise SourceError(f"`{source.name}` was changed while it was read; build again when its writer is done")


def _text_row(number: int, raw: bytes, *, replace: bool) -> Row:
    text, reason, detail = decode(raw, replace=replace)
    if text == "":
        return Row(number, None, EMPTY, "no characters")
    return Row(number, text, reason, detail)


def _lines(source: Source, notes: Counter[str], *, replace: bool) -> Iterator[Rows]:
    number, rows = 1, Rows()
    for block, begin, end in line_blocks(source, notes):
        at = begin
        while at < end:
            taken, at = rows.texts.take_text_lines(block, at, end, number)
            number += taken
            if at < end:
                line, at = next_line(block, at, end)
                raw = line.removesuffix(b"\n").removesuffix(b"\r")
                rows.add(_text_row(number, raw, replace=replace), with_fields=False)
                number += 1
        del block
        if rows.is_full:
            yield rows
            rows = Rows()
    yield rows


def _whole(source: Source, notes: Counter[str], *, replace: bool) -> Iterator[Rows]:
    rows, raw = Rows(), b"".join(source.chunks())
    begin = mark_length(source, raw, notes)
    taken, _ = rows.texts.take_column(np.frombuffer(raw, np.uint8), np.array([begin, len(raw)]), None, 0, 1)
    if not taken:
        rows.add(_text_row(1, raw[begin:], replace=replace), with_fields=False)
    del raw
    yield rows


def _separated(source: Source, separator: bytes, notes: Counter[str], *, replace: bool) -> Iterator[Rows]:
    """Documents between separators; what follows the last one is a document if it is not empty."""
    buffer, searched, number = bytearray(), 0, 0
    first = True
    for chunk in source.chunks():
        rows = Rows()
        buffer += chunk
        if first and len(buffer) >= 3:
            del buffer[: mark_length(source, bytes(buffer[:3]), notes)]
            first = False
        while (found := buffer.find(separator, searched)) >= 0:
            number += 1
            rows.add(_text_row(number, bytes(buffer[:found]), replace=replace), with_fields=False)
            del buffer[: found + len(separator)]
            searched = 0
        searched = max(0, len(buffer) - len(separator) + 1)
        yield rows
    if buffer:
        rows = Rows()
        rows.add(_text_row(number + 1, bytes(buffer), replace=replace), with_fields=False)
        yield rows
