"""The plan of a run: what every step holds, as a pure function of spec, corpus facts and event log.

    draw(step)    domain, pass, index and window of each slot
    cursor(step)  where every domain stands at the start of the step
    hash(step)    what of the log has decided the steps below
    segment(step), weights(step), shape(step), end

A plan never changes: `with_events` makes another one, which keeps every anchor below the first step that differs. The
work of any answer is bounded by the distance to the nearest anchor; stretches of constant weights in the balanced draw
cost a few hundred steps however long they are. Branches are in `headrace.server.plan.branched`.
"""

from __future__ import annotations

import hashlib
import itertools
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy
from functools import cached_property

import numpy as np
import numpy.typing as npt
from headrace.native import Piece
from headrace.proto.errors import OutOfRangeError, UsageError
from headrace.server.plan import cursor as cursors
from headrace.server.plan.anchors import Anchors, damaged, from_text, to_text
from headrace.server.plan.answers import Draw, End, Past, Skipped
from headrace.server.plan.cursor import Cursor, Words
from headrace.server.plan.facts import CorpusFacts
from headrace.server.plan.log import Event, GrowBody, MaskBody, WeightsBody, content, live
from headrace.server.plan.pieces import grown, make_piece, view_id
from headrace.server.plan.shapes import Shape, shapes_of
from headrace.server.plan.shares import PARTS
from headrace.server.plan.spec import RunSpec
from headrace.server.plan.timeline import Span, Timeline, make_timeline, phase_starts, weight_range, with_weights
from headrace.server.plan.whole import WholePiece, whole_piece, with_steps

WALK, LEAP = 1 << 14, 1 << 22
"""Steps between the marks that a long walk leaves, where each step costs its time and where most are leapt over."""
MOST_ONE_BY_ONE = 16
"""More new events than these are planned anew together."""


