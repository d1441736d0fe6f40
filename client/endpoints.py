"""Channels to one or more servers, and one try of one call on the one in use.

Any replica answers any request, so a transport failure moves on to the next address, and so does a server that says
that it cannot and another may; an answer that says "try again" (a step above the seal) stays where it is. Ranks start
at different addresses. gRPC's own retries are off: ours know the cause and say it. The token is read from its file
again when the file changes, and never logged; certificates that were renewed are read when a connection has to be made
again.
"""

from __future__ import annotations

import importlib
import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import grpc
from headrace.client import fork
from headrace.client.dial import dial
from headrace.client.settings import MAX_MESSAGE_BYTES, Settings, Tls
from headrace.proto.errors import DeadlineError, ElsewhereError, HeadraceError, UnavailableError, UsageError, from_rpc
from headrace.proto.transport import NO_DETAILS, explained

log = logging.getLogger("headrace.client")

# Else the first channel imports it: 20 ms and more between making a loader and its first batch.
importlib.import_module("grpc._channel")

_SERVICE = "/headrace.v1.DataService/"
_LARGEST_PORT = 65_535
_SCHEMES = ("dns:", "ipv4:", "ipv6:", "unix:")
_LOOPBACK = ("127.", "localhost", "[::1]", "unix:", "ipv4:127.", "ipv6:[::1]")

_OPTIONS: tuple[tuple[str, Any], ...] = (
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.initial_reconnect_backoff_ms", 100),
    # How long a connection may take to come about: three round trips with TLS. Longer, and one whose first packet was
    # lost would stand in the way of the next try for longer.
    ("grpc.min_reconnect_backoff_ms", 2_000),
    ("grpc.max_reconnect_backoff_ms", 1_000),
    # The bound is that of ids; the edges of documents of one token each would take twice as much as ids of two bytes.
    ("grpc.max_receive_message_length", 4 * MAX_MESSAGE_BYTES),
    # Each frame of a message is an object of its own on the way to Python; measured: a tenth of the client's CPU time.
    ("grpc.http2.max_frame_size", 1 << 20),
    ("grpc.enable_retries", 0),
    # Two loaders of one process do not wait for each other on one connection.
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.service_config", '{"loadBalancingConfig": [{"round_robin": {}}]}'),
)


