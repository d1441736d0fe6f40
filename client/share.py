"""Memory that the server shares with a stream on one host: ids are read there and not from a message.

The server says in the stream where the memory is to be had; a thread goes there, so that rows need not wait, and maps
it for reading. From then on ranges are asked for with a place in it, each until its rows were copied out. Whatever
fails, ids come in messages as before, and the log says why, once.

What is read was sealed by the server: nobody can make it shorter, so reading it is safe whoever dies. The server may
still write while rows are read; the copy that a trainer is given is what the digests were checked on.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import mmap
import os
import socket
import threading

from headrace.client import fork
from headrace.client.ring import Ring
from headrace.client.wire import Bytes, read_share
from headrace.proto.v1 import data_pb2

log = logging.getLogger("headrace.client")

_FIRST_BYTE = 64
_PATIENCE_SECONDS = 5.0
_WORDS_BYTES = 4096
_told: set[str] = set()


class Share:
    """The memory of one stream; none of `room` bytes 0. Thread-safe."""

    def __init__(self, room: int) -> None:
        self._wanted = _FIRST_BYTE + -(-room // _FIRST_BYTE) * _FIRST_BYTE if room else 0
        self._awaited = bool(room)
        self._lock = threading.Lock()
        self._memory: mmap.mmap | None = None
        self._ring = Ring(_FIRST_BYTE, self._wanted)
        self._closed = False
        self.refused = ""

    def ask(self, request: data_pb2.StreamBatchesRequest) -> None:
        """Says in the first request of a stream what is wished for."""
        request.share_bytes = self._wanted

    def heard(self, data: Bytes) -> bool:
        """Whether an answer is the one that says where the memory is, or why there is none."""
        said = read_share(data) if self._awaited else None
        if said is None:
            return False
        self._awaited = False
        if said.refused:
            self._refuse(said.refused)
        else:
            threading.Thread(target=self._fetch, args=(said,), name="headrace-share", daemon=True).start()
        return True

    def _fetch(self, said: data_pb2.Share) -> None:
        with fork.gate():
            try:
                memory = fetch(said, self._wanted)
            except (OSError, ValueError) as error:
                self._refuse(str(error))
                return
            fork.mapped(memory)
            with self._lock:
                if not self._closed:
                    self._memory = memory

    def _refuse(self, why: str) -> None:
        self.refused = why
        if why not in _told:
            _told.add(why)
            log.info("ids come in messages and not through shared memory: %s", why)

    def take(self, size: int) -> int:
        """A place for the ids of a range, or 0: they are to come in the message."""
        with self._lock:
            return self._ring.take(size) if self._memory is not None else 0

    def view(self, at: int, size: int) -> memoryview | None:
        """What lies in a place that was taken. To be let go before `free`."""
        with self._lock:
            return memoryview(self._memory)[at : at + size] if at and self._memory is not None else None

    def free(self, at: int) -> None:
        """Gives a place back; those that were taken are given back in that order."""
        if at:
            with self._lock:
                self._ring.free()

    def close(self) -> None:
        """Unmaps the memory."""
        with self._lock:
            self._closed = True
            memory, self._memory = self._memory, None
        if memory is not None:
            with contextlib.suppress(BufferError):  # an error that is under way still looks at it: it goes with that
                memory.close()


def fetch(said: data_pb2.Share, size: int) -> mmap.mmap:
    """Goes for the memory and maps it for reading. Raises OSError or ValueError saying why that cannot be."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as server:
        server.settimeout(_PATIENCE_SECONDS)
        try:
            server.connect(f"\0{said.socket}")
        except OSError as error:
            raise ValueError(f"the server's socket for it cannot be reached from here: {error}") from None
        server.sendall(said.nonce)
        words, files, _, _ = socket.recv_fds(server, _WORDS_BYTES, 1)
    if not files:
        raise ValueError(words.decode(errors="replace") or "the server gave none")
    try:
        _check(files[0], size)
        return mmap.mmap(files[0], size, flags=mmap.MAP_SHARED | mmap.MAP_POPULATE, prot=mmap.PROT_READ)
    finally:
        for file in files:
            os.close(file)


def _check(file: int, size: int) -> None:
    """Memory that could become shorter would end this process when it is read."""
    if os.fstat(file).st_size < size or not fcntl.fcntl(file, fcntl.F_GET_SEALS) & fcntl.F_SEAL_SHRINK:
        raise ValueError(f"the server gave a file that is not sealed at {size} bytes")
