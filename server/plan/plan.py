"""The plan of a run: what every step holds, as a pure function of spec, corpus facts and event log.

    draw(step)    domain, pass, index and window of each slot
    cursor(step)  where every domain stands at the start of the step
    hash(step)    what of the log has decided the steps below
    end           the step after the last one
    shape(step), weights(step), segment(step), ...   what needs no cursor: `headrace.server.plan.outline`

A step is answered in three moves: the nearest cursor at or before it, a walk from there by the kernel, and the deal of
the step's slots. So the work of any answer is bounded by the distance to the nearest anchor; stretches of constant
weights in the balanced draw cost a few hundred steps however long they are.

A plan never changes: `with_events` makes another one, which keeps every anchor below the first step that differs.
Branches are in `headrace.server.plan.branched`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy
from functools import cached_property

import numpy as np
import numpy.typing as npt
from headrace.server.plan import cursor as cursors
from headrace.server.plan.anchors import Anchors, damaged, from_text, to_text
from headrace.server.plan.answers import Draw, End, Past, Skipped
from headrace.server.plan.cursor import Cursor, Words
from headrace.server.plan.ending import may_end_before, why_ended
from headrace.server.plan.facts import CorpusFacts
from headrace.server.plan.hashes import Hashes, first_difference
from headrace.server.plan.log import Event
from headrace.server.plan.outline import LAST_PHASE, Outline
from headrace.server.plan.spec import RunSpec
from headrace.server.plan.timeline import Span, phase_starts, weight_range, with_weights

WALK, LEAP = 1 << 14, 1 << 22
"""Steps between the marks that a long walk leaves, where each step costs its time and where most are leapt over."""
MOST_ONE_BY_ONE = 16
"""More new events than these are planned anew together."""


class Plan(Outline):
    """See the module. `anchors` are (step, text of `anchor`) of the store; each must be of a sealed step.

    Raises UsageError when the spec does not fit the corpus.
    """

    def __init__(
        self,
        spec: RunSpec,
        facts: CorpusFacts,
        events: Sequence[Event] = (),
        anchors: Iterable[tuple[int, str]] = (),
        past: Past | None = None,
    ) -> None:
        super().__init__(spec, facts, events, past)
        self._hashes = Hashes(self.live, self.spec_digest, b"" if past is None else past.hash)
        self._start = cursors.empty(self.names) if past is None else past.cursor.over(self.names)
        self._anchors = Anchors(self._start, anchors)

    # ---- answers

    def draw(self, step: int) -> Draw:
        """The slots of a step. Raises OutOfRangeError at or beyond the end."""
        span = self.span(step)
        state = self.state(step)
        with _sound(step):
            slots, ended = self.piece(span).deal(state, step)
        if slots is None:
            raise self._beyond(step, step, self._why(ended))
        domains, passes, indices, windows = slots
        domains = self._places[domains]
        loss_weights = self._loss_weights(span)[domains]
        return Draw(domains=domains, passes=passes, indices=indices, windows=windows, loss_weights=loss_weights)

    def cursor(self, step: int) -> Cursor:
        """Where every domain stands at the start of a step, at most the step after the last; rows as `domains`."""
        return self._cursor(step).over(self.domains)

    def anchor(self, step: int) -> str:
        """The cursor of a step as the store keeps it."""
        return to_text(self.cursor(step), self._hashes.basis(step))

    def state(self, step: int) -> Words:
        """The kernel's state at the start of a step; rows as `names`."""
        return self._cursor(step).state

    def hash(self, step: int) -> bytes:
        """What of the log has decided the steps below a step: 32 bytes, see `Hashes.at`."""
        return self._hashes.at(step)

    @property
    def end(self) -> int | None:
        """The step after the last one."""
        return self._end.step

    @property
    def end_reason(self) -> str:
        """Why the run ends there."""
        return self._end.reason

    @property
    def skipped(self) -> Mapping[str, Skipped]:
        """What a branch has skipped, by domain; nothing in a run that is none."""
        return {}

    # ---- the way to a cursor

    def _cursor(self, step: int) -> Cursor:
        if not self.first <= step <= self.timeline.steps:
            raise self._beyond(step, self.timeline.steps)
        cursor, ended = self._walk(self._nearest(step), step)
        if ended is not None:
            raise self._beyond(step, cursor.step, self._why(ended))
        return cursor

    def _nearest(self, step: int) -> Cursor:
        """The nearest cursor at or before a step; one from the store only if it can be of this plan."""

        def read(at: int, text: str) -> Cursor:
            cursor = from_text(text, at, self.names, self._hashes.basis(at))
            known = at < self.timeline.steps and (self.known_until is None or at < self.known_until)
            with _sound(at):
                self.piece(self.span(at if known else at - 1)).check(cursor.state)
            return cursor

        return self._anchors.nearest(step, read)

    def _walk(self, cursor: Cursor, step: int) -> tuple[Cursor, int | None]:
        """From a cursor to a step, or to where the run ends before and by which domain."""
        while cursor.step < step:
            span = self.span(cursor.step)
            wanted = min(min(span.end, step) - cursor.step, self._stride(span, step - cursor.step))
            with _sound(cursor.step):
                state, made, ended = self.piece(span).advance(cursor.state, cursor.step, wanted)
            cursor = Cursor(step=cursor.step + made, domains=self.names, state=state)
            self._anchors.remember(cursor, mark=cursor.step < step)
            if ended is not None:
                return cursor, ended
        return cursor, None

    def _stride(self, span: Span, far: int) -> int:
        """How far to go before a mark is left: the kernel leaps over constant weights, and walks where they move."""
        walks = span.source.following is not None or self.spec.draw != "balanced"
        return WALK if walks else max(LEAP, far // 8)

    @cached_property
    def _end(self) -> End:
        """A walk to the last phase only if a cap could end the run before."""
        steps = self.timeline.steps
        reach = steps if self.known_until is None else min(self.known_until, steps)
        if may_end_before(self, reach):
            cursor, ended = self._walk(self._nearest(reach), reach)
            if ended is not None:
                return End(step=cursor.step, reason=self._why(ended))
        return End(step=steps, reason=LAST_PHASE)

    def _why(self, ended: int | None) -> str:
        return LAST_PHASE if ended is None else why_ended(self.spec, self.names[ended])

    @cached_property
    def _places(self) -> npt.NDArray[np.uint32]:
        """Place in `domains` of each of `names`."""
        return np.array([self.domains.index(name) for name in self.names], dtype=np.uint32)

    # ---- another log

    def with_events(self, events: Sequence[Event]) -> Plan:
        """The plan of another log, cheap when it begins as this one does."""
        known, fresh = self.events, events[len(self.events) :]
        goes_on = 0 < len(fresh) <= MOST_ONE_BY_ONE and (not known or events[len(known) - 1] == known[-1])
        if goes_on and all(event.kind == "weights" for event in fresh):
            plan = self
            for event in fresh:
                plan = plan._with_weights(event)
            return plan
        plan = self._with(events)
        plan._anchors = self._anchors.below(first_difference(self.live, plan.live), plan._start)
        old = {span.first: span for span in self.timeline.spans} if plan.names == self.names else {}
        same = (span.first for span in plan.timeline.spans if old.get(span.first) == span)
        plan._pieces = {first: self._pieces[first] for first in same if first in self._pieces}
        plan._hashes = self._hashes.of(plan.live)
        return plan

    def _with_weights(self, event: Event) -> Plan:
        """The plan with one weights event more: what does not follow from it is shared.

        The log is chained, so one that goes on from our last event has all before it in common with ours.
        """
        held = weight_range(event, phase_starts(self.spec))
        plan = copy(self)
        plan.__dict__.pop("_end", None)
        plan.events = (*self.events, event)
        plan.live, plan._hashes = self._hashes.with_event(event)
        plan.holding = (*self.holding, event)
        plan.timeline = with_weights(self.timeline, held)
        plan._pieces = {at: piece for at, piece in self._pieces.copy().items() if not held.first <= at < held.end}
        plan._anchors = self._anchors.below(event.from_step, self._start)
        return plan

    def _with(self, events: Sequence[Event]) -> Plan:
        return Plan(self.given, self.facts, events, past=self.past)


@contextmanager
def _sound(step: int) -> Iterator[None]:
    """Says in words that the kernel refuses a cursor: only an anchor that was damaged can have led to it."""
    try:
        yield
    except ValueError as error:
        raise damaged(step, str(error)) from None
