"""ControlService: makes runs, changes what is not sealed yet, shows log and steps.

Every change goes through one validator and one transaction, whoever asks. A refused change is counted and logged, and
changes nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import replace
from typing import Any

import grpc
from headrace.proto.errors import BusyError, HeadraceError, UnavailableError
from headrace.proto.v1 import control_pb2 as pb
from headrace.server.control.events import Wish
from headrace.server.control.failpoints import reach
from headrace.server.control.records import Appended, RunRecord
from headrace.server.control.runs import Made
from headrace.server.plan.log import GrowBody
from headrace.server.service.audit import Audit
from headrace.server.service.auth import current
from headrace.server.service.branching import branch_notes, new_branch
from headrace.server.service.changes import checker
from headrace.server.service.convert import (
    event_messages,
    event_response,
    forecast,
    record_info,
    refusal_message,
    run_info,
    watch_message,
)
from headrace.server.service.exchange import check_import, export_run, read_export
from headrace.server.service.explain import explain
from headrace.server.service.handle import RunHandle
from headrace.server.service.limiter import Limiter
from headrace.server.service.logs import remedy_of, told
from headrace.server.service.metrics import Metrics
from headrace.server.service.registry import Registry
from headrace.server.service.wishes import cancel_wish, grow_wish, mask_wish, weights_wish

_WATCH_SECONDS = 1.0
_EVENTS = ("SetWeights", "CancelEvent", "GrowDomain", "Mask")
_MOST_CHARACTERS = 1 << 16
logger = logging.getLogger("headrace.server")
Context = grpc.aio.ServicerContext[Any, Any]


class ControlService:
    """The servicer; see `proto/v1/control.proto` for what each call promises."""

    def __init__(self, registry: Registry, metrics: Metrics, audit: Audit, limiter: Limiter) -> None:
        self._registry = registry
        self._metrics = metrics
        self._audit = audit
        self._limiter = limiter

    async def CreateRun(self, request: pb.CreateRunRequest, context: Context) -> pb.CreateRunResponse:  # noqa: N802
        author = signed(request.author)
        await self._admit("CreateRun", "")
        with self._noting("CreateRun", "", request.author):
            run, created = await self._registry.create(
                request.spec_toml, place=request.place or "RUN.toml", base_dir=request.base_dir, author=author
            )
        return await self._made(run, created)

    async def ListRuns(self, request: pb.ListRunsRequest, context: Context) -> pb.ListRunsResponse:  # noqa: N802
        runs = await self._registry.store.call(lambda store: store.runs())
        refused = {name: str(error) for name, error in self._registry.refused.items()}
        return pb.ListRunsResponse(runs=[await self._info(run) for run in runs], refused=refused)

    async def _info(self, run: RunRecord) -> pb.RunInfo:
        """The run; without its weights when it cannot be opened here."""
        try:
            return run_info((await self._registry.by_name(run.name)).view)
        except HeadraceError as error:
            logger.warning("run %s cannot be opened: %s", run.name, error)
            return record_info(run)

    async def GetRun(self, request: pb.GetRunRequest, context: Context) -> pb.GetRunResponse:  # noqa: N802
        handle = await self._fresh(request.run)
        return pb.GetRunResponse(run=run_info(handle.view))

    async def SetWeights(self, request: pb.SetWeightsRequest, context: Context) -> pb.EventResponse:  # noqa: N802
        await self._admit("SetWeights", request.run)
        return await self._append("SetWeights", request, lambda: weights_wish(request))

    async def CancelEvent(self, request: pb.CancelEventRequest, context: Context) -> pb.EventResponse:  # noqa: N802
        await self._admit("CancelEvent", request.run)
        return await self._append("CancelEvent", request, lambda: cancel_wish(request))

    async def ListEvents(self, request: pb.ListEventsRequest, context: Context) -> pb.ListEventsResponse:  # noqa: N802
        handle = await self._fresh(request.run)
        run_id, keys = handle.view.run.id, dict[int, str]()
        with contextlib.suppress(HeadraceError):  # while the store is away the log is shown without them
            keys = await self._registry.store.call(lambda store: store.keys(run_id))
        messages = event_messages(handle.view.events, keys)
        return pb.ListEventsResponse(events=[event for event in messages if event.sequence > request.after_sequence])

    async def Explain(self, request: pb.ExplainRequest, context: Context) -> pb.ExplainResponse:  # noqa: N802
        handle = await self._fresh(request.run)
        return await asyncio.to_thread(
            explain, handle.view, request.step, min(request.text_characters, _MOST_CHARACTERS)
        )

    async def _fresh(self, name: str) -> RunHandle:
        """The run as the store has it now; as last seen when the store is away, which the log says."""
        handle = await self._registry.by_name(name)
        try:
            await handle.refresh()
        except HeadraceError as error:
            fields = told("shown-as-last-seen", run=name, remedy=remedy_of(error))
            logger.warning("run %s: shown as last seen: %s", name, error, extra=fields)
        return handle

    async def BranchRun(self, request: pb.BranchRunRequest, context: Context) -> pb.CreateRunResponse:  # noqa: N802
        author = signed(request.author)
        await self._admit("BranchRun", request.parent)
        handle = await self._registry.by_name(request.parent)
        with self._noting("BranchRun", request.parent, request.author):
            await handle.refresh()
            new = await asyncio.to_thread(new_branch, handle.view, request, author)
            if request.dry_run:
                info = pb.RunInfo(name=new.name, spec_json=new.spec_json, spec_digest=new.spec_digest, seal=new.seal)
                return pb.CreateRunResponse(run=info, notes=branch_notes(handle.view, request, new))
            run, created = await self._registry.store.call(lambda store: store.create_run(new))
        return await self._made(run, created, branch_notes(handle.view, request, new))

    async def GrowDomain(self, request: pb.GrowDomainRequest, context: Context) -> pb.EventResponse:  # noqa: N802
        await self._admit("GrowDomain", request.run)
        handle = await self._registry.by_name(request.run)
        with self._noting("GrowDomain", request.run, request.author):
            wish = await self._registry.store.call(lambda _: grow_wish(request, self._registry.opener, handle.view))
            assert isinstance(wish.body, GrowBody)
            await handle.open_generation(wish.body)
        return await self._append("GrowDomain", request, lambda: wish)

    async def Mask(self, request: pb.MaskRequest, context: Context) -> pb.EventResponse:  # noqa: N802
        await self._admit("Mask", request.run)
        handle = await self._registry.by_name(request.run)
        with self._noting("Mask", request.run, request.author):
            wish, notes = await asyncio.to_thread(mask_wish, request, handle.view)
        return await self._append("Mask", request, lambda: wish, notes)

    async def Forecast(self, request: pb.ForecastRequest, context: Context) -> pb.ForecastResponse:  # noqa: N802
        handle = await self._fresh(request.run)
        return await asyncio.to_thread(forecast, handle.view.plan)

    async def WatchRun(  # noqa: N802
        self, request: pb.WatchRunRequest, context: Context
    ) -> AsyncIterator[pb.WatchRunResponse]:
        handle = await self._fresh(request.run)
        sequence, seen = request.after_sequence, None
        while True:
            view = handle.view
            if view is not seen:
                yield watch_message(view, sequence)
                sequence, seen = max(sequence, view.run.sequence), view
            if view.run.kind == "eval" or view.run.confirmed == view.plan.end:
                return
            await asyncio.sleep(_WATCH_SECONDS)

    async def ExportRun(self, request: pb.ExportRunRequest, context: Context) -> pb.ExportRunResponse:  # noqa: N802
        handle = await self._fresh(request.run)
        return pb.ExportRunResponse(document=await asyncio.to_thread(export_run, handle.view))

    async def ImportRun(self, request: pb.ImportRunRequest, context: Context) -> pb.CreateRunResponse:  # noqa: N802
        await self._admit("ImportRun", "")
        with self._noting("ImportRun", ""):
            imported = read_export(request.document, place="the export", base_dir=request.base_dir)
            opener = self._registry.opener

            def check(run: RunRecord) -> Made:
                return check_import(opener.view_of(run, imported.events), imported, "the export")

            run = await self._registry.store.call(
                lambda store: store.import_run(imported, check, dry_run=request.dry_run)
            )
        if request.dry_run:
            return pb.CreateRunResponse(run=record_info(run))
        return await self._made(run, True)

    async def ListRefusals(  # noqa: N802
        self, request: pb.ListRefusalsRequest, context: Context
    ) -> pb.ListRefusalsResponse:
        found = await self._registry.store.call(lambda store: store.refusals(request.run))
        return pb.ListRefusalsResponse(refusals=[refusal_message(refusal) for refusal in found])

    async def _made(self, run: RunRecord, created: bool, notes: tuple[str, ...] = ()) -> pb.CreateRunResponse:
        handle = await self._registry.by_name(run.name)
        if created:
            digest, fields = run.spec_digest.hex()[:16], told("created", run=run.name, who=run.author)
            logger.info("run %s: created by %s, digest %s", run.name, run.author or "-", digest, extra=fields)
        return pb.CreateRunResponse(run=run_info(handle.view), created=created, notes=notes if created else ())

    async def _append(
        self, method: str, request: Any, make: Callable[[], Wish], notes: tuple[str, ...] = ()
    ) -> pb.EventResponse:
        handle = await self._registry.by_name(request.run)
        with self._noting(method, request.run, request.author):
            made = make()
            wish = replace(made, author=signed(made.author))
            appended = await handle.append(wish, checker(handle.view, notes))
        if not wish.dry_run and not appended.replayed:
            self._metrics.update(request.run, "accepted", appended.event.kind)
            _log_change(request.run, appended)
            reach("append-answered")
        return event_response(appended)

    async def _admit(self, method: str, run: str) -> None:
        """Holds a change against the limit, before anything is done for it."""
        try:
            await self._limiter.admit(run)
        except BusyError as error:
            if method in _EVENTS:
                self._metrics.update(run, "refused", type(error).__name__)
            raise

    @contextlib.contextmanager
    def _noting(self, method: str, run: str, author: str = "") -> Iterator[None]:
        """Counts, logs and notes a change that is refused."""
        try:
            yield
        except HeadraceError as error:
            if method in _EVENTS:
                self._metrics.update(run, "refused", type(error).__name__)
            who = current().name or author or "-"
            fields = told("refused", run=run, remedy=remedy_of(error), method=method, who=who)
            logger.warning("run %s: %s by %s was refused: %s", run or "-", method, who, error, extra=fields)
            if not isinstance(error, UnavailableError):
                self._audit.refused(run=run, who=who, method=method, reason=str(error))
            raise


def signed(author: str) -> str:
    """Who did it, for the audit log: the name that was proved, with the one that was given where they differ."""
    name = current().name
    return author if name in ("", author) else f"{author} ({name})" if author else name


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
        extra=told(
            "changed", run=name, step=event.from_step, sequence=event.sequence, kind=event.kind, who=event.author
        ),
    )
