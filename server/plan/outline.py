"""What is known of every step before anything is drawn: phases, weights, domains, masks, and the kernel's pieces.

Nothing here depends on where the domains stand, so no answer needs a cursor. `headrace.server.plan.plan` adds those.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property

import numpy as np
import numpy.typing as npt
from headrace.native import Piece
from headrace.proto.errors import OutOfRangeError, UsageError
from headrace.server.plan.answers import Past
from headrace.server.plan.facts import CorpusFacts
from headrace.server.plan.log import Event, GrowBody, MaskBody, bodies, live
from headrace.server.plan.pieces import grown, make_piece, view_id
from headrace.server.plan.shapes import Shape, shapes_of
from headrace.server.plan.shares import PARTS
from headrace.server.plan.spec import RunSpec
from headrace.server.plan.timeline import Span, Timeline, make_timeline
from headrace.server.plan.whole import WholePiece, whole_piece, with_steps

LAST_PHASE = "the last phase is over"


class Outline:
    """A spec over a corpus under a log. Raises UsageError when the spec does not fit the corpus.

    `domains` are those of the corpus in bytewise order, then those that join, as they do; `names` are all in bytewise
    order, which is the order of the kernel; `holding` are the live events, those of ancestors first, later ones last.
    `spec` has the steps that whole phases of an evaluation get from the corpus, `given` is the spec as it was written.
    """

    def __init__(self, spec: RunSpec, facts: CorpusFacts, events: Sequence[Event], past: Past | None) -> None:
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
        _check_names(spec, self.names)
        self._masks = tuple(event for event in self.holding if event.kind == "mask")
        self._pieces: dict[int, Piece | WholePiece] = {}  # by first step of the span

    # ---- a step

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
        return tuple(bodies((event for event in self._masks if event.from_step <= step), MaskBody))

    # ---- spans and pieces

    def span(self, step: int) -> Span:
        """The span that holds a step. Raises OutOfRangeError beyond the last phase."""
        if not self.first <= step < self.timeline.steps:
            raise self._beyond(step, self.timeline.steps)
        return self.timeline.at(step)

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

    @cached_property
    def spec_digest(self) -> bytes:
        """Digest of the spec over this corpus."""
        return self.given.digest(self.facts.digest)

    # ---- inside

    def _span_or_last(self, step: int) -> Span:
        return self.span(min(step, self.timeline.steps - 1))

    def _loss_weights(self, span: Span) -> npt.NDArray[np.float32]:
        body = span.source.body
        named = body.loss_weights if body is not None else {}
        return np.array([named.get(name, 1.0) for name in self.domains], dtype=np.float32)

    def _beyond(self, step: int, end: int, why: str = LAST_PHASE) -> OutOfRangeError:
        return OutOfRangeError(
            f"run `{self.spec.name}` has steps {self.first} to {end - 1}, there is no step {step}: {why}"
        )


def _domains(first: Sequence[str], grows: Sequence[Event]) -> tuple[str, ...]:
    """`first`, and behind them the domains that join, in the order in which they do."""
    joining = (body.domain for body in bodies(grows, GrowBody))
    return tuple(dict.fromkeys((*first, *joining)))


def _check_names(spec: RunSpec, names: Sequence[str]) -> None:
    """Refuses a spec that names a domain which there is not."""
    named = {name for phase in spec.phases for point in phase.points for name in point.weights} | set(spec.domains)
    for name in sorted(named):
        if name not in names:
            raise UsageError(
                f"run `{spec.name}` names domain `{name}`, which corpus `{spec.corpus}` has not; "
                f"it has {', '.join(names)}"
            )
