"""The one validator that every change passes, inside the store's transaction and against the log as it is there."""

from __future__ import annotations

from headrace.server.control.events import Check
from headrace.server.control.records import RunRecord
from headrace.server.plan.log import Event
from headrace.server.plan.validate import check_event
from headrace.server.service.view import View


def checker(view: View) -> Check:
    """Judges an event against the newest log; `view` gives spec and facts, which never change."""

    def check(run: RunRecord, before: tuple[Event, ...], event: Event) -> tuple[str, ...]:
        plan = view.plan if len(before) == len(view.events) else view.plan.with_events(before)
        return tuple(check_event(plan, run.seal, event))

    return check
