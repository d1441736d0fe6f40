"""DataService: opens runs, serves rows, takes confirmations.

`GetBatch` never raises the seal and never depends on who asks. A request's own confirmation counts before the request
is judged. A step below the seal of the view at hand is served at once; anything else (above the seal, beyond the lead,
the end) is decided only after the store was asked, and a step that the seal is about to reach is waited for, a moment.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from typing import Any

import grpc
from headrace.native import __version__
from headrace.proto.errors import (
    ConflictError,
    DataLossError,
    ElsewhereError,
    LimitError,
    OutOfRangeError,
    UnavailableError,
    UsageError,
)
from headrace.proto.v1 import data_pb2 as pb
from headrace.server.control.leases import OpenLease, token_of
from headrace.server.service.ahead import Ahead
from headrace.server.service.auth import Scope, require
from headrace.server.service.handle import RunHandle
from headrace.server.service.logs import remedy_of, told
from headrace.server.service.metrics import Metrics
from headrace.server.service.opening import (
    check_state,
    check_world,
    note_of_beginning,
    note_of_double,
    open_answer,
)
from headrace.server.service.received import Received
from headrace.server.service.registry import Registry
from headrace.server.service.rows import Answer, StepRows, build_rows, encode_answer
from headrace.server.service.share import Share
from headrace.server.service.shares import Shares
from headrace.server.service.stream import Asked, stream_batches
from headrace.server.service.view import View

logger = logging.getLogger("headrace.server")
Context = grpc.aio.ServicerContext[Any, Any]

_WAIT_SECONDS = 2.0
LARGEST_STEP = 1 << 53


class DataService:
    """The servicer; see `proto/v1/data.proto` for what each call promises."""

    def __init__(self, registry: Registry, metrics: Metrics, *, shares: Shares, message_bytes: int) -> None:
        self._registry = registry
        self._metrics = metrics
        self._shares = shares
        self._message_bytes = message_bytes
        self._received = Received(metrics)

    async def OpenRun(self, request: pb.OpenRunRequest, context: Context) -> pb.OpenRunResponse:  # noqa: N802
        try:
            return await self._open(request)
        except ConflictError as error:
            who, job = request.job.holder or "-", request.job.id or "-"
            fields = told("refused", run=request.run, remedy=remedy_of(error), method="OpenRun", who=who)
            logger.warning("run %s: OpenRun by job %s (%s) was refused: %s", request.run, job, who, error, extra=fields)
            raise

    async def _open(self, request: pb.OpenRunRequest) -> pb.OpenRunResponse:
        handle = await self._registry.by_name(request.run)
        next_step = request.state.next_step if request.HasField("state") else 0
        if request.HasField("state"):
            if next_step > handle.view.run.seal:
                await handle.refresh()
            check_state(handle.view, request.state)
        check_world(handle.view, max(1, request.job.world), next_step)
        secret, notes = "", tuple[str, ...]()
        if request.mode == pb.OPEN_MODE_TRAIN:
            require(Scope.REPORT, "training")
            handle.expect(next_step)
            secret, notes = await _take_lease(handle, request, next_step)
            await handle.wait(lambda view: view.run.seal > next_step or view.run.seal == view.plan.end, 0.5)
        elif request.mode != pb.OPEN_MODE_OBSERVE:
            raise UsageError("mode is not set; open a run to train (OPEN_MODE_TRAIN) or to observe (OPEN_MODE_OBSERVE)")
        _log_open(handle, request, next_step)
        return open_answer(
            handle.view,
            lease=secret,
            next_step=next_step,
            message_bytes=self._message_bytes,
            server_version=__version__,
            notes=notes,
        )

    async def GetBatch(self, request: pb.GetBatchRequest, context: Context) -> bytes:  # noqa: N802
        handle = await self._registry.by_id(request.run_id)
        token = token_of(request.lease) if request.lease else b""
        await self._hear(handle, token, request.confirmation if request.HasField("confirmation") else None)
        note = _note(handle, token)
        return b"".join((note, *await self._answer(handle, request, context)))

    async def StreamBatches(  # noqa: N802
        self, requests: AsyncIterator[pb.StreamBatchesRequest], context: Context
    ) -> AsyncIterator[bytes]:
        opened = Opened(share=Share(str(context.peer())))

        async def hear(request: pb.StreamBatchesRequest) -> None:
            if request.run_id:
                opened.name(await self._registry.by_id(request.run_id))
                opened.token = token_of(request.lease) if request.lease else b""
            said = request.confirmation if request.HasField("confirmation") else None
            await self._hear(opened.run, opened.token, said)
            if request.share_bytes:
                opened.share.run = opened.run.view.run.name
                asked.say(self._shares.offer(opened.share, request.share_bytes))

        async def answer(wanted: pb.RowRange) -> Answer:
            if opened.token:  # it may have been fenced since it was asked for
                await opened.run.judge(opened.token)
            return (_note(opened.run, opened.token), *await self._answer(opened.run, wanted, context, opened))

        def ready(wanted: pb.RowRange) -> int | None:
            return self._ready(opened, wanted)

        asked = opened.asked = Asked(requests, hear)
        try:
            async for made in stream_batches(asked, answer, ready, most_bytes=self._message_bytes):
                yield made
        finally:
            self._shares.end(opened.share)

    def _ready(self, opened: Opened, wanted: pb.RowRange) -> int | None:
        """Bytes of ids that a message has to carry for a range, if it can be answered with no waiting; else None."""
        handle = opened.run
        view = handle.view
        if wanted.step >= view.run.seal or (opened.token and opened.token not in view.labels):
            return None
        size = opened.ahead.size(wanted)
        if size is None:
            size = handle.built.size(wanted.step, wanted.rows)
        return 0 if size is not None and wanted.share_at and opened.share.made else size

    async def _answer(
        self,
        handle: RunHandle,
        request: pb.GetBatchRequest | pb.RowRange,
        context: Context,
        opened: Opened | None = None,
    ) -> Answer:
        """The rows of a range, or the end: the same bytes whatever the call, but for ids that go to the `share`."""
        started = time.perf_counter()
        view = handle.view
        if request.step >= view.run.seal:
            view = await _sealed(handle, request.step, context)
            if request.step >= view.run.seal:
                return _end(view)
        built = opened.ahead.take(request) if opened is not None else None
        if built is None:
            if view.run.kind != "eval" and request.step >= view.run.confirmed:
                handle.expect(request.step)  # all ranks come for it, and a new server has built none
            await handle.expected(request.step)
            built = handle.built.rows(request.step, request.first_slot, request.rows)
        if built is None or len(built.ids) > self._message_bytes:
            self._check_size(view, request)
            try:
                built = built or await self._build(handle, view, request, opened)
            except DataLossError as error:
                handle.count_failure(error)
                raise
        self._received.sent(view.run.id, built)
        shared = opened.share.write(built.ids, request.share_at) if opened and isinstance(request, pb.RowRange) else 0
        answer = encode_answer(view, built, seal=view.run.seal, confirmed=handle.confirmed, shared=shared > 0)
        size = sum(map(len, answer)) + shared
        self._metrics.served(view.run.name, size, time.perf_counter() - started, shared)
        return answer

    async def Confirm(self, request: pb.ConfirmRequest, context: Context) -> pb.ConfirmResponse:  # noqa: N802
        handle = await self._registry.by_id(request.run_id)
        if not request.lease:
            raise ConflictError(_OBSERVERS)
        await self._hear(handle, token_of(request.lease), request.confirmation)
        return pb.ConfirmResponse(seal=handle.view.run.seal, confirmed=handle.confirmed)

    async def CloseRun(self, request: pb.CloseRunRequest, context: Context) -> pb.CloseRunResponse:  # noqa: N802
        handle = await self._registry.by_id(request.run_id)
        if request.lease:
            token = token_of(request.lease)
            await self._hear(handle, token, request.confirmation if request.HasField("confirmation") else None)
            await handle.close_rank(token)
        return pb.CloseRunResponse()

    async def _hear(self, handle: RunHandle, token: bytes, said: pb.Confirmation | None) -> None:
        """What the rank with this token says, or b"" an observer."""
        if not token:
            if said is not None:
                raise ConflictError(_OBSERVERS)
            return
        label = await handle.judge(token)
        if said is None:
            handle.touch(token)
            return
        await handle.hear(token, said.next_step)
        self._metrics.waited(handle.view.run.name, token, said.waited_us, said.stalls)
        if said.received:
            await self._received.compare(handle, label, said.received)

    def _check_size(self, view: View, request: pb.GetBatchRequest | pb.RowRange) -> None:
        row_bytes = _row_bytes(view, request.step)
        most = max(1, self._message_bytes // row_bytes)
        if request.rows > most:
            raise LimitError(
                f"{request.rows} rows of {row_bytes} bytes do not fit one message of {self._message_bytes} bytes; ask "
                f"for at most {most} rows a request (`max_rows` of OpenRun), or raise message_bytes in SERVER.toml"
            )

    async def _build(
        self, handle: RunHandle, view: View, request: pb.GetBatchRequest | pb.RowRange, opened: Opened | None
    ) -> StepRows:
        """On a thread, however small: nobody knows how slow a disk is, and all runs share loop and threads."""
        started = time.perf_counter()
        ahead, waiting = (opened.ahead, opened.buildable(view)) if opened else (Ahead(), ())
        chosen = ahead.choose(request, waiting, lambda step: _row_bytes(view, step))
        async with handle.reads:
            built = await asyncio.to_thread(ahead.build, chosen, lambda *one: build_rows(view.plan, view.library, *one))
        self._metrics.built((time.perf_counter() - started) / len(chosen))
        return built


@dataclass(kw_only=True, slots=True)
class Opened:
    """A stream: the run that it has named, the token of its lease, b"" for an observer, and what is held for it."""

    share: Share
    ahead: Ahead = field(default_factory=Ahead)
    asked: Asked | None = None
    handle: RunHandle | None = None
    token: bytes = b""

    def buildable(self, view: View) -> Iterator[pb.RowRange]:
        """Ranges that wait, up to one that is not sealed yet, is refused, or is kept built."""
        for wanted in self.asked.waiting() if self.asked is not None else ():
            one, plain = wanted.range, wanted.error is None and wanted.answer is None
            if not plain or one.step >= view.run.seal or self.run.built.size(one.step, one.rows) is not None:
                return
            yield one

    def name(self, handle: RunHandle) -> None:
        """Says what run it is about, for good: what waits, and what was built for it, is that run's."""
        if self.handle not in (None, handle):
            raise UsageError(
                f"a stream is about one run, and this one about `{self.run.view.run.name}`; open another stream for "
                f"`{handle.view.run.name}`"
            )
        self.handle = handle

    @property
    def run(self) -> RunHandle:
        """The run; raises UsageError when the stream has named none yet."""
        if self.handle is None:
            raise UsageError("the first message of a stream must name the run: set `run_id` from OpenRun")
        return self.handle


