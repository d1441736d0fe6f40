"""The one validator that every change passes, inside the store's transaction and against the log as it is there."""

from __future__ import annotations

from headrace.proto.errors import ConflictError
from headrace.server.control.events import Check, Wish
from headrace.server.control.records import RunRecord
from headrace.server.corpus.masks import quarantined
from headrace.server.plan.log import Event, MaskBody, bodies
from headrace.server.plan.validate import check_event
from headrace.server.service.view import View


def checker(view: View, notes: tuple[str, ...] = ()) -> Check:
    """Judges an event against the newest log; `view` gives spec and facts, which never change. `notes` are added."""

    def check(run: RunRecord, before: tuple[Event, ...], event: Event) -> tuple[str, ...]:
        plan = view.plan if len(before) == len(view.events) else view.plan.with_events(before)
        return (*check_event(plan, run.seal, event), *notes)

    return check


def all_masks(view: View) -> tuple[MaskBody, ...]:
    """Every mask of the run that is not cancelled, whenever it holds."""
    return tuple(bodies(view.plan.holding, MaskBody))


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
