"""ControlService: makes runs, changes what is not sealed yet, shows log and steps.

Every change goes through one validator and one transaction, whoever asks. A refused change is counted and logged, and
changes nothing.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

import grpc
from headrace.proto.errors import HeadraceError
from headrace.proto.v1 import control_pb2 as pb
from headrace.server.control.events import Wish
from headrace.server.control.records import Appended
from headrace.server.service.changes import checker
from headrace.server.service.convert import cancel_wish, event_messages, event_response, run_info, weights_wish
from headrace.server.service.explain import explain
from headrace.server.service.handle import RunHandle
from headrace.server.service.metrics import Metrics
from headrace.server.service.registry import Registry

logger = logging.getLogger("headrace.server")
Context = grpc.aio.ServicerContext[Any, Any]


class ControlService:
    """The servicer; see `proto/v1/control.proto` for what each call promises."""

    def __init__(self, registry: Registry, metrics: Metrics) -> None:
        self._registry = registry
        self._metrics = metrics

    async def CreateRun(self, request: pb.CreateRunRequest, context: Context) -> pb.CreateRunResponse:  # noqa: N802
        run, created = await self._registry.create(
            request.spec_toml, place="RUN.toml", base_dir=request.base_dir, author=request.author
        )
        handle = await self._registry.by_name(run.name)
        if created:
            logger.info("run %s: created by %s, digest %s", run.name, request.author or "-", run.spec_digest.hex()[:16])
        return pb.CreateRunResponse(run=run_info(handle.view), created=created)

    async def ListRuns(self, request: pb.ListRunsRequest, context: Context) -> pb.ListRunsResponse:  # noqa: N802
        names = [run.name for run in await self._registry.store.call(lambda store: store.runs())]
        handles = [await self._registry.by_name(name) for name in names]
        return pb.ListRunsResponse(runs=[run_info(handle.view) for handle in handles])

    async def GetRun(self, request: pb.GetRunRequest, context: Context) -> pb.GetRunResponse:  # noqa: N802
        handle = await self._fresh(request.run)
        return pb.GetRunResponse(run=run_info(handle.view))

    async def SetWeights(self, request: pb.SetWeightsRequest, context: Context) -> pb.EventResponse:  # noqa: N802
        return await self._append(request.run, request.author, lambda: weights_wish(request))

    async def CancelEvent(self, request: pb.CancelEventRequest, context: Context) -> pb.EventResponse:  # noqa: N802
        return await self._append(request.run, request.author, lambda: cancel_wish(request))

    async def ListEvents(self, request: pb.ListEventsRequest, context: Context) -> pb.ListEventsResponse:  # noqa: N802
        handle = await self._fresh(request.run)
        messages = event_messages(handle.view.events)
        return pb.ListEventsResponse(events=[event for event in messages if event.sequence > request.after_sequence])

    async def Explain(self, request: pb.ExplainRequest, context: Context) -> pb.ExplainResponse:  # noqa: N802
        handle = await self._fresh(request.run)
        return await asyncio.to_thread(explain, handle.view, handle.corpus, request.step)

    async def _fresh(self, name: str) -> RunHandle:
        """The run as the store has it now; as last seen when the store is away, which the log says."""
        handle = await self._registry.by_name(name)
        try:
            await handle.refresh()
        except HeadraceError as error:
            logger.warning("run %s: shown as last seen: %s", name, error)
        return handle

    async def _append(self, name: str, author: str, make: Callable[[], Wish]) -> pb.EventResponse:
        handle = await self._registry.by_name(name)
        try:
            wish = make()
            appended = await handle.append(wish, checker(handle.view))
        except HeadraceError as error:
            self._metrics.update(name, "refused", type(error).__name__)
            logger.warning("run %s: a change by %s was refused: %s", name, author or "-", error)
            raise
        if not wish.dry_run and not appended.replayed:
            self._metrics.update(name, "accepted", appended.event.kind)
            _log_change(name, appended)
        return event_response(appended)


def _log_change(name: str, appended: Appended) -> None:
    event = appended.event
    logger.info(
        "run %s: event %d (%s) by %s holds from step %d, %d steps after the confirmed one: %s",
        name,
        event.sequence,
        event.kind,
        event.author or "-",
        event.from_step,
        event.from_step - appended.confirmed,
        event.reason or "no reason given",
    )