_OBSERVERS = "an observer never confirms a step; open the run with OPEN_MODE_TRAIN to train on it"


def _note(handle: RunHandle, token: bytes) -> bytes:
    """What a rank is to be warned of, to stand before any answer: protobuf takes what follows for the same message."""
    note = handle.notes.pop(token, "") if token else ""
    return pb.GetBatchResponse(note=note).SerializeToString() if note else b""


async def _take_lease(handle: RunHandle, request: pb.OpenRunRequest, next_step: int) -> tuple[str, tuple[str, ...]]:
    """The secret of the lease, and what the trainer should be warned of."""
    job = request.job
    world = max(1, job.world)
    if not job.id and world > 1:
        raise UsageError(
            f"world is {world} and the job has no id; all ranks must name one job (launchers set it, "
            f"else pass job= and attempt=)"
        )
    if any("\0" in word for word in (job.id, job.rank, job.holder)):
        raise UsageError("a job, a rank and a holder have names without a zero byte: no database keeps one")
    if handle.view.run.kind == "eval":
        raise ConflictError(f"run `{handle.view.run.name}` is of kind eval and is never confirmed; open it to observe")
    wish = OpenLease(
        job=job.id or f"single-{secrets.token_hex(4)}",
        attempt=job.attempt,
        label=job.rank or "0",
        world=world,
        holder=job.holder or "unnamed process",
        next_step=next_step,
        takeover=request.takeover,
        peers=max(1, job.peers),
    )
    confirmed = handle.confirmed
    granted = await handle.open_lease(wish)
    notes = [note_of_double(wish, granted.doubles)] if granted.doubles else []
    if (granted.first or granted.doubles) and confirmed and not request.HasField("state"):
        notes.append(note_of_beginning(handle.view, confirmed))
    for note in notes:
        logger.warning("run %s: %s", handle.view.run.name, note, extra=told("warned", run=handle.view.run.name))
    handle.notes.update((rank.token, note_of_double(wish, granted.doubles)) for rank in granted.doubles)
    return granted.secret, tuple(notes)


