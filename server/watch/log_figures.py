"""The event log for people: what each event does, from which step, who made it and why."""

from __future__ import annotations

from collections.abc import Sequence

from headrace.server.plan.log import CancelBody, Event, GrowBody, MaskBody, WeightsBody, bodies
from headrace.server.plan.plan import Plan
from headrace.server.watch.values import EventFigures

MOST_CHANGES = 6
_SAME = 5e-5


def event_figures(
    plan: Plan, events: Sequence[Event], confirmed: int, most: int, before: int | None = None
) -> tuple[EventFigures, ...]:
    """The newest events first, at most so many, below sequence number `before`."""
    gone = {body.sequence for body in bodies(events, CancelBody)}
    wanted = [event for event in events if before is None or event.sequence < before][-most:]
    return tuple(_event(plan, event, event.sequence in gone, confirmed) for event in reversed(wanted))


def _event(plan: Plan, event: Event, cancelled: bool, confirmed: int) -> EventFigures:
    what, changes = _what(plan, event)
    return EventFigures(
        sequence=event.sequence,
        kind=event.kind,
        from_step=event.from_step,
        until_step=event.until_step,
        author=event.author,
        reason=event.reason,
        time_us=event.time_us,
        cancelled=cancelled,
        holds=not cancelled and event.from_step <= confirmed,
        what=what,
        changes=changes,
    )


def _what(plan: Plan, event: Event) -> tuple[str, tuple[tuple[str, float, float], ...]]:
    """What an event does, in words, and the weights that it changes most against the step before it."""
    body = event.body
    if isinstance(body, CancelBody):
        return f"takes back event {body.sequence}", ()
    if isinstance(body, GrowBody):
        return f"{body.domain} grows ({body.join.replace('_', ' ')}), generation {body.generation[:12]}", ()
    if isinstance(body, MaskBody):
        return f"takes down {len(body.values)} by {body.by}" + (f" in {body.domain}" if body.domain else ""), ()
    assert isinstance(body, WeightsBody)
    total = sum(body.weights.values())
    held = plan.weights(max(0, event.from_step - 1))
    moved = [(name, held.get(name, 0.0), weight / total) for name, weight in body.weights.items()]
    moved = [change for change in moved if abs(change[2] - change[1]) > _SAME]
    largest = sorted(moved, key=lambda change: -abs(change[2] - change[1]))
    if not moved:
        return "sets the weights that held before", ()
    return f"changes {len(moved)} of {len(body.weights)} weights", tuple(largest[:MOST_CHANGES])
