"""Files of the tokenizer: whole writes, and text read as a stream of bytes."""

from __future__ import annotations

import gzip
import importlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, cast

from headrace.proto.errors import ConfigError, UsageError

CHUNK = 8 << 20


def write_durably(path: Path, content: bytes) -> None:
    """Write a file so that a crash leaves the old one or the new one, never a part."""
    try:
        descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    except OSError as error:
        raise UsageError(f"cannot write `{path}`: {error.strerror}; choose a folder that exists") from None
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(name, 0o644)
        os.replace(name, path)
    except BaseException:
        os.unlink(name)
        raise


def open_bytes(path: Path) -> IO[bytes]:
    """Open a plain, .gz or .zst file for reading; UsageError names a path that cannot be read."""
    try:
        if path.is_dir():
            raise UsageError(f"`{path}` is a folder; name the files in it")
        file = path.open("rb")
    except OSError as error:
        raise UsageError(f"cannot read `{path}`: {error.strerror}") from None
    if path.suffix == ".gz":
        return cast("IO[bytes]", gzip.GzipFile(fileobj=file))
    if path.suffix == ".zst":
        zstandard = importlib.import_module("zstandard")
        return cast("IO[bytes]", zstandard.ZstdDecompressor().stream_reader(file, read_across_frames=True))
    return file


def chunks(path: Path) -> Iterator[bytes]:
    """The bytes of a file, decompressed, in pieces of some megabytes."""
    try:
        with open_bytes(path) as file:
            while chunk := file.read(CHUNK):
                yield chunk
    except (EOFError, OSError) as error:
        raise UsageError(f"`{path}` is damaged or cut off: {error}") from None


def read_lines(path: Path) -> list[str]:
    """The lines of a text file without their line ends (LF or CRLF); ConfigError says where it is no UTF-8."""
    content = b"".join(chunks(path))
    try:
        text = content.decode()
    except UnicodeDecodeError as error:
        raise not_utf8(path, error.start) from None
    lines = text.split("\n")
    if lines[-1] == "":
        lines.pop()
    return [line.removesuffix("\r") for line in lines]


def not_utf8(path: Path, offset: int) -> ConfigError:
    """The error for a text that is no UTF-8 from a byte on."""
    return ConfigError(f"`{path}` is no UTF-8 at byte {offset}; convert it first, for instance with iconv")
