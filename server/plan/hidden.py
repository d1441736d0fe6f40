"""Which scheduled events a change hides or brings back, over which steps: what the one who makes it is told.

Ranges of weights nest: the latest event counts wherever its range reaches, and what it covers holds again behind it. So
an event can lose its middle, its end or all of it; what is said here is read from the timelines before and after.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from headrace.server.plan.log import Event
from headrace.server.plan.timeline import Range, Timeline

MOST_NAMED = 8
"""Ranges of an event, or events, that are named one by one; of the rest the number is said."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Handover:
    """Steps [first, end) whose weights come from another event than before; None is the schedule of their phases."""

    first: int
    end: int
    before: Event | None
    after: Event | None


def handovers(before: Timeline, after: Timeline, held: Range) -> tuple[Handover, ...]:
    """What changes hands within the range of an event that was added, or taken away. Both end at the same step."""
    made: list[Handover] = []
    end = min(held.end, after.steps)
    edges = sorted({held.first, *_firsts(before, held.first, end), *_firsts(after, held.first, end)})
    for first, until in zip(edges, [*edges[1:], end], strict=True):
        old, new = before.at(first).source.event, after.at(first).source.event
        if old == new or first >= until:
            continue
        if made and (made[-1].end, made[-1].before, made[-1].after) == (first, old, new):
            first = made.pop().first
        made.append(Handover(first=first, end=until, before=old, after=new))
    return tuple(made)


def kept(timeline: Timeline, held: Range) -> tuple[tuple[int, int], ...]:
    """The steps [first, end) of its range for which an event gives the weights."""
    made: list[tuple[int, int]] = []
    for span in timeline.spans[bisect_right(timeline.firsts, held.first) - 1 :]:
        if span.first >= held.end:
            break
        if span.source.event == held.event:
            first = made.pop()[0] if made and made[-1][1] == span.first else span.first
            made.append((first, span.end))
    return tuple(made)


def in_words(steps: Sequence[tuple[int, int]]) -> str:
    """Ranges [first, end) as a person reads them: `steps 3 to 9 and step 12`."""
    named = [f"step {first}" if end == first + 1 else f"steps {first} to {end - 1}" for first, end in steps]
    more = [f"{len(named) - MOST_NAMED} ranges more"] if len(named) > MOST_NAMED else []
    named = named[:MOST_NAMED] + more
    return " and ".join(filter(None, (", ".join(named[:-1]), named[-1]))) if named else "no step"


def by_event(steps: Iterable[tuple[Event | None, int, int]]) -> dict[Event | None, list[tuple[int, int]]]:
    """Ranges of steps gathered by event, in the order in which events come first."""
    found: dict[Event | None, list[tuple[int, int]]] = {}
    for event, first, end in steps:
        found.setdefault(event, []).append((first, end))
    return found


def _firsts(timeline: Timeline, first: int, end: int) -> list[int]:
    """First steps of the spans that begin within [first, end)."""
    return [at for at in timeline.firsts[bisect_right(timeline.firsts, first - 1) :] if at < end]