class Endpoints:
    """The servers of one loader. Thread-safe; bound to the process that makes it."""

    def __init__(
        self,
        addresses: Sequence[str],
        *,
        tls: Tls | None,
        token_file: Path | None,
        start: int,
        settings: Settings | None = None,
    ) -> None:
        self._addresses = list(addresses)
        check_addresses(self._addresses, tls=tls, token_file=token_file)
        self._tls = tls
        settings = settings or Settings()
        self._options = (
            *_OPTIONS,
            ("grpc.keepalive_time_ms", round(1e3 * settings.keepalive)),
            ("grpc.keepalive_timeout_ms", round(1e3 * settings.keepalive_timeout)),
        )
        self._token = Token(token_file) if token_file else None
        self._lock = threading.RLock()
        self._at = start % len(self._addresses)
        self._channels: dict[str, grpc.Channel] = {}
        self._lost: set[str] = set()  # addresses whose connection broke: to be dialled anew
        self._dialling = threading.Lock()
        self._streams: dict[Any, str] = {}  # calls under way, and why they were broken
        self._files: tuple[int, ...] = ()
        self._closed = False
        fork.register(self)

    @property
    def current(self) -> str:
        return self._addresses[self._at]

    def call(
        self, method: str, request: Any, *, timeout: float, doing: str, read: Callable[[bytes], Any] | None = None
    ) -> Any:
        """One try of a DataService method, or of any by its full path (`/package.Service/Method`).

        `read` parses the reply; without it the reply is raw bytes, and so is a request of bytes. Raises the
        HeadraceError that the status stands for.
        """
        metadata = self._token.metadata() if self._token else None
        address, channel = self.current, None
        self._dial_lost()
        try:
            with fork.gate():
                address, channel = self._use()
                path = method if method.startswith("/") else _SERVICE + method
                stub = channel.unary_unary(path, getattr(type(request), "SerializeToString", None), read)
                return stub(request, timeout=timeout, metadata=metadata)
        except grpc.RpcError as error:
            failure, moved = _judge(error, doing=doing, endpoint=address)
            if moved:
                self._drop(address, channel, error)
                self._move_on(address)
            raise failure from None
        except ValueError as error:  # the channel was closed under us
            raise UnavailableError(f"cannot {doing} from `{address}`: {error}") from None

    def stream(self, method: str, requests: Iterator[Any], *, doing: str) -> Iterator[bytes]:
        """One try of a DataService method that streams both ways: its answers as they come. Raises as `call` does, and
        NoStreamError where there is no such method."""
        metadata = self._token.metadata() if self._token else None
        address, channel, call = self.current, None, None
        self._dial_lost()
        try:
            with fork.gate():
                address, channel = self._use()
                stub: Any = channel.stream_stream(_SERVICE + method, lambda request: request.SerializeToString())
                call = stub(requests, metadata=metadata)
                with self._lock:
                    self._streams[call] = ""
                yield from call
        except grpc.RpcError as error:
            why = self._streams.get(call, "")
            if error.code() is grpc.StatusCode.UNIMPLEMENTED:
                raise NoStreamError(f"`{address}` has no {method}") from None
            failure, moved = _judge(error, doing=doing, endpoint=address)
            if moved or why:
                self._drop(address, channel, error, silent=bool(why))
                self._move_on(address)
            raise DeadlineError(f"cannot {doing} from `{address}`: {why}") if why else failure from None
        except ValueError as error:  # the channel was closed under us
            raise UnavailableError(f"cannot {doing} from `{address}`: {error}") from None
        finally:
            if call is not None:
                with self._lock:
                    self._streams.pop(call, None)
                call.cancel()

    def break_streams(self, why: str = "") -> None:
        """Ends every stream under way; whoever reads it is told why."""
        with self._lock:
            calls = list(self._streams)
            self._streams.update(dict.fromkeys(calls, why))
        for call in calls:
            call.cancel()

    def _use(self) -> tuple[str, grpc.Channel]:
        with self._lock:
            if self._closed:
                raise UnavailableError("the loader is closed")
            address = self.current
            if address not in self._channels:
                self._files = _changes(self._tls)
                self._channels[address] = open_channel(address, self._tls, self._options)
            return address, self._channels[address]

    def _drop(self, address: str, channel: grpc.Channel | None, error: grpc.RpcError, *, silent: bool = False) -> None:
        """Gives up the connection that a call has found broken, or silent; the next call dials."""
        call: Any = error
        details = call.details() or ""
        # What is known as a transport's words; a proxy may say UNAVAILABLE over a connection that stands.
        known = call.code() is grpc.StatusCode.UNAVAILABLE and explained(call.code(), details) not in (
            details,
            NO_DETAILS,
        )
        if not (silent or known):
            return
        with self._lock:
            if channel is None or self._channels.get(address) is not channel:
                return  # another call has done it
            del self._channels[address]
            self._lost.add(address)
        channel.close()

    def _dial_lost(self) -> None:
        """Connects anew, where the connection was lost."""
        if self.current not in self._lost:
            return
        with self._dialling:
            address = self.current
            if address not in self._lost or self._closed:
                return
            made = dial(lambda: self._open(address), given_up=lambda: self._closed)
            with self._lock:
                self._lost.discard(address)
                old, self._channels[address] = self._channels.get(address), made
            for channel in (old, made if self._closed else None):
                if channel is not None:
                    channel.close()

    def _open(self, address: str) -> grpc.Channel:
        with fork.gate():
            self._files = _changes(self._tls)
            return open_channel(address, self._tls, self._options)

    def _move_on(self, failed: str) -> None:
        with self._lock:
            if len(self._addresses) > 1 and self.current == failed:
                self._at = (self._at + 1) % len(self._addresses)
                log.info("moving from `%s` to `%s`", failed, self.current)
            renewed = bool(self._channels) and _changes(self._tls) != self._files
        if renewed:
            self.cancel()  # connect anew with the new certificates

    def close(self) -> None:
        self._closed = True
        self.cancel()

    def cancel(self) -> None:
        """Ends every call under way; later ones connect anew."""
        with self._lock:
            channels, self._channels = self._channels, {}
        for channel in channels.values():
            channel.close()


