"""The bytes of a source file: local or in an object store, plain, gzip or zstd, hashed as they are read.

A compressed file is decoded frame by frame (member by member) and must end where a frame ends: one that is cut or
damaged is an error with file and offset. `zstandard.open` and `stream_reader` are not used, since they end quietly.
A zstd frame without a checksum can hide a flipped bit; the hash of the file in the manifest then tells.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa
import pyarrow.fs as pafs
import zstandard
from headrace.native import Blake3
from headrace.proto.errors import ConfigError, DataLossError, HeadraceError, NotFoundError

CHUNK_BYTES = 1 << 20
_PACKED_BYTES = 1 << 18  # compressed input of this size is decoded at once, so it bounds memory
_WINDOW_BYTES = 1 << 31  # what `zstd --long=31` needs; the memory is taken only by files that ask for it


class SourceError(DataLossError):
    """A source file is damaged or holds what the policy refuses; the message names file and place."""


class _Frame(Protocol):
    @property
    def eof(self) -> bool: ...

    @property
    def unused_data(self) -> bytes: ...

    def decompress(self, data: bytes, /) -> bytes: ...


def is_remote(location: str) -> bool:
    """Whether a path is an address that `pyarrow.fs` resolves, such as `s3://bucket/key`."""
    return "://" in location


def filesystem(location: str) -> tuple[pafs.FileSystem, str]:
    """The file system of a path or address, and the path within it."""
    if not is_remote(location):
        return pafs.LocalFileSystem(), location
    try:
        return pafs.FileSystem.from_uri(location)
    except (pa.ArrowException, OSError) as error:
        raise ConfigError(f"cannot reach `{location}`: {error}") from None


@dataclass(slots=True)
class Source:
    """A source file while it is read; `hash` and `size` are known at its end.

    Attributes:
        location: path, or an address that `pyarrow.fs` resolves
        name: how the manifest and messages call it
    """

    location: str
    name: str
    hash: str = ""
    size: int = 0

    def stamp(self) -> tuple[int, int]:
        """Size and modification time in ns, as the file system tells them now."""
        system, path = filesystem(self.location)
        with self._errors():
            info = system.get_file_info(path)
        if info.type != pafs.FileType.File:
            raise NotFoundError(f"source file `{self.name}` is gone; restore it or build without it")
        return info.size or 0, info.mtime_ns or 0

    def raw(self, chunk_bytes: int = CHUNK_BYTES) -> Iterator[bytes]:
        """The file's bytes as they lie on disk."""
        system, path = filesystem(self.location)
        hasher = Blake3()
        before = self.stamp()
        self.size = 0
        with self._errors(), system.open_input_stream(path, compression=None) as file:
            while chunk := file.read(chunk_bytes):
                hasher.update(chunk)
                self.size += len(chunk)
                yield chunk
        if self.stamp() != before or self.size != before[0]:
            raise SourceError(f"`{self.name}` was changed while it was read; build again when its writer is done")
        self.hash = hasher.digest().hex()

    def file(self) -> pa.NativeFile:
        """The file for random access; its bytes are not hashed on the way."""
        system, path = filesystem(self.location)
        with self._errors():
            return system.open_input_file(path)

    def chunks(self) -> Iterator[bytes]:
        """The file's bytes, decompressed by its suffix."""
        path = self.location.partition("?")[0]
        if path.endswith(".gz"):
            return _frames(self, lambda: zlib.decompressobj(wbits=31), zlib.error, b"\0")
        if path.endswith(".zst"):
            decoder = zstandard.ZstdDecompressor(max_window_size=_WINDOW_BYTES)
            return _frames(self, lambda: decoder.decompressobj(), zstandard.ZstdError, b"")
        return self.raw()

    def _errors(self) -> _SourceErrors:
        return _SourceErrors(self.name)


class _SourceErrors:
    """Turns what the file system says against a source into one message that names it."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, FileNotFoundError):
            raise NotFoundError(f"source file `{self._name}` is gone; restore it or build without it") from None
        if isinstance(error, OSError | pa.ArrowException):
            raise HeadraceError(f"cannot read source file `{self._name}`: {error}") from None


def hash_file(source: Source) -> tuple[str, int]:
    """BLAKE3 (hex) and size of a file."""
    for _ in source.raw():
        pass
    return source.hash, source.size


def _frames(source: Source, start: Callable[[], _Frame], failure: type[Exception], padding: bytes) -> Iterator[bytes]:
    """Decompresses frame after frame; `padding` may follow the last one (gzip allows zeros)."""
    frame, inside, frames = start(), False, 0
    for chunk in source.raw(_PACKED_BYTES):
        while chunk:
            if not inside and frames and padding and not (chunk := chunk.lstrip(padding)):
                break
            offset = source.size - len(chunk)
            try:
                data = frame.decompress(chunk)
            except failure as error:
                raise SourceError(
                    f"`{source.name}` is damaged near byte {offset}: {error}; restore the whole file"
                ) from None
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
