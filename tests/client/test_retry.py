"""Pauses between tries: spread, so that ranks that lost one server do not come back at one moment, and bounded."""

from __future__ import annotations

import threading

import pytest
from headrace.client import ClosedError, Settings
from headrace.client.retry import keep_trying
from headrace.proto.errors import UnavailableError, UsageError

SETTINGS = Settings(backoff=0.05, backoff_max=1.0)


def pauses(tries: int) -> list[float]:
    """What one client waits while a server is away for so many tries."""
    seen: list[float] = []

    def attempt() -> str:
        if len(seen) < tries:
            raise UnavailableError("away")
        return "back"

    found = keep_trying(attempt, settings=SETTINGS, stop=threading.Event(), note=lambda error: None, wait=seen.append)
    assert found == "back"
    return seen


def test_pauses_grow_to_their_bound_and_no_two_clients_keep_step() -> None:
    clients = [pauses(12) for _ in range(200)]
    for number in range(12):
        bound = min(0.05 * 2**number, 1.0)
        waits = sorted(client[number] for client in clients)
        assert 0 <= waits[0] < 0.2 * bound
        assert 0.8 * bound < waits[-1] <= bound
        assert len(set(waits)) > 190


def test_what_is_not_worth_a_retry_is_raised_at_once_and_a_closed_loader_ends_it() -> None:
    calls: list[int] = []

    def wrong() -> None:
        calls.append(1)
        raise UsageError("no such run")

    stop = threading.Event()
    with pytest.raises(UsageError):
        keep_trying(wrong, settings=SETTINGS, stop=stop, note=lambda error: None)
    assert calls == [1]

    def away() -> None:
        stop.set()
        raise UnavailableError("away")

    with pytest.raises(ClosedError):
        keep_trying(away, settings=SETTINGS, stop=stop, note=lambda error: None)
