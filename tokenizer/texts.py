"""Texts of training: documents in memory or files, counted and hashed as they stream by.

A `.jsonl` file (plain, .gz, .zst) has one document a line in a named field, a `.parquet` file one a row in a named
column; any other file is one document, read as a stream. In `lines` mode, that of the reference implementation, each
line with its line end is a text of its own.
"""

from __future__ import annotations

import hashlib
import importlib
import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from headrace.native import PieceCounter
from headrace.proto.errors import ConfigError, UsageError
from headrace.tokenizer.files import byte_lines, chunks, not_utf8, read_lines

Text = str | Path
"""A document, or a file of documents."""

_BATCH = 4 << 20


def count_texts(
    counter: PieceCounter, column: int, texts: Iterable[Text], *, field: str, lines: bool, threads: int
) -> str:
    """Count the pieces of texts into a column; the SHA-256 of what was counted.

    The hash is over each document's length in bytes (8 bytes, little-endian) and its UTF-8; of a file that is one
    document, over its bytes and then their number.
    """
    digest = hashlib.sha256()
    if isinstance(texts, str | Path):
        raise UsageError(f"texts must be a list of documents or paths, not the single {texts!r:.60}")
    if lines:
        texts = _as_lines(texts)
    for batch in _batches(counter, column, texts, field=field, threads=threads, digest=digest):
        try:
            counter.add(column, batch, threads)
            _hash(digest, batch)
        except UnicodeEncodeError as error:
            raise UsageError(f"a training document is no Unicode text: {error}") from None
        except ValueError as error:
            raise UsageError(str(error)) from None
    return digest.hexdigest()


def _hash(digest: hashlib._Hash, documents: list[str]) -> None:
    for document in documents:
        content = document.encode()
        digest.update(len(content).to_bytes(8, "little"))
        digest.update(content)


def _batches(
    counter: PieceCounter, column: int, texts: Iterable[Text], *, field: str, threads: int, digest: hashlib._Hash
) -> Iterator[list[str]]:
    """Documents in batches of some megabytes; files of one document are counted on the way."""
    batch: list[str] = []
    size = 0
    for text in texts:
        if isinstance(text, Path) and not has_documents(text):
            if batch:  # in the order of the texts, for the hash
                yield batch
                batch, size = [], 0
            _count_stream(counter, column, text, threads, digest)
            continue
        for document in [text] if isinstance(text, str) else documents(text, field):
            batch.append(document)
            size += len(document)
            if size >= _BATCH:
                yield batch
                batch, size = [], 0
    yield batch


def _is_jsonl(path: Path) -> bool:
    return path.name.removesuffix(".gz").removesuffix(".zst").endswith((".jsonl", ".ndjson"))


def has_documents(path: Path) -> bool:
    """Whether a file holds documents, and not one document."""
    return _is_jsonl(path) or path.suffix == ".parquet"


def documents(path: Path, field: str) -> Iterator[str]:
    """The documents of a file that holds several."""
    return _jsonl(path, field) if _is_jsonl(path) else _parquet(path, field)


def _parquet(path: Path, field: str) -> Iterator[str]:
    """The column `field` of a Parquet file, row group by row group."""
    try:
        parquet = importlib.import_module("pyarrow.parquet")
    except ModuleNotFoundError:
        raise UsageError(
            f"`{path}` is a Parquet file, which needs pyarrow; install it with: pip install 'headrace[server]'"
        ) from None
    row = 0
    try:
        with parquet.ParquetFile(path) as file:
            if field not in file.schema_arrow.names:
                seen = ", ".join(file.schema_arrow.names)
                raise ConfigError(f"`{path}` has no column `{field}`; it has: {seen}")
            for batch in file.iter_batches(batch_size=1024, columns=[field]):
                for text in batch.column(0).to_pylist():
                    row += 1
                    if not isinstance(text, str):
                        raise ConfigError(f"`{path}` row {row} has no text in the column `{field}`")
                    yield text
    except (OSError, importlib.import_module("pyarrow").ArrowException) as error:
        raise UsageError(f"cannot read `{path}`: {error}") from None


def _count_stream(counter: PieceCounter, column: int, path: Path, threads: int, digest: hashlib._Hash) -> None:
    size = 0
    for chunk in chunks(path):
        _add_chunk(counter, column, path, chunk, threads)
        digest.update(chunk)
        size += len(chunk)
    _add_chunk(counter, column, path, b"", threads)
    digest.update(size.to_bytes(8, "little"))


def _add_chunk(counter: PieceCounter, column: int, path: Path, chunk: bytes, threads: int) -> None:
    """Count the next bytes of a file; the empty chunk ends it."""
    try:
        broken = counter.add_chunk(column, chunk, not chunk, threads)
    except ValueError as error:
        raise UsageError(f"cannot count the pieces of `{path}`: {error}") from None
    if broken is not None:
        raise not_utf8(path, broken)


def _jsonl(path: Path, field: str) -> Iterator[str]:
    """The documents of a .jsonl file; ConfigError names the line that has none."""
    for number, line in enumerate(byte_lines(path), start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except ValueError as error:
            raise ConfigError(f"`{path}` line {number} is no JSON: {error}") from None
        if not isinstance(row, dict) or not isinstance(row.get(field), str):
            seen = ", ".join(row) if isinstance(row, dict) else type(row).__name__
            raise ConfigError(f"`{path}` line {number} has no text in the field `{field}`; it has: {seen}")
        yield row[field]


def _as_lines(texts: Iterable[Text]) -> Iterator[str]:
    for text in texts:
        if isinstance(text, str):
            yield from text.splitlines(keepends=True)
        else:
            yield from (line + "\n" for line in read_lines(text))


def development_lines(texts: Iterable[Text]) -> Sequence[str]:
    """The aligned lines of a development text: given lines as they are, files line by line."""
    if isinstance(texts, str | Path):
        raise UsageError(f"development text must be a list of lines or paths, not the single {texts!r:.60}")
    lines: list[str] = []
    for text in texts:
        lines.extend([text] if isinstance(text, str) else read_lines(text))
    return lines
