"""The one validator that every change passes, inside the store's transaction and against the log as it is there."""

from __future__ import annotations

from pathlib import Path

from headrace.proto.v1 import control_pb2 as pb
from headrace.server.control.events import Check, Wish
from headrace.server.control.records import RunRecord
from headrace.server.plan.log import Event, GrowBody
from headrace.server.plan.validate import check_event
from headrace.server.service.loading import Opener
from headrace.server.service.view import View


def checker(view: View) -> Check:
    """Judges an event against the newest log; `view` gives spec and facts, which never change."""

    def check(run: RunRecord, before: tuple[Event, ...], event: Event) -> tuple[str, ...]:
        plan = view.plan if len(before) == len(view.events) else view.plan.with_events(before)
        return tuple(check_event(plan, run.seal, event))

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
