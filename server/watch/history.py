"""How a run has come to where it is: at most 500 points of it, whatever its length, each computed once.

A point holds what each domain was served up to a step, and what it was due: nominal tokens times target weights,
summed over the steps before. Differences of two points give the share realized between them beside the target that
held there, exactly also where weights have changed in between; only along a curve of a schedule the target is the mean
of a few places. Confirmed steps never change, so neither do points. A long run drops every second point as it grows;
points of a run that is long already are set at multiples of 1,000 steps, where the store keeps cursors.
"""

from __future__ import annotations

import itertools
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from headrace.server.plan.branched import BranchedPlan
from headrace.server.plan.plan import Plan
from headrace.server.plan.timeline import Span

MOST_POINTS = 500
_ANCHOR_EVERY = 1000
_PLACES_OF_A_CURVE = 8
_ROWS_OF_A_DOMAIN = 20

Numbers = npt.NDArray[np.float64]
Counts = npt.NDArray[np.int64]


@dataclass(frozen=True, kw_only=True, eq=False, slots=True)
class Point:
    """The start of `step`: plan tokens served, and tokens due, a number for each of `Plan.domains`."""

    step: int
    served: Counts
    due: Numbers

    def over(self, domains: int) -> Point:
        """The same with zeros for domains that joined later."""
        more = domains - len(self.served)
        if not more:
            return self
        return Point(step=self.step, served=np.pad(self.served, (0, more)), due=np.pad(self.due, (0, more)))


@dataclass(frozen=True, kw_only=True, eq=False, slots=True)
class Stretch:
    """Shares of the tokens of steps [first, last), realized and due, which sum to 1 each; zeros where nothing was."""

    first: int
    last: int
    share: Numbers
    target: Numbers
    tokens: Counts


class History:
    """Points of one run, by step. Not for several threads at once."""

    def __init__(self, most: int = MOST_POINTS) -> None:
        self._most = most
        self._stride = 0
        self._points: list[Point] = []
        self._plans: tuple[Plan, Plan] | None = None

    @property
    def points(self) -> tuple[Point, ...]:
        return tuple(self._points)

    def reach(self, plan: Plan, step: int) -> Point:
        """Adds the points up to a confirmed step; returns the one of that step, which is kept only if it is due."""
        plan = self._own(plan)
        if not self._points:
            self._stride = first_stride(step, self._most)
            self._points.append(origin(plan))
        while (following := self._points[-1].step + self._stride) <= step:
            self._points.append(after(plan, self._points[-1], following))
            if len(self._points) > self._most:
                self._points = self._points[::2]
                self._stride *= 2
        return after(plan, self._points[-1], step)

    def at(self, plan: Plan, step: int) -> Point:
        """The point of any step that was reached, from the nearest one before it."""
        held = [point for point in self._points if point.step <= step]
        return after(self._own(plan), held[-1], step)

    def _own(self, plan: Plan) -> Plan:
        """The same plan with cursors of its own: those that serving needs next stay at hand there."""
        if self._plans is None or self._plans[0] is not plan:
            self._plans = (plan, plan.with_events(plan.events))
        return self._plans[1]


