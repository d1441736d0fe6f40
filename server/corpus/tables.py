"""Rows of Parquet and Arrow IPC files: only the columns that are needed, a few rows at a time.

Text may be utf8, large_utf8, string_view, their binary kin, or a dictionary of one of them; a dotted name goes into
structs. All are taken as bytes and decoded by the rules in `documents`, since Arrow itself does not check UTF-8. Any
other type is an error that names column and type. Page checksums are checked where the file has them. An Arrow stream
must end with its end mark, else it is cut.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from headrace.proto.errors import ConfigError
from headrace.server.corpus.bytestream import Source, SourceError
from headrace.server.corpus.documents import EMPTY, NULL, Row, Rows, decode
from headrace.server.corpus.spec import DomainSpec

# Rows are read about so many bytes at a time, by the size of the first of them, whatever the row group: few enough that
# documents of a megabyte stay small in memory, many enough that small ones are not read one by one.
_BYTES = 1 << 20
_FIRST_ROWS, _MOST_ROWS = 64, 1024
_STREAM_END = b"\xff\xff\xff\xff\0\0\0\0"
# A flipped bit may also make a column's name unreadable.
_DAMAGE = (pa.ArrowException, OSError, UnicodeDecodeError)
Path = tuple[str, ...]


def parquet_rows(source: Source, spec: DomainSpec) -> Iterator[Rows]:
    """Rows of a Parquet file; memory is a few pages, not a row group."""
    try:
        with pq.ParquetFile(
            source.file(), buffer_size=1 << 20, pre_buffer=False, page_checksum_verification=True
        ) as file:
            schema = file.schema_arrow
            paths = _paths(schema, spec, source.name)
            leaves = sorted({".".join(path) for path in paths})
            yield from _rows(_row_groups(file, leaves, paths[0]), paths, spec)
    except _DAMAGE as error:
        raise SourceError(f"`{source.name}` is damaged: {_first_line(error)}") from None


def _row_groups(file: pq.ParquetFile, leaves: list[str], text: Path) -> Iterator[pa.RecordBatch]:
    for group in range(file.num_row_groups):
        size = _FIRST_ROWS
        if file.metadata.row_group(group).num_rows > size:
            looked = file.iter_batches(batch_size=size, row_groups=[group], columns=leaves, use_threads=False)
            first = next(looked, None)
            size = _rows_at_once(_column(first, text)) if first is not None else size
        yield from file.iter_batches(batch_size=size, row_groups=[group], columns=leaves, use_threads=False)


def _rows_at_once(column: Any) -> int:
    """How many rows to read together when they are like these."""
    size = max(1, int(_plain(column).nbytes))
    return max(1, min(_MOST_ROWS, len(column) * _BYTES // size))


def arrow_rows(source: Source, spec: DomainSpec) -> Iterator[Rows]:
    """Rows of an Arrow IPC file or stream."""
    try:
        with source.file() as file:
            reader = _open_arrow(file, source)
            paths = _paths(reader.schema, spec, source.name)
            yield from _rows(_batches(reader, paths[0]), paths, spec)
    except _DAMAGE as error:
        raise SourceError(f"`{source.name}` is damaged: {_first_line(error)}") from None


def check_table(source: Source, kind: str, spec: DomainSpec) -> None:
    """Reads the schema alone: a file that is no whole table, or lacks a column, is told before work begins."""
    try:
        with source.file() as file:
            schema = pq.read_schema(file) if kind == "parquet" else _open_arrow(file, source).schema
    except _DAMAGE as error:
        raise SourceError(f"`{source.name}` is damaged: {_first_line(error)}") from None
    _paths(schema, spec, source.name)


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]


def _open_arrow(file: pa.NativeFile, source: Source) -> Any:
    start = file.read(6)
    file.seek(0)
    if start == b"ARROW1":
        return pa.ipc.open_file(file)
    size = file.size()
    file.seek(max(0, size - len(_STREAM_END)))
    if file.read() != _STREAM_END:
        raise SourceError(f"`{source.name}` is cut, or is no Arrow file: it has no end mark; restore the whole file")
    file.seek(0)
    return pa.ipc.open_stream(file)


def _batches(reader: Any, text: Path) -> Iterator[pa.RecordBatch]:
    whole = (
        (reader.get_batch(number) for number in range(reader.num_record_batches))
        if isinstance(reader, pa.RecordBatchFileReader)
        else reader
    )
    for batch in whole:
        size = _rows_at_once(_column(batch.slice(0, _FIRST_ROWS), text)) if batch.num_rows else 1
        for start in range(0, batch.num_rows, size):
            yield batch.slice(start, size)


def _paths(schema: pa.Schema, spec: DomainSpec, name: str) -> list[Path]:
    """Path of the text column, then of the other fields; each must exist, and the first must hold text."""
    found = [_resolve(schema, field, name) for field in (spec.text, *spec.fields)]
    kind = found[0][1]
    if not _is_text(kind):
        raise ConfigError(
            f"`{name}`: column `{spec.text}` is {kind}, not text; say in domain `{spec.name}` which column holds the "
            f'text (now text = "{spec.text}")'
        )
    return [path for path, _ in found]


def _resolve(schema: pa.Schema, field: str, name: str) -> tuple[Path, pa.DataType]:
    """The path of a column and its type: the name as it is written, else its parts through structs."""
    candidates = [(field,), tuple(field.split("."))]
    for path in candidates:
        fields: Sequence[pa.Field[Any]] = list(schema)
        kind: pa.DataType | None = None
        for part in path:
            match = [each for each in fields if each.name == part]
            kind = match[0].type if match else None
            fields = list(kind) if isinstance(kind, pa.StructType) else []
        if kind is not None:
            return path, kind
    seen = ", ".join(sorted(each.name for each in schema)) or "none"
    raise ConfigError(
        f"`{name}`: no column `{field}`; columns seen: {seen}; name one of them in CORPUS.toml, for the text as "
        f'text = "NAME"'
    )


def _is_text(kind: pa.DataType) -> bool:
    if isinstance(kind, pa.DictionaryType):
        return _is_text(kind.value_type)
    tests = (
        pa.types.is_string,
        pa.types.is_large_string,
        pa.types.is_string_view,
        pa.types.is_binary,
        pa.types.is_large_binary,
        pa.types.is_binary_view,
        pa.types.is_fixed_size_binary,
        pa.types.is_null,
    )
    return any(test(kind) for test in tests)


def _column(batch: pa.RecordBatch, path: Path) -> pa.Array[Any]:
    column = batch.column(path[0])
    for part in path[1:]:
        column = pc.struct_field(column, part)
    return column


def _checked(column: Any) -> Any:
    """The column, or an ArrowInvalid when its offsets or indices point outside its data."""
    column.validate(full=True)
    return column


def _raw(column: Any) -> Any:
    """A text column as binary of the same layout, so that checking it does not judge its UTF-8."""
    views = {pa.string(): pa.binary(), pa.large_string(): pa.large_binary()}
    return _checked(column.view(views[column.type]) if column.type in views else column)


def _plain(column: Any) -> Any:
    """A text column as large_binary, checked; a dictionary is unpacked."""
    if isinstance(column.type, pa.DictionaryType):
        values = _raw(column.dictionary)
        column = pa.DictionaryArray.from_arrays(column.indices, values).dictionary_decode()
    if pa.types.is_null(column.type):
        return pa.nulls(len(column), pa.large_binary())
    return _raw(column).cast(pa.large_binary())


def _parts(column: Any) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64], npt.NDArray[np.bool_] | None]:
    """Data, offsets (one more than there are values) and, if there are nulls, which values there are."""
    _, offsets, data = column.buffers()
    flat = np.frombuffer(data, np.uint8) if data is not None and data.size else np.zeros(0, np.uint8)
    count = len(column) + 1
    bounds = np.frombuffer(offsets, np.int64, count, 8 * column.offset) if offsets else np.zeros(count, np.int64)
    valid = column.is_valid().to_numpy(zero_copy_only=False) if column.null_count else None
    return flat, bounds, valid


def _rows(batches: Iterator[pa.RecordBatch], paths: list[Path], spec: DomainSpec) -> Iterator[Rows]:
    first = 1
    for batch in batches:
        yield _batch_rows(batch, first, paths, spec)
        first += batch.num_rows


def _batch_rows(batch: pa.RecordBatch, first: int, paths: list[Path], spec: DomainSpec) -> Rows:
    """Rows of a batch whose first row has the number `first`; those that are plain are taken without Python."""
    rows, at, count = Rows(), 0, batch.num_rows
    data, offsets, valid = _parts(_plain(_column(batch, paths[0])))
    others = [_checked(_column(batch, path)).to_pylist() for path in paths[1:]]
    fields = [dict(zip(spec.fields, values, strict=True)) for values in zip(*others, strict=True)]
    while at < count:
        begin = at
        _, at = rows.texts.take_column(data, offsets, valid, at, first)
        rows.fields += fields[begin:at]
        if at < count:
            raw = None if valid is not None and not valid[at] else data[offsets[at] : offsets[at + 1]].tobytes()
            found = fields[at] if fields else {}
            row = _row(first + at, raw, spec.text, found, replace=spec.on_bad == "replace")
            rows.add(row, with_fields=bool(fields))
            at += 1
    return rows


def _row(number: int, raw: bytes | None, name: str, fields: Mapping[str, Any], *, replace: bool) -> Row:
    if raw is None:
        return Row(number, None, NULL, f"column `{name}` is null", fields)
    if not raw:
        return Row(number, None, EMPTY, f"column `{name}` is empty", fields)
    text, reason, detail = decode(raw, replace=replace)
    return Row(number, text, reason, detail, fields)