class Plan:
    """See the module. `anchors` are (step, text of `anchor`) of the store; each must be of a sealed step.

    `domains` are those of the corpus in bytewise order, then those that join, as they do; `names` are all in bytewise
    order, which is the order of the kernel; `holding` are the live events, those of ancestors first, later ones last.
    `spec` has the steps that whole phases of an evaluation get from the corpus, `given` is the spec as it was written.
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
        self.given = spec
        self.spec = spec = with_steps(spec, facts)
        self.facts = facts
        self.events = tuple(events)
        self.live = live(self.events)
        self.past = past
        self.first = 0 if past is None else past.at
        mine = sorted(self.live, key=lambda event: event.sequence)
        self.holding: tuple[Event, ...] = (*(() if past is None else past.events), *mine)
        self.timeline: Timeline = make_timeline(spec, self.holding)
        self.domains = _domains(facts.domains if past is None else past.domains, self.timeline.grows)
        self.names = tuple(sorted(self.domains, key=str.encode))
        check_names(spec, self.names)
        self._masks = tuple(event for event in self.holding if isinstance(event.body, MaskBody))
        self._pieces: dict[int, Piece | WholePiece] = {}  # by first step of the span
        self._known_hashes: list[bytes] = []  # of another plan, up to where the live events are the same
        self._start = cursors.empty(self.names) if past is None else past.cursor.over(self.names)
        self._anchors = Anchors(self._start, anchors)

    def with_events(self, events: Sequence[Event]) -> Plan:
        """The plan of another log, cheap when it begins as this one does."""
        known, fresh = self.events, events[len(self.events) :]
        goes_on = 0 < len(fresh) <= MOST_ONE_BY_ONE and (not known or events[len(known) - 1] == known[-1])
        if goes_on and all(isinstance(event.body, WeightsBody) for event in fresh):
            plan = self
            for event in fresh:
                plan = plan._with_weights(event)
            return plan
        plan = self._with(events)
        plan._anchors = self._anchors.below(_first_difference(self.live, plan.live), plan._start)
        old = {span.first: span for span in self.timeline.spans} if plan.names == self.names else {}
        same = (span.first for span in plan.timeline.spans if old.get(span.first) == span)
        plan._pieces = {first: self._pieces[first] for first in same if first in self._pieces}
        pairs = zip(self.live, plan.live, strict=False)
        alike = itertools.takewhile(lambda pair: pair[0] is pair[1] or pair[0] == pair[1], pairs)
        plan._known_hashes = self._hashes[: sum(1 for _ in alike) + 1]
        return plan

    def _with_weights(self, event: Event) -> Plan:
        """The plan with one weights event more: what does not follow from it is shared.

        The log is chained, so one that goes on from our last event has all before it in common with ours.
        """
        place = bisect_right(self._from_steps, event.from_step)
        held = weight_range(event, phase_starts(self.spec))
        plan = copy(self)
        for derived in ("_end", "_from_steps", "_hashes"):
            plan.__dict__.pop(derived, None)
        plan.events = (*self.events, event)
        plan.live = (*self.live[:place], event, *self.live[place:])
        plan.holding = (*self.holding, event)
        plan.timeline = with_weights(self.timeline, held)
        plan._pieces = {at: piece for at, piece in self._pieces.copy().items() if not held.first <= at < held.end}
        plan._known_hashes = self._hashes[: place + 1]
        plan._anchors = self._anchors.below(event.from_step, self._start)
        return plan

    def _with(self, events: Sequence[Event]) -> Plan:
        return Plan(self.given, self.facts, events, past=self.past)

    # ---- what a step holds

    def draw(self, step: int) -> Draw:
        """The slots of a step. Raises OutOfRangeError at or beyond the end."""
        span = self.span(step)
        state = self.state(step)
        with _sound(step):
            slots, ended = self.piece(span).deal(state, step)
        if slots is None:
            raise self._beyond(step, step, ended)
        domains, passes, indices, windows = slots
        domains = self._places[domains]
        loss_weights = self._loss_weights(span)[domains]
        return Draw(domains=domains, passes=passes, indices=indices, windows=windows, loss_weights=loss_weights)

    def cursor(self, step: int) -> Cursor:
        """Where every domain stands at the start of a step, at most the step after the last; rows as `domains`."""
        return self._cursor(step).over(self.domains)

    def anchor(self, step: int) -> str:
        """The cursor of a step as the store keeps it."""
        return to_text(self.cursor(step), self._basis(step))

    def state(self, step: int) -> Words:
        """The kernel's state at the start of a step; rows as `names`."""
        return self._cursor(step).state

    def _cursor(self, step: int) -> Cursor:
        if not self.first <= step <= self.timeline.steps:
            raise self._beyond(step, self.timeline.steps, None)
        cursor, ended = self._walk(self._nearest(step), step)
        if ended is not None:
            raise self._beyond(step, cursor.step, ended)
        return cursor

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

    def _nearest(self, step: int) -> Cursor:
        """The nearest cursor at or before a step; one from the store only if it can be of this plan."""

        def read(at: int, text: str) -> Cursor:
            cursor = from_text(text, at, self.names, self._basis(at))
            known = at < self.timeline.steps and (self.known_until is None or at < self.known_until)
            with _sound(at):
                self.piece(self.span(at if known else at - 1)).check(cursor.state)
            return cursor

        return self._anchors.nearest(step, read)

    # ---- what is known of a step without its cursor

    def shape(self, step: int) -> Shape:
        """Shape of a step, and the range of steps that have it."""
        self.span(step)
        return next(shape for shape in self.shapes(step) if shape.from_step <= step < shape.to_step)

    def shapes(self, from_step: int = 0) -> list[Shape]:
        """Ranges of one shape up to the last phase; the first is the one that holds `from_step`."""
        return [shape for shape in shapes_of(self.spec, self.first, self.timeline.steps) if shape.to_step > from_step]

    def segment(self, step: int) -> int:
        """Number of the range of steps with one source of weights that holds a step, from 0."""
        return self._span_or_last(step).segment

    def weights(self, step: int) -> dict[str, float]:
        """Target weights of real tokens, before caps; they sum to 1."""
        parts = dict(zip(self.names, self.piece(self.span(step)).parts(step), strict=True))
        return {name: int(parts[name]) / PARTS for name in self.domains}

    def shares(self, step: int) -> npt.NDArray[np.int64]:
        """Target shares of the slots in units of 2^-32, before caps; as `domains`."""
        shares = dict(zip(self.names, self.piece(self.span(step)).shares(step), strict=True))
        return np.array([shares[name] for name in self.domains], dtype=np.int64)

    def loss_weights(self, step: int) -> dict[str, float]:
        """Loss weight of each domain at a step."""
        weights = self._loss_weights(self.span(step))
        return {name: float(weight) for name, weight in zip(self.domains, weights, strict=True)}

    def size(self, name: str, step: int) -> int:
        """Real tokens that a domain has at a step, with the generations that have joined it."""
        span = self._span_or_last(step)
        return grown(self.facts, name, self.spec.phases[span.phase], self.grows(span)).tokens

    def masks(self, step: int) -> tuple[MaskBody, ...]:
        """What is taken down at a step."""
        held = (event.body for event in self._masks if event.from_step <= step)
        return tuple(body for body in held if isinstance(body, MaskBody))

    def hash(self, step: int) -> bytes:
        """SHA-256, 32 bytes, over the spec digest and the events that hold from a step below, in plan order."""
        return self._hashes[bisect_left(self._from_steps, step)]

    def _basis(self, step: int) -> bytes:
        """What an anchor rests on: SHA-256 over the spec digest and the hashes of the live events below a step.

        Not the plan hash, which would have a plan with a long log serialise all of it before its first answer.
        """
        below = self.live[: bisect_left(self._from_steps, step)]
        before = b"" if self.past is None else self.past.hash
        return hashlib.sha256(b"".join((before, self.spec_digest, *(event.hash for event in below)))).digest()

    @cached_property
    def spec_digest(self) -> bytes:
        """Digest of the spec over this corpus."""
        return self.given.digest(self.facts.digest)

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

    # ---- spans and pieces

    def span(self, step: int) -> Span:
        """The span that holds a step. Raises OutOfRangeError beyond the last phase."""
        if not self.first <= step < self.timeline.steps:
            raise self._beyond(step, self.timeline.steps, None)
        return self.timeline.at(step)

    def _span_or_last(self, step: int) -> Span:
        return self.span(min(step, self.timeline.steps - 1))

    def spans(self) -> Iterator[Span]:
        """Spans from the first step of its own on."""
        return (span for span in self.timeline.spans if span.end > self.first)

    def grows(self, span: Span) -> tuple[Event, ...]:
        """The `grow` events that hold in a span."""
        return self.timeline.grows[: span.grown]

    def piece(self, span: Span) -> Piece | WholePiece:
        """The kernel's piece of a span, or that of a whole phase of an evaluation, made once."""
        piece = self._pieces.get(span.first)
        if piece is None:
            phase = self.spec.phases[span.phase]
            if self.given.phases[span.phase].steps:
                piece = make_piece(self.spec, self.facts, self.names, span, self.grows(span))
            else:
                piece = whole_piece(self.facts, self.names, phase, span.first, view_id(phase))
            self._pieces[span.first] = piece
        return piece

    @cached_property
    def known_until(self) -> int | None:
        """The first step that needs a generation which was not opened here, if there is one."""
        opened = self.facts.generations
        for event in self.timeline.grows:
            if isinstance(event.body, GrowBody) and (event.body.generation, event.body.domain) not in opened:
                return max(event.from_step, self.first)
        return None

    # ---- inside

    @cached_property
    def _end(self) -> End:
        """A walk to the last phase only if a cap could end the run before."""
        steps = self.timeline.steps
        reach = steps if self.known_until is None else min(self.known_until, steps)
        capped = any(policy.cap is not None for policy in self.spec.domains.values())
        if capped and any(self._may_end(span) for span in self.spans() if span.end <= reach):
            cursor, ended = self._walk(self._nearest(reach), reach)
            if ended is not None:
                return End(step=cursor.step, reason=self._why(ended))
        return End(step=steps, reason="the last phase is over")

    def _may_end(self, span: Span) -> bool:
        """Whether caps could leave a step of a span without a domain to give; a ramp may begin or end at weight 0."""
        first, last = (
            {name for name, part in zip(self.names, self.piece(span).parts(step), strict=True) if part}
            for step in (span.first, span.end - 1)
        )
        capped = {name for name, policy in self.spec.domains.items() if policy.cap is not None}
        stops = {name for name in capped if self.spec.domains[name].at_cap == "stop"}
        moving = span.source.following is not None and bool(capped & (first | last))
        return first <= capped or moving or bool(stops & (first | last))

    def _why(self, domain: int) -> str:
        name = self.names[domain]
        policy = self.spec.domains[name]
        if policy.at_cap == "stop":
            return f"domain `{name}` has reached its cap of {policy.cap} epochs, where the run is to stop"
        return f"every domain with weight has reached its cap, `{name}` too"

    def _beyond(self, step: int, end: int, ended: int | None) -> OutOfRangeError:
        why = "the last phase is over" if ended is None else self._why(ended)
        return OutOfRangeError(
            f"run `{self.spec.name}` has steps {self.first} to {end - 1}, there is no step {step}: {why}"
        )

    def _loss_weights(self, span: Span) -> npt.NDArray[np.float32]:
        body = span.source.body
        named = body.loss_weights if body is not None else {}
        return np.array([named.get(name, 1.0) for name in self.domains], dtype=np.float32)

    @cached_property
    def _places(self) -> npt.NDArray[np.uint32]:
        """Place in `domains` of each of `names`."""
        return np.array([self.domains.index(name) for name in self.names], dtype=np.uint32)

    @cached_property
    def _from_steps(self) -> list[int]:
        return [event.from_step for event in self.live]

    @cached_property
    def _hashes(self) -> list[bytes]:
        """The hash before any event, and after each live one."""
        hashes = list(self._known_hashes)
        if not hashes:
            start = self.spec_digest
            hashes = [start if self.past is None else hashlib.sha256(self.past.hash + start).digest()]
        for event in self.live[len(hashes) - 1 :]:
            hashes.append(hashlib.sha256(hashes[-1] + content(event)).digest())
        return hashes