class NoStreamError(HeadraceError):
    """The server, or something before it, knows no such stream."""


class Token:
    """A bearer token in a file, read again when the file changes."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seen: tuple[int, str] | None = None

    def metadata(self) -> tuple[tuple[str, str], ...]:
        try:
            changed = self._path.stat().st_mtime_ns
            if self._seen is None or self._seen[0] != changed:
                self._seen = (changed, self._path.read_text(encoding="utf-8").strip())
        except OSError as error:
            raise UsageError(f"token file {self._path} cannot be read: {error.strerror}") from None
        return (("authorization", f"Bearer {self._seen[1]}"),)


def check_addresses(addresses: Sequence[str], *, tls: Tls | None, token_file: Path | None) -> None:
    """Refuses an empty list, odd addresses, and a token that would cross a network in the clear."""
    if not addresses:
        raise UsageError("endpoint: no address given; give host:port, or several")
    for address in addresses:
        if (
            not address
            or "://" in address.removeprefix("dns://").removeprefix("unix://")
            or any(map(str.isspace, address))
        ):
            raise UsageError(f"endpoint {address!r} is not an address; give host:port, e.g. 127.0.0.1:7750")
        if not address.startswith("unix:") and not _has_port(address):
            raise UsageError(
                f"endpoint {address!r} has no port from 0 to {_LARGEST_PORT}; give host:port, e.g. 127.0.0.1:7750"
            )
        if address.count(":") > 1 and not address.startswith(_SCHEMES) and "]:" not in address:
            raise UsageError(f"endpoint {address!r}: an IPv6 address stands in brackets, as in [::1]:7750")
        if token_file and not tls and not is_local(address):
            raise UsageError(f"endpoint {address!r}: a token is sent only over TLS or to this machine; give tls=")


def is_local(address: str) -> bool:
    """Whether it is named as one of this machine."""
    return address.startswith(_LOOPBACK)


def _has_port(address: str) -> bool:
    """Whether it ends in :PORT; gRPC would take 443 for one that does not."""
    port = address.rpartition(":")[2] if ":" in address else ""
    return port.isascii() and port.isdigit() and int(port) <= _LARGEST_PORT


def _changes(tls: Tls | None) -> tuple[int, ...]:
    """When each of the files was changed last; 0 for one that is not there just now."""
    files = [path for path in (tls.ca, tls.cert, tls.key) if path] if tls else []
    return tuple(path.stat().st_mtime_ns if path.exists() else 0 for path in files)


def open_channel(address: str, tls: Tls | None, options: tuple[tuple[str, Any], ...] = _OPTIONS) -> grpc.Channel:
    """A channel to one server. Raises UsageError naming a certificate file that cannot be read."""
    if tls is None:
        return grpc.insecure_channel(address, options=options)
    try:
        ca, key, cert = (path.read_bytes() if path else None for path in (tls.ca, tls.key, tls.cert))
    except OSError as error:
        raise UsageError(f"tls: {error.filename} cannot be read: {error.strerror}") from None
    credentials = grpc.ssl_channel_credentials(root_certificates=ca, private_key=key, certificate_chain=cert)
    return grpc.secure_channel(address, credentials, options=options)


def _judge(error: grpc.RpcError, *, doing: str, endpoint: str) -> tuple[HeadraceError, bool]:
    """The exception, and whether the transport failed rather than the server answered."""
    failure = from_rpc(error, doing=doing, endpoint=endpoint)
    call: Any = error
    answered = any(str(key) == "headrace-error" for key, _ in call.trailing_metadata() or ())
    if answered:
        return failure, isinstance(failure, ElsewhereError)
    details = call.details() or ""
    broken = call.code() is grpc.StatusCode.CANCELLED or "RST_STREAM" in details or "Stream removed" in details
    if broken or "oncurrent RPC limit" in details:
        return UnavailableError(str(failure)), True
    return failure, isinstance(failure, UnavailableError)
