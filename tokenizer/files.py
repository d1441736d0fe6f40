"""Files of the tokenizer: whole writes, and text read as a stream of bytes."""

from __future__ import annotations

import gzip
import importlib
import io
import os
import tempfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, cast

from headrace.proto.errors import ConfigError, UsageError

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer as Buffer

CHUNK = 8 << 20
_COMPRESSED = 1 << 18
_DAMAGE = (EOFError, OSError, zlib.error)
_LONGEST_WINDOW = 1 << 31


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
        file = cast("IO[bytes]", gzip.open(path) if path.suffix == ".gz" else path.open("rb"))  # noqa: SIM115
    except OSError as error:
        raise UsageError(f"cannot read `{path}`: {error.strerror}") from None
    if path.suffix == ".zst":
        return cast("IO[bytes]", io.BufferedReader(ZstdFrames(file), CHUNK))
    return file


class ZstdFrames(io.RawIOBase):
    """The content of all frames of a .zst file; unlike zstandard's own reader it raises EOFError on a frame cut off."""

    def __init__(self, file: IO[bytes]) -> None:
        zstandard = importlib.import_module("zstandard")
        self._file, self._error = file, zstandard.ZstdError
        self._new = zstandard.ZstdDecompressor(max_window_size=_LONGEST_WINDOW).decompressobj
        self._frame: Any = None
        self._ready = b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Buffer, /) -> int:
        view = memoryview(buffer)
        while not self._ready:
            compressed = self._frame.unused_data if self._frame and self._frame.eof else b""
            compressed = compressed or self._file.read(_COMPRESSED)
            if not compressed:
                if self._frame and not self._frame.eof:
                    raise EOFError("the last zstd frame is cut off")
                return 0
            self._decode(compressed)
        size = min(len(view), len(self._ready))
        view[:size], self._ready = self._ready[:size], self._ready[size:]
        return size

    def _decode(self, compressed: bytes) -> None:
        if self._frame is None or self._frame.eof:
            self._frame = self._new()
        try:
            self._ready = self._frame.decompress(compressed)
        except self._error as error:
            raise OSError(str(error)) from None

    def close(self) -> None:
        self._file.close()
        super().close()


def chunks(path: Path) -> Iterator[bytes]:
    """The bytes of a file, decompressed, in pieces of some megabytes."""
    try:
        with open_bytes(path) as file:
            while chunk := file.read(CHUNK):
                yield chunk
    except _DAMAGE as error:
        raise UsageError(f"`{path}` is damaged or cut off: {error}") from None


def byte_lines(path: Path) -> Iterator[bytes]:
    """The lines of a file, decompressed, with their line ends."""
    try:
        with open_bytes(path) as file:
            yield from file
    except _DAMAGE as error:
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
