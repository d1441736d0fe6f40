"""The one validator that every change passes, inside the store's transaction and against the log as it is there."""

from __future__ import annotations

from pathlib import Path

from headrace.proto.errors import ConflictError
from headrace.proto.v1 import control_pb2 as pb
from headrace.server.control.events import Check, Wish
from headrace.server.control.records import RunRecord
from headrace.server.corpus.masks import quarantined
from headrace.server.plan.log import Event, GrowBody, MaskBody
from headrace.server.plan.validate import check_event
from headrace.server.service.loading import Opener
from headrace.server.service.view import View


def checker(view: View, notes: tuple[str, ...] = ()) -> Check:
    """Judges an event against the newest log; `view` gives spec and facts, which never change. `notes` are added."""

    def check(run: RunRecord, before: tuple[Event, ...], event: Event) -> tuple[str, ...]:
        plan = view.plan if len(before) == len(view.events) else view.plan.with_events(before)
        return (*check_event(plan, run.seal, event), *notes)

    return check


def grow_wish(request: pb.GrowDomainRequest, opener: Opener, view: View) -> Wish:
    """The event that a GrowDomain asks for; the digest comes from the manifest, which is opened for it."""
    path = Path(opener.folders.get(view.run.name, view.run.base_dir)) / request.manifest
    body = GrowBody(
        domain=request.domain,
        generation=opener.corpora.open(path).digest.hex(),
        join=request.join or "next_pass",
        manifest=request.manifest,
    )
    return Wish(
        body=body,
        from_step=request.from_step if request.HasField("from_step") else None,
        author=request.author,
        reason=request.reason,
        expected_head=request.expected_head,
        key=request.idempotency_key,
        dry_run=request.dry_run,
    )


def mask_wish(request: pb.MaskRequest, view: View) -> tuple[Wish, tuple[str, ...]]:
    """The event that a Mask asks for, and what it takes down; NotFoundError when a value of it names nothing.

    Looks the documents up in the shards, which may take long: call it in a thread.
    """
    mask = request.mask
    body = MaskBody(by=mask.by, values=tuple(mask.values), domain=mask.domain)
    tokens = view.library.look_up(body, all_masks(view))
    taken = ", ".join(f"{name} {count:,}" for name, count in sorted(tokens.items()))
    wish = Wish(
        body=body,
        from_step=request.from_step if request.HasField("from_step") else None,
        author=request.author,
        reason=request.reason,
        expected_head=request.expected_head,
        key=request.idempotency_key,
        dry_run=request.dry_run,
    )
    return wish, (f"takes down {sum(tokens.values()):,} tokens: {taken or 'none'}",)


def all_masks(view: View) -> tuple[MaskBody, ...]:
    """Every mask of the run that is not cancelled, whenever it holds."""
    return tuple(event.body for event in view.plan.holding if isinstance(event.body, MaskBody))


def quarantine_wish(name: str, error: Exception) -> Wish:
    """The event that takes a damaged shard out of a run."""
    return Wish(body=MaskBody(by="shard", values=(name,)), author="server", reason=str(error)[:2000])


def quarantine_check(view: View, name: str) -> Check:
    """As `checker`; raises ConflictError when a live event has the shard in quarantine already."""
    judge = checker(view)

    def check(run: RunRecord, before: tuple[Event, ...], event: Event) -> tuple[str, ...]:
        plan = view.plan if len(before) == len(view.events) else view.plan.with_events(before)
        if name in quarantined(plan.masks(event.from_step)):
            raise ConflictError(f"`{name}` is in quarantine at step {event.from_step} already")
        return judge(run, before, event)

    return check
