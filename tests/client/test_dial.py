"""Connecting anew: a try that hears nothing is overtaken by the next, and one that is refused is not waited for."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator

import grpc
import pytest
from headrace.client.dial import dial
from ports import free_port
from toy_server import Toy, ToyServer


@pytest.fixture
def silent() -> Iterator[str]:
    """Where a connection comes about and nothing is ever said."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield f"127.0.0.1:{listener.getsockname()[1]}"


def test_a_try_that_hears_nothing_is_overtaken(silent: str) -> None:
    with ToyServer(Toy()) as server:
        addresses = iter([silent, server.address, server.address, server.address])
        begun = time.monotonic()
        channel = dial(lambda: grpc.insecure_channel(next(addresses)), given_up=lambda: False)
        took = time.monotonic() - begun
        grpc.channel_ready_future(channel).result(timeout=5)
        channel.close()
    assert 0.2 < took < 1.5


def test_one_that_is_refused_is_not_waited_for() -> None:
    begun = time.monotonic()
    channel = dial(lambda: grpc.insecure_channel(f"127.0.0.1:{free_port()}"), given_up=lambda: False)
    assert time.monotonic() - begun < 1.5
    with pytest.raises(grpc.RpcError, match="refused"):
        channel.unary_unary("/headrace.v1.DataService/OpenRun")(b"", timeout=5)
    channel.close()


def test_it_ends_when_the_loader_is_closed(silent: str) -> None:
    begun = time.monotonic()
    dial(lambda: grpc.insecure_channel(silent), given_up=lambda: True).close()
    assert time.monotonic() - begun < 1.5
