"""What a newcomer reads when a server is away: cause, place and remedy, never gRPC's own text."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import grpc
import pytest
from headrace.client import Loader, Settings, Tls
from headrace.proto.errors import HeadraceError
from headrace.proto.transport import explained
from toy_server import ToyServer

AT_ONCE = Settings(open_timeout=0.2)


@contextmanager
def answering(reply: bytes) -> Iterator[str]:
    """Something that listens and is no Headrace server."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            while True:
                try:
                    near, _ = listener.accept()
                    with near:
                        near.recv(64)
                        near.sendall(reply)
                except OSError:
                    if listener.fileno() < 0:
                        return

        threading.Thread(target=serve, daemon=True).start()
        yield f"127.0.0.1:{listener.getsockname()[1]}"


def said(address: str, tls: Tls | None = None) -> str:
    with Loader(address, "toy", settings=AT_ONCE, tls=tls) as loader, pytest.raises(HeadraceError) as caught:
        next(loader)
    assert address in str(caught.value)
    assert "open run `toy`" in str(caught.value)
    return str(caught.value)


def test_nothing_listens() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # and does not listen
        text = said(f"127.0.0.1:{taken.getsockname()[1]}")
    assert "nothing listens there" in text
    assert "headrace serve" in text
    assert "failed to connect to all addresses" not in text


def test_a_name_that_nobody_knows() -> None:
    assert "host name is not known" in said("no-such-host.invalid:7750")


def test_another_kind_of_server() -> None:
    with answering(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n") as address:
        assert "not of `metrics`" in said(address)
    with answering(b"") as address:
        assert "closed by the other end" in said(address)


def test_tls_to_a_server_without() -> None:
    with ToyServer() as server:
        assert "does not speak TLS" in said(server.address, Tls())


def test_a_server_that_does_not_know_the_call() -> None:
    server = grpc.server(ThreadPoolExecutor(1))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        assert "older than this client" in said(f"127.0.0.1:{port}")
    finally:
        server.stop(0).wait()


@pytest.mark.parametrize(
    ("code", "details", "part"),
    [
        (grpc.StatusCode.UNAVAILABLE, "ipv4:10.0.0.1:1: No route to host", "does not answer"),
        (grpc.StatusCode.UNAVAILABLE, "CERTIFICATE_VERIFY_FAILED: self signed certificate", "not trusted"),
        (grpc.StatusCode.UNAVAILABLE, "ping timeout", "went silent"),
        (grpc.StatusCode.DEADLINE_EXCEEDED, "Deadline Exceeded", "no answer came in time"),
        (grpc.StatusCode.UNAVAILABLE, "the toy is away", "the toy is away"),
        (grpc.StatusCode.INTERNAL, "", "no details"),
    ],
)
def test_words_for_what_cannot_be_made_here(code: grpc.StatusCode, details: str, part: str) -> None:
    assert part in explained(code, details)
