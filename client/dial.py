"""Makes a connection anew where packets were lost just now: another try every moment, the first that stands is taken.

A try whose first packet is lost is repeated by the kernel after 1 s, 3 s, ...; so with one try at a time a path that
heals may wait for a second more. Tries that are under way are kept, so a server far away is reached as well.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import grpc

_EVERY_SECONDS = 0.3
# A little more than one try may take (`grpc.min_reconnect_backoff_ms`): the oldest then knows why it failed.
_PATIENCE_SECONDS = 2.1

# Any answer to it says that somebody is there; asking for the state of a channel would need a thread for each.
_PROBE = "/grpc.health.v1.Health/Check"


def dial(make: Callable[[], grpc.Channel], *, given_up: Callable[[], bool]) -> grpc.Channel:
    """A channel that is connected, or one whose next call says why it cannot be."""
    tries: list[tuple[grpc.Channel, Any]] = []
    news = threading.Event()
    until = time.monotonic() + _PATIENCE_SECONDS
    chosen: grpc.Channel | None = None
    while chosen is None:
        channel = make()
        stub: Any = channel.unary_unary(_PROBE)
        probe = stub.future(b"", timeout=2 * _PATIENCE_SECONDS)
        probe.add_done_callback(lambda _: news.set())
        tries.append((channel, probe))
        news.wait(_EVERY_SECONDS)
        chosen = _settled(tries)
        if chosen is None and (given_up() or time.monotonic() >= until):
            chosen = tries[0][0]
    for channel, _ in tries:
        if channel is not chosen:
            channel.close()
    return chosen


def _settled(tries: list[tuple[grpc.Channel, Any]]) -> grpc.Channel | None:
    """One that was answered, else one that failed."""
    done = [(channel, probe.code() is not grpc.StatusCode.UNAVAILABLE) for channel, probe in tries if probe.done()]
    return next((channel for channel, answered in done if answered), done[0][0] if done else None)
