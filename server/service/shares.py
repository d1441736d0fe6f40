"""Gives clients on this host memory to share: `Shares` offers it, counts it, and hands its descriptor out.

A client that was offered memory over its stream comes for the descriptor to a Unix socket in the abstract namespace:
whoever reaches this server over loopback reaches that too, from another container as well, and the nonce of the offer
shows who comes. A client that only seems to be here (its connection was forwarded) never comes, and costs nothing.

What was given up: clients that reach the server over a network address of this very host, and systems without sealed
memory files; their ids come in messages.
"""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import socket
from collections.abc import Callable, Coroutine
from urllib.parse import unquote

from headrace.proto.errors import UsageError
from headrace.proto.v1 import data_pb2 as pb
from headrace.server.service.logs import tell, told
from headrace.server.service.rows import Answer
from headrace.server.service.share import NoMemoryError, Share

logger = logging.getLogger("headrace.server")

_NONCE_BYTES = 16
_PATIENCE_SECONDS = 2.0
_AT_ONCE = 64
_PAUSE_SECONDS = 1.0
_LOCAL = ("unix:", "ipv4:127.", "ipv6:[::1]", "ipv6:[::ffff:127.")


class Shares:
    """The memory that one server shares, at most `most_bytes`. `count` is told what became of each wish for it."""

    def __init__(self, most_bytes: int, count: Callable[[str], None]) -> None:
        self._name = f"headrace-{os.getpid()}-{secrets.token_hex(8)}"
        self._most_bytes = most_bytes
        self._count = count
        self._bytes = 0
        self._told = False
        self._expected: dict[bytes, Share] = {}
        self._socket: socket.socket | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    def listen(self) -> None:
        """Begins to give. Where it never does, every client is refused in words."""
        if not self._most_bytes:
            return
        try:
            self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
            self._socket.bind(f"\0{self._name}")
            self._socket.listen(socket.SOMAXCONN)
        except (OSError, AttributeError) as error:
            logger.warning("no memory is shared with clients on this host, for it gives no socket for that: %s", error)
            self._socket = None
            return
        self._start(self._accept(self._socket))

    async def close(self) -> None:
        """Stops giving; what was given stays with its streams."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._socket is not None:
            self._socket.close()

    def offer(self, share: Share, wanted: int) -> Answer:
        """What to tell a client that would like so many bytes."""
        if share.asked:
            raise UsageError("`share_bytes` is said in the first message of a stream only")
        share.asked = wanted
        if refused := self._why_not(share):
            said = pb.Share(refused=refused)
        else:
            share.nonce = secrets.token_bytes(_NONCE_BYTES)
            self._bytes += wanted
            self._expected[share.nonce] = share
            said = pb.Share(socket=self._name, nonce=share.nonce)
        return (pb.GetBatchResponse(share=said).SerializeToString(),)

    def _why_not(self, share: Share) -> str:
        if not unquote(share.peer).startswith(_LOCAL):
            return "the server is on another host"
        if self._socket is None:
            return "the server shares no memory (share_bytes in its SERVER.toml)"
        if share.asked <= self._most_bytes - self._bytes:
            return ""
        self._count("full")
        full = f"{self._bytes} bytes of memory are shared by now, {share.asked} more would be above {self._most_bytes}"
        if not self._told:
            self._told = True
            logger.warning("%s: some ids go through the socket; raise share_bytes in SERVER.toml", full)
        return full

    def end(self, share: Share) -> None:
        """The stream is over."""
        if share.nonce:
            self._bytes -= share.asked
            if self._expected.pop(share.nonce, None):
                self._count("left")
        share.close()

    def _start(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _accept(self, listening: socket.socket) -> None:
        """One visitor after another; each has a moment to show a nonce. While files are short they wait at the door."""
        places = asyncio.Semaphore(_AT_ONCE)
        while True:
            await places.acquire()
            try:
                visitor, _ = await asyncio.get_running_loop().sock_accept(listening)
            except OSError as error:
                _tell(logging.WARNING, None, f"who comes for shared memory has to wait: {error.strerror}")
                places.release()
                await asyncio.sleep(_PAUSE_SECONDS)
            else:
                self._start(self._receive(visitor, places))

    async def _receive(self, visitor: socket.socket, places: asyncio.Semaphore) -> None:
        share = None
        with visitor:
            try:
                async with asyncio.timeout(_PATIENCE_SECONDS):
                    nonce = await asyncio.get_running_loop().sock_recv(visitor, _NONCE_BYTES)
                    if share := self._expected.pop(nonce, None):
                        await self._give(visitor, share)
            except (OSError, TimeoutError) as error:
                what = f"who came for shared memory was not served: {error or 'it said nothing'}"
                _tell(logging.INFO, share, what)
            finally:
                places.release()

    async def _give(self, visitor: socket.socket, share: Share) -> None:
        try:
            file = await asyncio.to_thread(share.make)
        except NoMemoryError as error:
            self._count("failed")
            _tell(logging.WARNING, share, f"no memory is shared with a client on this host: {error}")
            visitor.send(str(error).encode())
            return
        try:
            socket.send_fds(visitor, [b"\0"], [file])
            self._count("given")
        finally:
            os.close(file)


def _tell(level: int, share: Share | None, what: str) -> None:
    """Names the run, where it is known by now whose client it is."""
    if share is None:
        logger.log(level, "%s", what, extra=told("share-failed"))
    else:
        tell(level, "share-failed", share.run, what)
