"""Cuts a run into spans: ranges of steps with one phase and one source of weights.

The weights of a step come from the latest weights event, by sequence, whose range holds it, else from the phase's
schedule. A range ends at its own `until`, which may lie beyond the phase, else at the next phase. The number of spans
is bounded by phases, points and events, whatever the number of steps.
"""

from __future__ import annotations

import heapq
import itertools
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from headrace.server.plan.log import Event, WeightsBody
from headrace.server.plan.spec import Phase, Point, RunSpec


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
    """Steps [first, end) of one phase with one source of weights; `segment` counts the sources up to here."""

    first: int
    end: int
    phase: int
    segment: int
    source: Source


@dataclass(frozen=True, kw_only=True)
class Timeline:
    """The spans of a run, in order and without gaps from step 0 to `steps`."""

    spec: RunSpec
    spans: tuple[Span, ...]

    @cached_property
    def firsts(self) -> list[int]:
        return [span.first for span in self.spans]

    @property
    def steps(self) -> int:
        return self.spans[-1].end

    def at(self, step: int) -> int:
        """Place of the span that holds a step below `steps`."""
        return bisect_right(self.firsts, step) - 1

    def phase(self, span: Span) -> Phase:
        return self.spec.phases[span.phase]


def phase_starts(spec: RunSpec) -> list[int]:
    """First step of each phase, and the step after the last one."""
    starts = [0]
    for phase in spec.phases:
        starts.append(starts[-1] + phase.steps)
    return starts


def make_timeline(spec: RunSpec, events: Sequence[Event]) -> Timeline:
    """The timeline of a spec under live events, which are ordered by (from step, sequence)."""
    starts = phase_starts(spec)
    ranges = [weight_range(event, starts) for event in events if isinstance(event.body, WeightsBody)]
    cuts = set(starts)
    for number, phase in enumerate(spec.phases):
        cuts.update(starts[number] + point.at for point in phase.points)
    for first, end, _ in ranges:
        cuts.update((first, end))
    edges = sorted(cut for cut in cuts if cut <= starts[-1])
    return Timeline(spec=spec, spans=tuple(_spans(spec, starts, edges, ranges)))


Range = tuple[int, int, Event]


def weight_range(event: Event, starts: Sequence[int]) -> Range:
    """Steps [first, end) for which a weights event holds."""
    if event.until_step is not None:
        return event.from_step, event.until_step, event
    following = bisect_right(starts, event.from_step)
    end = starts[following] if following < len(starts) else event.from_step + 1
    return event.from_step, end, event


def _spans(spec: RunSpec, starts: Sequence[int], edges: Sequence[int], ranges: Sequence[Range]) -> Iterator[Span]:
    """Spans between edges; neighbours of one source and phase become one."""
    waiting = sorted(ranges, key=lambda item: item[0], reverse=True)
    holding: list[tuple[int, int, Event]] = []  # (-sequence, end, event): the latest is on top
    open_span: Span | None = None
    for first, end in itertools.pairwise(edges):
        while waiting and waiting[-1][0] <= first:
            _, until, event = waiting.pop()
            heapq.heappush(holding, (-event.sequence, until, event))
        while holding and holding[0][1] <= first:
            heapq.heappop(holding)
        phase = bisect_right(starts, first) - 1
        source = Source(event=holding[0][2]) if holding else _scheduled(spec, starts[phase], phase, first)
        if open_span is not None and (open_span.phase, open_span.source) == (phase, source):
            open_span = _span(open_span.first, end, phase, open_span.segment, source)
            continue
        segment = 0
        if open_span is not None:
            segment = open_span.segment + (open_span.source != source)
            yield open_span
        open_span = _span(first, end, phase, segment, source)
    if open_span is not None:
        yield open_span


def _span(first: int, end: int, phase: int, segment: int, source: Source) -> Span:
    return Span(first=first, end=end, phase=phase, segment=segment, source=source)


def _scheduled(spec: RunSpec, start: int, phase: int, step: int) -> Source:
    """The point of the phase's schedule that holds a step."""
    points = spec.phases[phase].points
    place = bisect_right([point.at for point in points], step - start) - 1
    point = points[place]
    following = points[place + 1] if point.curve != "hold" else None
    return Source(phase=phase, start=start + point.at, point=point, following=following)
