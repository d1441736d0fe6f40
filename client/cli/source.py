"""What the `run` and `weights` commands ask: a live server, or a control store with no server at all.

Both answer with the messages of `headrace.v1`, so that a command does not care which it has.
"""

from __future__ import annotations

import getpass
import os
from contextlib import AbstractContextManager
from typing import Protocol

from headrace.client.cli.common import Target
from headrace.proto.errors import UsageError
from headrace.proto.v1 import control_pb2 as pb


class Source(Protocol):
    """What a server and an offline store both answer."""

    def runs(self) -> pb.ListRunsResponse: ...
    def run(self, name: str) -> pb.RunInfo: ...
    def events(self, name: str) -> list[pb.Event]: ...
    def explain(self, name: str, step: int, text_characters: int = 0) -> pb.ExplainResponse: ...
    def digest(self, name: str, step: int) -> bytes: ...
    def create(self, request: pb.CreateRunRequest) -> pb.CreateRunResponse: ...
    def set_weights(self, request: pb.SetWeightsRequest) -> pb.EventResponse: ...
    def cancel(self, request: pb.CancelEventRequest) -> pb.EventResponse: ...
    def branch(self, request: pb.BranchRunRequest) -> pb.CreateRunResponse: ...
    def grow(self, request: pb.GrowDomainRequest) -> pb.EventResponse: ...
    def mask(self, request: pb.MaskRequest) -> pb.EventResponse: ...
    def forecast(self, name: str) -> pb.ForecastResponse: ...
    def export(self, name: str) -> str: ...
    def import_run(self, request: pb.ImportRunRequest) -> pb.CreateRunResponse: ...
    def refusals(self, name: str) -> list[pb.Refusal]: ...


def open_source(target: Target, *, write: bool = False) -> AbstractContextManager[Source]:
    """The server or store that the target names; UsageError when it names none."""
    target = target.required()
    if target.server:
        from headrace.client.cli.remote import Remote

        return Remote(target.server, tls=target.tls(), token_file=target.token_file)
    from headrace.client.cli.offline import Offline

    assert target.store is not None
    return Offline(target.store, write=write)


def author() -> str:
    """Who changes something, for the audit log."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return f"uid {os.getuid()}"


def step_range(text: str) -> range:
    """Steps of `A:B` (B excluded) or `N`; raises UsageError."""
    first, colon, last = text.partition(":")
    try:
        start = int(first)
        stop = int(last) if colon else start + 1
    except ValueError:
        raise UsageError(f"`{text}` is no range of steps; write A:B (B excluded) or one step") from None
    if not 0 <= start < stop:
        raise UsageError(f"`{text}` is no range of steps: it needs 0 <= A < B")
    return range(start, stop)


def log_head(text: str) -> bytes:
    """A log head that was given in hex, or nothing; raises UsageError."""
    try:
        head = bytes.fromhex(text)
    except ValueError:
        head = b"?"
    if len(head) not in (0, 32):
        raise UsageError(f"`{text}` is no log head; it has 64 hex digits (`headrace run list --json` shows it)")
    return head
