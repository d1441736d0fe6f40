"""Sends what a trainer measured back to the server, without making the trainer wait for it.

Losses are sums and counts by domain, so results do not depend on ranks. A report is news, not state: one that the
server refuses or cannot take in time is logged and counted, and training goes on.
"""

from __future__ import annotations

import logging
import math
import queue
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass

from headrace.client.endpoints import Endpoints
from headrace.client.retry import ClosedError, keep_trying
from headrace.client.session import Opened
from headrace.client.settings import Settings
from headrace.proto.errors import HeadraceError, UsageError
from headrace.proto.v1 import feedback_pb2

log = logging.getLogger("headrace.client")

_METHOD = "/headrace.v1.FeedbackService/ReportLosses"
_WAITING = 64
_TRY_SECONDS = 60.0


@dataclass(frozen=True, kw_only=True, slots=True)
class DomainLoss:
    """One domain's part of a step: sum of losses over its unmasked tokens (nats), their number, and with a reference
    model the sum of max(loss - reference loss, 0) by token."""

    loss_sum: float
    tokens: int
    excess_sum: float | None = None

    def __post_init__(self) -> None:
        if self.tokens < 1:
            raise UsageError(f"a domain without tokens has no loss: tokens is {self.tokens}; leave the domain out")
        for value in (self.loss_sum, self.excess_sum):
            if value is not None and not math.isfinite(value):
                raise UsageError(f"a loss must be finite, not {value}; skip the report of a step that overflowed")


class Reporter:
    """A thread that sends reports one after another. At most 64 wait; the oldest gives way."""

    def __init__(self, endpoints: Endpoints, opened: Opened, *, settings: Settings) -> None:
        self._endpoints = endpoints
        self._opened = opened
        self._settings = settings
        self._waiting: queue.Queue[feedback_pb2.ReportLossesRequest | None] = queue.Queue(_WAITING)
        self._stop = threading.Event()
        self.sent = self.lost = self.refused = 0
        self._thread = threading.Thread(target=self._work, name="headrace-report", daemon=True)
        self._thread.start()

    def report(self, step: int, segment: int, losses: Mapping[str, DomainLoss]) -> None:
        """Queues a report; never waits."""
        request = feedback_pb2.ReportLossesRequest(
            run_id=self._opened.run_id, lease=self._opened.lease, step=step, segment=segment
        )
        for domain in sorted(losses):
            loss = losses[domain]
            request.losses.add(domain=domain, loss_sum=loss.loss_sum, tokens=loss.tokens, excess_sum=loss.excess_sum)
        while True:
            try:
                return self._waiting.put_nowait(request)
            except queue.Full:
                self._drop()

    def _drop(self) -> None:
        try:
            oldest = self._waiting.get_nowait()
        except queue.Empty:
            return
        self.lost += 1
        log.warning("losses of step %s were not sent: reports come faster than the server takes them", _step(oldest))

    def _work(self) -> None:
        while (request := self._waiting.get()) is not None:
            try:
                answer = keep_trying(
                    lambda: self._send(request),
                    settings=self._settings,
                    stop=self._stop,
                    note=lambda error: None,
                    until=time.monotonic() + _TRY_SECONDS,
                )
            except ClosedError:
                return
            except HeadraceError as error:
                self.lost += 1
                log.warning("%s", error)
                continue
            self.sent += 1
            self.refused += len(answer.refused)
            for message in answer.refused:
                log.warning("losses of step %d: %s", request.step, message)

    def _send(self, request: feedback_pb2.ReportLossesRequest) -> feedback_pb2.ReportLossesResponse:
        answer: feedback_pb2.ReportLossesResponse = self._endpoints.call(
            _METHOD,
            request,
            timeout=self._settings.call_timeout,
            doing=f"report the losses of step {request.step}",
            read=feedback_pb2.ReportLossesResponse.FromString,
        )
        return answer

    def close(self, seconds: float) -> None:
        """Sends what waits, for at most `seconds`."""
        try:
            self._waiting.put_nowait(None)
        except queue.Full:
            self._drop()
            self._waiting.put_nowait(None)
        self._thread.join(seconds)
        self._stop.set()


def _step(request: feedback_pb2.ReportLossesRequest | None) -> object:
    return request.step if request is not None else "?"