def first_stride(steps: int, most: int = MOST_POINTS) -> int:
    """Steps between points of a run that has come this far."""
    wanted = max(1, -(-steps // max(1, most - 1)))
    unit = 1 if wanted <= _ANCHOR_EVERY // 4 else _ANCHOR_EVERY
    return int(unit << max(0, (-(-wanted // unit) - 1).bit_length()))


def origin(plan: Plan) -> Point:
    """The start of step 0."""
    none = len(plan.domains)
    return Point(step=0, served=np.zeros(none, dtype=np.int64), due=np.zeros(none))


def after(plan: Plan, point: Point, step: int) -> Point:
    """The point of a later step."""
    point = point.over(len(plan.domains))
    if step == point.step:
        return point
    served = plan.cursor(step).tokens.astype(np.int64)
    return Point(step=step, served=served, due=point.due + due_tokens(plan, point.step, step))


def stretch(before: Point, now: Point) -> Stretch:
    """What happened between two points."""
    before = before.over(len(now.served))
    tokens = now.served - before.served
    due = now.due - before.due
    return Stretch(
        first=before.step, last=now.step, share=_parts(tokens), target=_parts(due), tokens=tokens.astype(np.int64)
    )


def _parts(values: npt.NDArray[np.generic]) -> Numbers:
    numbers = values.astype(np.float64)
    total = numbers.sum()
    return numbers / total if total > 0 else np.zeros(len(numbers))


def due_tokens(plan: Plan, first: int, last: int) -> Numbers:
    """Nominal tokens of steps [first, last) times the target weights of each step, before caps; as `plan.domains`."""
    due = np.zeros(len(plan.domains))
    for begin, end, span in _spans(plan, first, last):
        for start, stop in _places(begin, end, span):
            shape = plan.shape(start)
            ends = [weight_vector(plan, start)]
            if span.source.following is not None:
                ends.append(weight_vector(plan, stop - 1))
            due += np.mean(ends, axis=0) * ((stop - start) * shape.batch * shape.seq_len)
    return due


def weight_vector(plan: Plan, step: int) -> Numbers:
    """Target weights of a step as an array, as `plan.domains`."""
    weights = plan.weights(step)
    return np.array([weights.get(name, 0.0) for name in plan.domains])


def _places(first: int, last: int, span: Span) -> Iterator[tuple[int, int]]:
    """A range of constant weights in one piece, one along a curve in a few."""
    pieces = 1 if span.source.following is None else min(_PLACES_OF_A_CURVE, last - first)
    edges = [first + (last - first) * place // pieces for place in range(pieces + 1)]
    return itertools.pairwise(edges)


def _spans(plan: Plan, first: int, last: int) -> Iterator[tuple[int, int, Span]]:
    """The parts of [first, last) that have one source of weights and one phase; below a branch those of its parent."""
    if isinstance(plan, BranchedPlan) and first < plan.first:
        yield from _spans(plan.parent, first, min(last, plan.first))
        first = plan.first
    while first < last:
        span = plan.span(first)
        yield first, min(span.end, last), span
        first = span.end


def columns(history: History, now: Point, plan: Plan, wanted: Sequence[str]) -> dict[str, Any]:
    """Series for plots: `steps` are the ends of stretches; for each domain share, target, both from the start, epochs.

    Where a stretch holds few rows, the share is that of the few before it too (`rows` says of how many rows at least):
    a batch cannot hold half a row. A number for each step, six digits each; `null` where nothing was served.
    """
    points = [point.over(len(now.served)) for point in history.points if point.step < now.step] + [now]
    served, due = np.stack([point.served for point in points]), np.stack([point.due for point in points])
    steps = [point.step for point in points[1:]]
    rows, lag = _smoothing(plan, points)
    smooth = served[1:] - served[np.maximum(np.arange(1, len(points)) - lag, 0)]
    chosen = {name: place for place, name in enumerate(plan.domains) if name in set(wanted)}
    sizes = _sizes(plan, tuple(chosen), steps)
    return {
        "steps": steps,
        "rows": rows,
        "domains": {
            name: {
                "share": _column(smooth, place),
                "target": _column(np.diff(due, axis=0), place),
                "share_so_far": _column(served[1:] - served[0], place),
                "target_so_far": _column(due[1:] - due[0], place),
                "epochs": [_short(value) for value in served[1:, place] / sizes[name]],
            }
            for name, place in chosen.items()
        },
    }


def _sizes(plan: Plan, names: Sequence[str], steps: Sequence[int]) -> dict[str, Numbers]:
    """Tokens that domains have at the starts of steps; they change only where a generation joins."""
    cuts = sorted({event.from_step for event in plan.timeline.grows} | {plan.first})
    held = [bisect_right(cuts, step) for step in steps]
    looks = {part: steps[place] for place, part in enumerate(held)}
    sizes = {name: {part: max(1, plan.size(name, step)) for part, step in looks.items()} for name in names}
    return {name: np.array([of[part] for part in held], dtype=np.float64) for name, of in sizes.items()}


def _smoothing(plan: Plan, points: Sequence[Point]) -> tuple[int, int]:
    """Rows that a share is of, and stretches that it is over: enough rows for each domain, but no tenth of the run."""
    if len(points) < 2:
        return 0, 1
    last = plan.shape(points[-1].step - 1)
    rows = last.batch * (points[-1].step - points[0].step) / (len(points) - 1)
    lag = min(-(-_ROWS_OF_A_DOMAIN * len(plan.domains) // max(1, int(rows))), max(1, len(points) // 10))
    return int(rows * lag), lag


def _column(tokens: npt.NDArray[Any], place: int) -> list[float | None]:
    """A domain's part of each row's tokens."""
    totals = tokens.sum(axis=1)
    return [_short(part / total) if total > 0 else None for part, total in zip(tokens[:, place], totals, strict=True)]


def _short(value: float) -> float:
    return float(f"{value:.6g}")