@contextmanager
def _sound(step: int) -> Iterator[None]:
    """Says in words that the kernel refuses a cursor: only an anchor that was damaged can have led to it."""
    try:
        yield
    except ValueError as error:
        raise damaged(step, str(error)) from None


def _domains(first: Sequence[str], grows: Sequence[Event]) -> tuple[str, ...]:
    """`first`, and behind them the domains that join, in the order in which they do."""
    domains = list(first)
    for event in grows:
        if isinstance(event.body, GrowBody) and event.body.domain not in domains:
            domains.append(event.body.domain)
    return tuple(domains)


def _first_difference(old: Sequence[Event], new: Sequence[Event]) -> int:
    """The first step at which two live logs may differ; very large if they are equal."""
    for a, b in zip(old, new, strict=False):
        if a != b:
            return min(a.from_step, b.from_step)
    rest = old[len(new) :] or new[len(old) :]
    return rest[0].from_step if rest else 1 << 63


def check_names(spec: RunSpec, names: Sequence[str]) -> None:
    """Refuses a spec that names a domain which there is not."""
    named = {name for phase in spec.phases for point in phase.points for name in point.weights} | set(spec.domains)
    for name in sorted(named):
        if name not in names:
            raise UsageError(
                f"run `{spec.name}` names domain `{name}`, which corpus `{spec.corpus}` has not; "
                f"it has {', '.join(names)}"
            )