async def _sealed(handle: RunHandle, step: int, context: Context) -> View:
    """A view that has sealed the step, or whose end lies at or before it; raises for anything else."""
    if step > LARGEST_STEP:
        raise OutOfRangeError(f"step {step} is beyond 2^53, the largest step of any run")
    remaining = context.time_remaining()
    patience = min(_WAIT_SECONDS, _WAIT_SECONDS if remaining is None else remaining / 2)

    def answered(view: View) -> bool:
        return step < view.run.seal or view.run.seal == view.plan.end

    # What raises the seal asks the store besides.
    if not (handle.rises_past(step) and await handle.wait(answered, patience / 4)):
        await handle.refresh()
    view = handle.view
    if answered(view):
        return view
    if view.plan.known_until is not None and step >= view.plan.known_until:
        raise ElsewhereError(f"step {step} cannot be read here: {handle.missing or 'a generation is being opened'}")
    if step >= view.limit(handle.confirmed) and step >= handle.confirmed + view.run.lead:
        raise OutOfRangeError(
            f"step {step} is beyond what the lead of {view.run.lead} allows: {handle.confirmed} steps are confirmed "
            f"and {view.run.seal} are sealed; confirm the steps taken, or ask for step "
            f"{handle.confirmed + view.run.lead - 1} at most"
        )
    if await handle.wait(answered, patience):
        return handle.view
    raise _not_sealed(handle, step)


