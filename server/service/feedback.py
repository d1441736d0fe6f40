"""FeedbackService: takes the losses that trainers measure, and hands them on.

A bad value is refused by itself, named and counted. Watchers get each step once, when it has settled: every rank has
taken a step that is `lead` below the confirmed one, since none can be further behind.
"""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Iterable
from itertools import groupby
from typing import Any

import grpc
from headrace.proto.v1 import feedback_pb2 as pb
from headrace.server.control.leases import token_of
from headrace.server.control.losses import DomainLoss
from headrace.server.control.records import LossReport
from headrace.server.service.metrics import Metrics
from headrace.server.service.registry import Registry
from headrace.server.service.view import View

Context = grpc.aio.ServicerContext[Any, Any]

_HEARTBEAT = 10.0
LARGEST_STEP = 1 << 53


class FeedbackService:
    """The servicer; see `proto/v1/feedback.proto`."""

    def __init__(self, registry: Registry, metrics: Metrics) -> None:
        self._registry = registry
        self._metrics = metrics

    async def ReportLosses(  # noqa: N802
        self, request: pb.ReportLossesRequest, context: Context
    ) -> pb.ReportLossesResponse:
        handle = await self._registry.by_id(request.run_id)
        reporter = await handle.judge(token_of(request.lease))
        if request.step >= handle.view.run.seal:
            await handle.refresh()
        good, refused = [], []
        for loss in request.losses:
            reason = bad_value(handle.view, request.step, loss)
            self._metrics.loss(handle.view.run.name, reason.partition(":")[0] or "accepted")
            if reason:
                refused.append(f"domain `{loss.domain}`: {reason}")
            else:
                good.append(_report(request, loss, reporter))
                self._metrics.losses.add(handle.view.run.name, loss.domain, request.step, loss.loss_sum, loss.tokens)
        if good:
            await handle.store_losses(good)
        return pb.ReportLossesResponse(accepted=len(good), refused=refused)

    async def WatchLosses(  # noqa: N802
        self, request: pb.WatchLossesRequest, context: Context
    ) -> AsyncIterator[pb.WatchLossesResponse]:
        handle = await self._registry.by_name(request.run)
        await handle.refresh()
        step = request.from_step
        to_step = request.to_step if request.HasField("to_step") else LARGEST_STEP
        while True:
            until = min(to_step, settled(handle.view)) if request.follow else to_step
            found = await handle.losses(step, until) if step < until else ()
            if found:
                step = found[-1].step + 1
                yield pb.WatchLossesResponse(steps=_steps(found), confirmed=handle.view.run.confirmed)
                continue
            if not request.follow or until == to_step or is_over(handle.view):
                return
            if not await handle.wait(lambda view: settled(view) > until, _HEARTBEAT):  # noqa: B023
                yield pb.WatchLossesResponse(confirmed=handle.view.run.confirmed)


def settled(view: View) -> int:
    """Steps below this one have been taken by every rank, and what was measured in them has been reported."""
    return view.run.confirmed if is_over(view) else max(0, view.run.confirmed - view.run.lead)


def is_over(view: View) -> bool:
    """The last step is confirmed and every rank has closed, so that no report can follow."""
    return view.run.confirmed == view.plan.end and not view.labels


def _steps(found: Iterable[DomainLoss]) -> list[pb.StepLosses]:
    return [
        pb.StepLosses(step=step, losses=[_loss(loss) for loss in losses])
        for step, losses in groupby(found, key=lambda loss: loss.step)
    ]


def _loss(loss: DomainLoss) -> pb.DomainLoss:
    return pb.DomainLoss(domain=loss.domain, loss_sum=loss.loss_sum, tokens=loss.tokens, excess_sum=loss.excess_sum)


def bad_value(view: View, step: int, loss: pb.DomainLoss) -> str:
    """Why a value is refused, starting with a short reason and a colon; empty when it is good."""
    if step >= view.run.seal:
        return f"not sealed: step {step} was never served, the seal is {view.run.seal}"
    if loss.domain not in view.plan.domains:
        return f"unknown domain: the run has {', '.join(view.plan.domains[:20])}"
    if loss.tokens == 0:
        return "no tokens: a domain without tokens in the step has no loss, leave it out"
    if not math.isfinite(loss.loss_sum) or loss.loss_sum < 0:
        return f"not a loss: loss_sum {loss.loss_sum} must be finite and at least 0"
    if loss.HasField("excess_sum") and not (math.isfinite(loss.excess_sum) and loss.excess_sum >= 0):
        return f"not an excess: excess_sum {loss.excess_sum} must be finite and at least 0"
    return ""


def _report(request: pb.ReportLossesRequest, loss: pb.DomainLoss, reporter: str) -> LossReport:
    return LossReport(
        step=request.step,
        segment=request.segment,
        domain=loss.domain,
        reporter=reporter,
        loss_sum=loss.loss_sum,
        tokens=loss.tokens,
        excess_sum=loss.excess_sum if loss.HasField("excess_sum") else None,
    )
