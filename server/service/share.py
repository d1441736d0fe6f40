"""Memory that one stream shares with its client: ids are written there and not into a message.

The memory is a file without a name, so nothing is left behind by a process that is killed. It is sealed: nobody can
make it shorter, so neither side can be hurt by touching what is gone, and nothing but the mapping made here can write.
"""

from __future__ import annotations

import fcntl
import mmap
import os

from headrace.proto.errors import UsageError

FIRST_BYTE = 64
# `fcntl` of Python 3.11 does not know it: from then on only mappings that are there can write.
_SEAL_FUTURE_WRITE = 0x10


class NoMemoryError(Exception):
    """There is no memory to share; says why."""


class Share:
    """The memory of one stream, if it has any. `asked` is how much its client would like; a `nonce`: it may have it.

    `run` is the name of the run that the stream is about.
    """

    def __init__(self, peer: str) -> None:
        self.peer = peer
        self.run = ""
        self.asked = 0
        self.nonce = b""
        self._memory: mmap.mmap | None = None
        self._closed = False

    def make(self) -> int:
        """Makes the memory and gives a descriptor of it, to be closed. Raises NoMemoryError. Takes milliseconds."""
        try:
            file = os.memfd_create("headrace", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        except (OSError, AttributeError) as error:
            raise NoMemoryError(f"this system makes no memory file: {error}") from None
        try:
            os.posix_fallocate(file, 0, self.asked)
            memory = mmap.mmap(file, self.asked)
            seals = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | _SEAL_FUTURE_WRITE | fcntl.F_SEAL_SEAL
            fcntl.fcntl(file, fcntl.F_ADD_SEALS, seals)
        except (OSError, ValueError, OverflowError) as error:
            os.close(file)
            raise NoMemoryError(f"{self.asked} bytes of memory are not to be had: {error}") from None
        self._memory = memory
        if self._closed:  # the stream has ended meanwhile
            self.close()
        return file

    def write(self, ids: bytes | memoryview, at: int) -> int:
        """Puts the ids of a range where its client wants them, and says how many bytes those were: none at 0.

        Raises UsageError when that is not in the memory.
        """
        if not at:
            return 0
        if self._memory is None:
            raise UsageError(f"share_at is {at}, and this stream shares no memory; take what `share` offers first")
        if not FIRST_BYTE <= at <= self.asked - len(ids):
            raise UsageError(
                f"share_at is {at}, and these {len(ids)} bytes of ids must lie within bytes {FIRST_BYTE} to "
                f"{self.asked} of the shared memory"
            )
        self._memory[at : at + len(ids)] = ids
        return len(ids)

    @property
    def made(self) -> bool:
        """Whether the client has come for it."""
        return self._memory is not None

    def close(self) -> None:
        """Gives the memory back, as far as this side is concerned."""
        self._closed = True
        memory, self._memory = self._memory, None
        if memory is not None:
            memory.close()