def _not_sealed(handle: RunHandle, step: int) -> Exception:
    if handle.data_error is not None:
        return handle.data_error
    if handle.store_error is not None:
        return UnavailableError(f"step {step} is not sealed and cannot be just now: {handle.store_error}")
    if not handle.view.labels:
        return UnavailableError(
            f"step {step} is not sealed (the seal is {handle.view.run.seal}) and no trainer holds the run; "
            f"the seal rises when one trains"
        )
    return UnavailableError(f"step {step} is above the seal {handle.view.run.seal} just now; ask again")


def _row_bytes(view: View, step: int) -> int:
    return (view.plan.shape(step).seq_len + 1) * view.library.base.id_bytes


def _end(view: View) -> Answer:
    end = pb.End(end_step=view.run.seal, reason=view.plan.end_reason)
    answer = pb.GetBatchResponse(end=end, seal=view.run.seal, confirmed=view.run.confirmed)
    return (answer.SerializeToString(),)


def _log_open(handle: RunHandle, request: pb.OpenRunRequest, next_step: int) -> None:
    trains = request.mode == pb.OPEN_MODE_TRAIN
    logger.info(
        "run %s: %s by job %s attempt %d rank %s of %d (%s) at step %d, client %s",
        handle.view.run.name,
        "opened" if trains else "looked at",
        request.job.id or "-",
        request.job.attempt,
        request.job.rank or "-",
        max(1, request.job.world),
        request.job.holder or "-",
        next_step,
        request.client_version or "unknown",
        extra=told(
            "opened" if trains else "observed",
            run=handle.view.run.name,
            step=next_step,
            job=request.job.id,
            attempt=request.job.attempt,
            rank=request.job.rank,
            world=max(1, request.job.world),
        ),
    )
