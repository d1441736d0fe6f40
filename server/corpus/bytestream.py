"""The bytes of a source file: plain, gzip or zstd, hashed as they are read, and never fewer than there are.

A compressed file is decoded frame by frame (member by member) and must end where a frame ends: one that is cut or
damaged is an error with file and offset. `zstandard.open` and `stream_reader` are not used, since they end quietly.
A zstd frame without a checksum can hide a flipped bit; the hash of the file in the manifest then tells.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Protocol

import zstandard
from headrace.native import Blake3
from headrace.proto.errors import DataLossError, HeadraceError, NotFoundError

CHUNK_BYTES = 1 << 18  # compressed input of this size is decoded at once, so it bounds memory
_WINDOW_BYTES = 1 << 31  # what `zstd --long=31` needs; the memory is taken only by files that ask for it


class SourceError(DataLossError):
    """A source file is damaged or holds what the policy refuses; the message names file and place."""


class _Frame(Protocol):
    eof: bool
    unused_data: bytes

    def decompress(self, data: bytes, /) -> bytes: ...


@dataclass(slots=True)
class Source:
    """A source file while it is read; `hash` and `size` are known at its end.

    Attributes:
        path: where it lies
        name: how the manifest and messages call it
    """

    path: Path
    name: str
    hash: str = ""
    size: int = 0

    def raw(self) -> Iterator[bytes]:
        """The file's bytes as they lie on disk."""
        hasher = Blake3()
        with self.open() as file:
            before = os.fstat(file.fileno())
            while chunk := file.read(CHUNK_BYTES):
                hasher.update(chunk)
                self.size += len(chunk)
                yield chunk
            after = os.fstat(file.fileno())
        if (before.st_size, before.st_mtime_ns) != (after.st_size, after.st_mtime_ns) or self.size != after.st_size:
            raise SourceError(f"`{self.name}` was changed while it was read; build again when its writer is done")
        self.hash = hasher.digest().hex()

    def stat(self) -> os.stat_result:
        with self.open() as file:
            return os.fstat(file.fileno())

    def open(self) -> BinaryIO:
        try:
            return self.path.open("rb")
        except FileNotFoundError:
            raise NotFoundError(f"source file `{self.name}` is gone; restore it or build without it") from None
        except OSError as error:
            raise HeadraceError(f"cannot read source file `{self.name}`: {error.strerror}") from None

    def chunks(self) -> Iterator[bytes]:
        """The file's bytes, decompressed by its suffix."""
        suffix = self.path.suffix
        if suffix == ".gz":
            return _frames(self, lambda: zlib.decompressobj(wbits=31), zlib.error, b"\0")
        if suffix == ".zst":
            decoder = zstandard.ZstdDecompressor(max_window_size=_WINDOW_BYTES)
            return _frames(self, decoder.decompressobj, zstandard.ZstdError, b"")
        return self.raw()


def hash_file(source: Source) -> tuple[str, int]:
    """BLAKE3 (hex) and size of a file."""
    for _ in source.raw():
        pass
    return source.hash, source.size


def _frames(source: Source, start: Callable[[], _Frame], failure: type[Exception], padding: bytes) -> Iterator[bytes]:
    """Decompresses frame after frame; `padding` may follow the last one (gzip allows zeros)."""
    frame, inside, frames = start(), False, 0
    for chunk in source.raw():
        while chunk:
            if not inside and frames and padding and not (chunk := chunk.lstrip(padding)):
                break
            offset = source.size - len(chunk)
            try:
                data = frame.decompress(chunk)
            except failure as error:
                raise SourceError(f"`{source.name}` is damaged near byte {offset}: {error}") from None
            inside = True
            if data:
                yield data
            if not frame.eof:
                break
            chunk, frame, inside, frames = frame.unused_data, start(), False, frames + 1
    if inside or not frames:
        raise SourceError(
            f"`{source.name}` is cut: it ends at byte {source.size} inside a compressed frame; restore the whole file"
        )
