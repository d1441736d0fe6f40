"""Rows of a source file, one function a format; the rules for odd text are in `documents`."""

from __future__ import annotations

import codecs
import json
from collections import Counter
from collections.abc import Iterator
from pathlib import PurePosixPath

from headrace.proto.errors import ConfigError
from headrace.server.corpus.bytestream import Source, SourceError, hash_file
from headrace.server.corpus.documents import BAD_JSON, EMPTY, NOT_OBJECT, Row, decode, row_of
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
# Control characters inside strings are kept: files in the wild hold them, and nothing is gained by losing a document.
_JSON = json.JSONDecoder(strict=False)
_UTF16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


def format_of(source: Source, spec: DomainSpec) -> str:
    """The format of a file: what the domain says, else its suffix below `.gz` and `.zst`."""
    suffixes = PurePosixPath(source.location.partition("?")[0]).suffixes
    inner = [suffix for suffix in suffixes if suffix not in _COMPRESSED]
    kind = spec.format if spec.format != "auto" else _SUFFIXES.get(inner[-1] if inner else "")
    if kind is None:
        known = ", ".join(sorted(_SUFFIXES))
        raise ConfigError(
            f'domain `{spec.name}`: no format is known for `{source.name}` (only {known}); say `format = "jsonl"`'
        )
    if kind in _TABLES and suffixes and suffixes[-1] in _COMPRESSED:
        raise ConfigError(f"`{source.name}`: {kind} files compress inside; unpack this one first")
    return kind


def check_source(source: Source, spec: DomainSpec) -> None:
    """What can be told of a file without reading it all: its format, and a table's schema."""
    kind = format_of(source, spec)
    if kind in _TABLES:
        check_table(source, kind, spec)


def read_rows(source: Source, spec: DomainSpec, notes: Counter[str]) -> Iterator[Row]:
    """Rows of a source in order; `notes` counts what is no row (byte order marks, blank lines)."""
    kind = format_of(source, spec)
    replace = spec.on_bad == "replace"
    if kind in _TABLES:
        return _table(source, kind, spec)
    if kind == "jsonl":
        return _jsonl(source, spec, notes, replace=replace)
    if spec.document == "file":
        return _whole(source, notes, replace=replace)
    if spec.document == "separator":
        return _separated(source, spec.separator.encode(), notes, replace=replace)
    return _lines(source, notes, replace=replace)


def _table(source: Source, kind: str, spec: DomainSpec) -> Iterator[Row]:
    """A table is read in pieces and out of order, so it is hashed first, and must be the same afterwards."""
    before = source.stamp()
    hash_file(source)
    yield from parquet_rows(source, spec) if kind == "parquet" else arrow_rows(source, spec)
    if source.stamp() != before:
        raise SourceError(f"`{source.name}` was changed while it was read; build again when its writer is done")


def _without_mark(source: Source, start: bytes, notes: Counter[str]) -> bytes:
    if start.startswith(_UTF16):
        raise SourceError(f"`{source.name}` begins with a UTF-16 byte order mark; convert it to UTF-8")
    if start.startswith(codecs.BOM_UTF8):
        notes["byte_order_mark"] += 1
        return start[len(codecs.BOM_UTF8) :]
    return start


def split_lines(source: Source, notes: Counter[str]) -> Iterator[bytes]:
    """Lines without their LF; memory is one chunk and one line."""
    parts: list[bytes] = []
    first = True
    for chunk in source.chunks():
        lines = chunk.split(b"\n")
        parts.append(lines[0])
        if len(lines) > 1:
            line = b"".join(parts)
            yield _without_mark(source, line, notes) if first else line
            first = False
            yield from lines[1:-1]
            parts = [lines[-1]]
    line = b"".join(parts)
    line = _without_mark(source, line, notes) if first else line
    if line:
        yield line


def _jsonl(source: Source, spec: DomainSpec, notes: Counter[str], *, replace: bool) -> Iterator[Row]:
    for number, line in enumerate(split_lines(source, notes), start=1):
        if not line or line.isspace():
            notes["blank_lines"] += 1
            continue
        text, reason, detail = decode(line, replace=replace)
        if text is None:
            yield Row(number, None, reason, detail)
            continue
        try:
            record = _JSON.decode(text)
        except (ValueError, RecursionError) as error:
            yield Row(number, None, BAD_JSON, f"not JSON: {error}")
            continue
        if not isinstance(record, dict):
            yield Row(number, None, NOT_OBJECT, f"a JSON {type(record).__name__}, not an object")
            continue
        row = row_of(number, record, spec.text, spec.fields, replace=replace)
        if row.text is not None and row.reason is None:
            row.reason, row.detail = reason, detail
        yield row


def _text_row(number: int, raw: bytes, *, replace: bool) -> Row:
    text, reason, detail = decode(raw, replace=replace)
    if text == "":
        return Row(number, None, EMPTY, "no characters")
    return Row(number, text, reason, detail)


def _lines(source: Source, notes: Counter[str], *, replace: bool) -> Iterator[Row]:
    for number, line in enumerate(split_lines(source, notes), start=1):
        yield _text_row(number, line.removesuffix(b"\r"), replace=replace)


def _whole(source: Source, notes: Counter[str], *, replace: bool) -> Iterator[Row]:
    raw = b"".join(source.chunks())
    yield _text_row(1, _without_mark(source, raw, notes), replace=replace)


def _separated(source: Source, separator: bytes, notes: Counter[str], *, replace: bool) -> Iterator[Row]:
    """Documents between separators; what follows the last one is a document if it is not empty."""
    buffer, searched, number = bytearray(), 0, 0
    first = True
    for chunk in source.chunks():
        buffer += chunk
        if first and len(buffer) >= 3:
            buffer, first = bytearray(_without_mark(source, bytes(buffer), notes)), False
        while (found := buffer.find(separator, searched)) >= 0:
            number += 1
            yield _text_row(number, bytes(buffer[:found]), replace=replace)
            del buffer[: found + len(separator)]
            searched = 0
        searched = max(0, len(buffer) - len(separator) + 1)
    if buffer:
        yield _text_row(number + 1, bytes(buffer), replace=replace)
