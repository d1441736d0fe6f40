"""Cuts a run into spans: ranges of steps with one phase, one source of weights, and one set of generations.

The weights of a step come from the latest weights event, by sequence, whose range holds it, else from the phase's
schedule. A range ends at its own `until`, which may lie beyond the phase, else at the next phase. The number of spans
is bounded by phases, points and events, whatever the number of steps.
"""

from __future__ import annotations

import heapq
import itertools
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from headrace.server.plan.log import Event, WeightsBody
from headrace.server.plan.spec import Point, RunSpec


@dataclass(frozen=True, kw_only=True, slots=True)
class Source:
    """Where weights come from: an event, or the way from a point of a phase to the next one.

    `start` is the step of the point; `following` is None where its weights hold.
    """

    event: Event | None = None
    phase: int = -1
    start: int = 0
    point: Point | None = None
    following: Point | None = None

    @property
    def body(self) -> WeightsBody | None:
        """The body of the event, if it is one."""
        return self.event.body if self.event is not None and isinstance(self.event.body, WeightsBody) else None


@dataclass(frozen=True, kw_only=True, slots=True)
class Span:
    """Steps [first, end) of one phase with one source of weights.

    `segment` counts the sources up to here, `grown` how many of the plan's `grow` events hold.
    """

    first: int
    end: int
    phase: int
    segment: int
    grown: int
    source: Source


@dataclass(frozen=True, kw_only=True)
class Timeline:
    """The spans of a run, in order and without gaps from step 0 to `steps`. `grows` are by (from step, sequence)."""

    spans: tuple[Span, ...]
    grows: tuple[Event, ...]

    @cached_property
    def firsts(self) -> list[int]:
        return [span.first for span in self.spans]

    @property
    def steps(self) -> int:
        return self.spans[-1].end

    def at(self, step: int) -> Span:
        """The span that holds a step below `steps`."""
        return self.spans[bisect_right(self.firsts, step) - 1]


@dataclass(frozen=True, kw_only=True, slots=True)
class Range:
    """Steps [first, end) for which a weights event holds; of two ranges, that of higher `rank` counts."""

    first: int
    end: int
    rank: int
    event: Event


def phase_starts(spec: RunSpec) -> list[int]:
    """First step of each phase, and the step after the last one."""
    return list(itertools.accumulate((phase.steps for phase in spec.phases), initial=0))


def make_timeline(spec: RunSpec, events: Sequence[Event]) -> Timeline:
    """The timeline of a spec under live events; of two events the later in `events` is the later one."""
    starts = phase_starts(spec)
    ranges = [weight_range(event, starts, rank) for rank, event in enumerate(events) if event.kind == "weights"]
    grows = sorted((event for event in events if event.kind == "grow"), key=lambda event: event.from_step)
    cuts = {*starts, *(event.from_step for event in grows)}
    for start, phase in zip(starts, spec.phases, strict=False):
        cuts.update(start + point.at for point in phase.points)
    for held in ranges:
        cuts.update((held.first, held.end))
    edges = sorted(cut for cut in cuts if cut <= starts[-1])
    sources = _sources(spec, starts, edges, ranges)
    return Timeline(spans=tuple(_spans(starts, edges, sources, grows)), grows=tuple(grows))


def weight_range(event: Event, starts: Sequence[int], rank: int = 0) -> Range:
    """The range of a weights event."""
    end = event.until_step
    if end is None:
        following = bisect_right(starts, event.from_step)
        end = starts[following] if following < len(starts) else event.from_step + 1
    return Range(first=event.from_step, end=end, rank=rank, event=event)


def _sources(spec: RunSpec, starts: Sequence[int], edges: Sequence[int], ranges: Sequence[Range]) -> Iterator[Source]:
    """The source of weights from each edge on."""
    waiting = sorted(ranges, key=lambda held: held.first, reverse=True)
    holding: list[tuple[int, Range]] = []  # by -rank, so that the latest is on top
    for first in edges[:-1]:
        while waiting and waiting[-1].first <= first:
            held = waiting.pop()
            heapq.heappush(holding, (-held.rank, held))
        while holding and holding[0][1].end <= first:
            heapq.heappop(holding)
        yield Source(event=holding[0][1].event) if holding else _scheduled(spec, starts, first)


def _scheduled(spec: RunSpec, starts: Sequence[int], step: int) -> Source:
    """The point of a phase's schedule that holds a step."""
    phase = bisect_right(starts, step) - 1
    points = spec.phases[phase].points
    place = bisect_right([point.at for point in points], step - starts[phase]) - 1
    point = points[place]
    following = points[place + 1] if point.curve != "hold" else None
    return Source(phase=phase, start=starts[phase] + point.at, point=point, following=following)


def _spans(
    starts: Sequence[int], edges: Sequence[int], sources: Iterator[Source], grows: Sequence[Event]
) -> Iterator[Span]:
    """Spans between edges; neighbours that differ in nothing become one."""
    joins = [event.from_step for event in grows]
    cut = (
        Span(
            first=first,
            end=end,
            phase=bisect_right(starts, first) - 1,
            segment=0,
            grown=bisect_right(joins, first),
            source=source,
        )
        for (first, end), source in zip(itertools.pairwise(edges), sources, strict=True)
    )
    return _numbered(cut)


def _numbered(spans: Iterable[Span], before: Span | None = None) -> Iterator[Span]:
    """Spans with the numbers of their segments, behind one that has its own; neighbours that differ in nothing, one."""
    waiting = before
    for span in spans:
        if waiting is None:
            waiting = span
            continue
        if waiting.source != span.source:
            yield waiting
            waiting = replace(span, segment=waiting.segment + 1)
        elif (waiting.phase, waiting.grown) == (span.phase, span.grown):
            waiting = replace(waiting, end=span.end)
        else:
            yield waiting
            waiting = replace(span, segment=waiting.segment)
    if waiting is not None:
        yield waiting


def with_weights(timeline: Timeline, held: Range) -> Timeline:
    """The timeline with one weights event more, the latest of all. The work is that of the spans from its step on."""
    end = min(held.end, timeline.steps)
    if held.first >= end:
        return timeline
    place = max(0, bisect_right(timeline.firsts, held.first) - 2)  # the span before the one that is cut goes first
    source = Source(event=held.event)

    def cut() -> Iterator[Span]:
        for span in timeline.spans[place:]:
            low, high = max(span.first, held.first), min(span.end, end)
            if low >= high:
                yield span
                continue
            if span.first < low:
                yield replace(span, end=low)
            yield replace(span, first=low, end=high, source=source)
            if high < span.end:
                yield replace(span, first=high)

    following = cut()
    spans = tuple(_numbered(following, next(following)))
    return replace(timeline, spans=timeline.spans[:place] + spans)
