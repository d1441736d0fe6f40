"""The plan of a run: what every step holds, as a pure function of spec, corpus facts and event log.

    draw(step)    domain, pass, index and window of each slot
    cursor(step)  where every domain stands at the start of the step
    hash(step)    what of the log has decided the steps below
    segment(step), weights(step), shape(step), end

A plan never changes: `with_events` makes another one, which keeps every anchor below the first step that differs. The
work of any answer is bounded by the distance to the nearest anchor, and stretches of constant weights cost a few
hundred nanoseconds a step, or nothing beyond one period of the draw.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
from headrace.native import Piece
from headrace.proto.errors import OutOfRangeError, UsageError
from headrace.server.plan import cursor as cursors
from headrace.server.plan.cursor import Anchors, Cursor
from headrace.server.plan.facts import CorpusFacts
from headrace.server.plan.log import Event, content, live
from headrace.server.plan.pieces import make_piece
from headrace.server.plan.shares import PARTS
from headrace.server.plan.spec import RunSpec
from headrace.server.plan.timeline import Span, Timeline, make_timeline

Words = npt.NDArray[np.uint64]


@dataclass(frozen=True, kw_only=True, eq=False, slots=True)
class Draw:
    """A step, one entry a slot: `domains` are places in `Plan.domains`."""

    domains: npt.NDArray[np.uint32]
    passes: Words
    indices: Words
    windows: Words
    loss_weights: npt.NDArray[np.float32]


@dataclass(frozen=True, kw_only=True, slots=True)
class Shape:
    """Steps [from_step, to_step) have `batch` rows of `seq_len` tokens."""

    from_step: int
    to_step: int
    batch: int
    seq_len: int
    packing: str
    phase: str


@dataclass(frozen=True, kw_only=True, slots=True)
class End:
    """The step after the last one, and why there is no other."""

    step: int
    reason: str


class Plan:
    """See the module. `anchors` are (step, text of `anchor`) of the store; each must be of a sealed step.

    Raises UsageError when the spec does not fit the corpus.
    """

    def __init__(
        self,
        spec: RunSpec,
        facts: CorpusFacts,
        events: Sequence[Event] = (),
        anchors: Iterable[tuple[int, str]] = (),
    ) -> None:
        self.spec = spec
        self.facts = facts
        self.domains: tuple[str, ...] = facts.domains
        self.names: tuple[str, ...] = facts.domains  # bytewise
        self.events = tuple(events)
        self.live = live(self.events)
        check_names(spec, facts)
        self.timeline: Timeline = make_timeline(spec, self.live)
        self._pieces: dict[int, Piece] = {}  # by first step of the span
        self._anchors = Anchors([cursors.empty(self.domains)])
        for _, text in anchors:
            self._anchors.keep(cursors.from_json(text, self.domains))

    def with_events(self, events: Sequence[Event]) -> Plan:
        """The plan of another log, cheap when it begins as this one does."""
        plan = Plan(self.spec, self.facts, events)
        plan._anchors = Anchors(self._anchors.below(_first_difference(self.live, plan.live)))
        old = {span.first: span for span in self.timeline.spans}
        kept = (span.first for span in plan.timeline.spans if old.get(span.first) == span)
        plan._pieces = {first: self._pieces[first] for first in kept if first in self._pieces}
        return plan

    # ---- what a step holds

    def draw(self, step: int) -> Draw:
        """The slots of a step. Raises OutOfRangeError at or beyond the end."""
        span = self._span(step)
        slots, ended = self.piece(span).deal(self.state(step), step)
        if slots is None:
            raise self._beyond(step, step, ended)
        domains, passes, indices, windows = slots
        loss_weights = self._loss_weights(span)[domains]
        return Draw(domains=domains, passes=passes, indices=indices, windows=windows, loss_weights=loss_weights)

    def cursor(self, step: int) -> Cursor:
        """Where every domain stands at the start of a step, at most the step after the last."""
        if not 0 <= step <= self.timeline.steps:
            raise self._beyond(step, self.timeline.steps, None)
        cursor, ended = self._walk(self._anchors.nearest(step), step)
        if ended is not None:
            raise self._beyond(step, cursor.step, ended)
        return cursor

    def anchor(self, step: int) -> str:
        """The cursor of a step as the store keeps it."""
        return self.cursor(step).to_json()

    def _walk(self, cursor: Cursor, step: int) -> tuple[Cursor, int | None]:
        """From a cursor to a step, or to where the run ends before and by which domain."""
        while cursor.step < step:
            span = self._span(cursor.step)
            wanted = min(span.end, step) - cursor.step
            state, made, ended = self.piece(span).advance(cursor.state, cursor.step, wanted)
            cursor = Cursor(step=cursor.step + made, domains=self.domains, state=state)
            self._anchors.remember(cursor)
            if ended is not None:
                return cursor, ended
        return cursor, None

    # ---- what is known of a step without its cursor

    def shape(self, step: int) -> Shape:
        """Shape of a step."""
        return self._shape(self._span(step).phase)

    def shapes(self, from_step: int = 0) -> list[Shape]:
        """Ranges of one shape from a step on, up to the end."""
        shapes = (self._shape(number) for number in range(len(self.spec.phases)))
        return [shape for shape in shapes if shape.to_step > from_step]

    def segment(self, step: int) -> int:
        """Number of the range of steps with one source of weights that holds a step, from 0."""
        return self._span(min(step, self.timeline.steps - 1)).segment

    def weights(self, step: int) -> dict[str, float]:
        """Target weights of real tokens, before caps; they sum to 1."""
        parts = self.piece(self._span(step)).parts(step)
        return {name: int(part) / PARTS for name, part in zip(self.domains, parts, strict=True)}

    def shares(self, step: int) -> npt.NDArray[np.int64]:
        """Target shares of the slots in units of 2^-32, before caps."""
        return self.piece(self._span(step)).shares(step)

    def loss_weights(self, step: int) -> dict[str, float]:
        """Loss weight of each domain at a step."""
        weights = self._loss_weights(self._span(step))
        return {name: float(weight) for name, weight in zip(self.domains, weights, strict=True)}

    def hash(self, step: int) -> bytes:
        """SHA-256, 32 bytes, over the spec digest and the events that hold from a step below, in plan order."""
        return self._hashes[bisect_left(self._from_steps, step)]

    @cached_property
    def spec_digest(self) -> bytes:
        """Digest of the spec over this corpus."""
        return self.spec.digest(self.facts.digest)

    @property
    def end(self) -> int | None:
        """The step after the last one."""
        return self._end.step

    @property
    def end_reason(self) -> str:
        """Why the run ends there."""
        return self._end.reason

    # ---- inside

    @cached_property
    def _end(self) -> End:
        """A walk to the last phase only if a cap could end the run before."""
        steps = self.timeline.steps
        if any(self._may_end(span) for span in self.timeline.spans):
            cursor, ended = self._walk(self._anchors.nearest(steps), steps)
            if ended is not None:
                return End(step=cursor.step, reason=self._why(ended))
        return End(step=steps, reason="the last phase is over")

    def _may_end(self, span: Span) -> bool:
        weighted = set(self._weighted(span))
        capped = {name for name, policy in self.spec.domains.items() if policy.cap is not None}
        stops = {name for name in capped if self.spec.domains[name].at_cap == "stop"}
        return weighted <= capped or bool(weighted & stops)

    def _weighted(self, span: Span) -> Iterator[str]:
        """Domains with a weight somewhere in a span."""
        ends = zip(self.piece(span).parts(span.first), self.piece(span).parts(span.end - 1), strict=True)
        return (name for name, (first, last) in zip(self.domains, ends, strict=True) if first or last)

    def _why(self, domain: int) -> str:
        name = self.domains[domain]
        policy = self.spec.domains[name]
        if policy.at_cap == "stop":
            return f"domain `{name}` has reached its cap of {policy.cap} epochs, where the run is to stop"
        return f"every domain with weight has reached its cap, `{name}` too"

    def _span(self, step: int) -> Span:
        if not 0 <= step < self.timeline.steps:
            raise self._beyond(step, self.timeline.steps, None)
        return self.timeline.spans[self.timeline.at(step)]

    def _beyond(self, step: int, end: int, ended: int | None) -> OutOfRangeError:
        why = "the last phase is over" if ended is None else self._why(ended)
        return OutOfRangeError(f"run `{self.spec.name}` has steps 0 to {end - 1}, there is no step {step}: {why}")

    def state(self, step: int) -> Words:
        """The kernel's state at the start of a step: rows in bytewise order of the names."""
        return self.cursor(step).state

    def size(self, name: str, step: int) -> int:
        """Real tokens that a domain has at a step."""
        return self.facts.tokens[name]

    def piece(self, span: Span) -> Piece:
        """The kernel's piece of a span, made once."""
        piece = self._pieces.get(span.first)
        if piece is None:
            piece = self._pieces[span.first] = make_piece(self.spec, self.facts, span)
        return piece

    def _shape(self, number: int) -> Shape:
        phase = self.spec.phases[number]
        start = sum(before.steps for before in self.spec.phases[:number])
        return Shape(
            from_step=start,
            to_step=start + phase.steps,
            batch=phase.batch,
            seq_len=phase.seq_len,
            packing=phase.packing,
            phase=phase.name,
        )

    def _loss_weights(self, span: Span) -> npt.NDArray[np.float32]:
        body = span.source.body
        named = body.loss_weights if body is not None else {}
        return np.array([named.get(name, 1.0) for name in self.domains], dtype=np.float32)

    @cached_property
    def _from_steps(self) -> list[int]:
        return [event.from_step for event in self.live]

    @cached_property
    def _hashes(self) -> list[bytes]:
        """The hash before any event, and after each live one."""
        hashes = [self.spec_digest]
        for event in self.live:
            hashes.append(hashlib.sha256(hashes[-1] + content(event)).digest())
        return hashes


def _first_difference(old: Sequence[Event], new: Sequence[Event]) -> int:
    """The first step at which two live logs may differ; very large if they are equal."""
    for a, b in zip(old, new, strict=False):
        if a != b:
            return min(a.from_step, b.from_step)
    rest = old[len(new) :] or new[len(old) :]
    return rest[0].from_step if rest else 1 << 63


def check_names(spec: RunSpec, facts: CorpusFacts) -> None:
    """Refuses a spec that names a domain which the corpus has not."""
    named = {name for phase in spec.phases for point in phase.points for name in point.weights} | set(spec.domains)
    for name in sorted(named):
        if name not in facts.tokens:
            raise UsageError(
                f"run `{spec.name}` names domain `{name}`, which corpus `{spec.corpus}` has not; "
                f"it has {', '.join(facts.domains)}"
            )
