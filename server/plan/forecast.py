"""What a run will do before anything runs: tokens and epochs by phase and domain, wraps, caps, waste, deviation.

The forecast walks the plan itself, so it cannot disagree with the stream. Its work is that of advancing the cursor once
over the run, and a little more for each domain that wraps or reaches its cap.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
from headrace.native import Piece
from headrace.server.plan.cursor import FIELDS, Words
from headrace.server.plan.pieces import grown, view_id
from headrace.server.plan.plan import Plan
from headrace.server.plan.scaling import effective_tokens
from headrace.server.plan.spec import RunSpec
from headrace.server.plan.timeline import Span
from headrace.server.plan.validate import TOLERANCE
from headrace.server.plan.whole import WholePiece

MUCH_PADDING = 0.1
"""Part of a phase's rows that is padding of one domain, above which a forecast says so."""
MANY_EPOCHS = 4.0
"""Beyond it repeated tokens lose their worth quickly (Muennighoff et al., 2023)."""
CHUNKS = 64
WINDOW = 1 << 32


@dataclass(frozen=True, kw_only=True, slots=True)
class Unread:
    """What the pass that a new view ended had left: windows and plan tokens of it, at a phase's first step."""

    step: int
    windows: int
    tokens: int


@dataclass(frozen=True, kw_only=True, slots=True)
class DomainForecast:
    """One domain over the whole run. `worth` are the new tokens that the served ones are worth; deviations in windows.

    `wraps_at` and `capped_at` are the steps in which its first pass is used up and in which it takes its last window
    before the cap.
    """

    name: str
    size: int
    tokens: int
    epochs: float
    worth: float
    wraps_at: int | None
    capped_at: int | None
    unread: tuple[Unread, ...]
    ahead: float
    behind: float


@dataclass(frozen=True, kw_only=True, slots=True)
class PhaseForecast:
    """Steps [first, end) of a phase, with plan tokens and epochs by domain."""

    name: str
    first: int
    end: int
    tokens: Mapping[str, int]
    epochs: Mapping[str, float]


@dataclass(frozen=True, kw_only=True, slots=True)
class Forecast:
    """A run from step 0 to `end`. `warnings` are sentences that name domains; `notes` say what weights come to."""

    run: str
    end: int
    end_reason: str
    tokens: int
    phases: tuple[PhaseForecast, ...]
    domains: tuple[DomainForecast, ...]
    warnings: tuple[str, ...]
    notes: tuple[str, ...]


@dataclass
class _Seen:
    """What the walk has found of the domains so far."""

    wraps: dict[int, int] = field(default_factory=dict)
    caps: dict[int, int] = field(default_factory=dict)
    unread: dict[int, list[Unread]] = field(default_factory=dict)
    least: npt.NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    most: npt.NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, dtype=np.int64))


def make_forecast(plan: Plan, progress: Callable[[int], None] = lambda step: None) -> Forecast:
    """Walks the whole run. `progress` is told the steps done."""
    end = plan.end
    assert end is not None
    seen = _Seen(least=np.zeros(len(plan.names), np.int64), most=np.zeros(len(plan.names), np.int64))
    for first, last, span in _chunks(plan, end):
        _walk(plan, span, first, last, seen)
        progress(last)
    phases = tuple(_phases(plan, end))
    domains = tuple(_domain(plan, name, end, seen) for name in plan.domains)
    return Forecast(
        run=plan.spec.name,
        end=end,
        end_reason=plan.end_reason,
        tokens=_tokens(plan, 0, end),
        phases=phases,
        domains=domains,
        warnings=tuple(_warnings(plan, end, domains)),
        notes=tuple(_notes(plan.spec)),
    )


def _tokens(plan: Plan, first: int, last: int) -> int:
    """Nominal tokens of steps [first, last)."""
    shapes = plan.shapes(first)
    return sum(
        (min(s.to_step, last) - max(s.from_step, first)) * s.batch * s.seq_len for s in shapes if s.from_step < last
    )


def _chunks(plan: Plan, end: int) -> Iterator[tuple[int, int, Span]]:
    """Ranges of steps within a span, short enough to look for a step inside."""
    for span in plan.spans():
        start, last = max(span.first, plan.first), min(span.end, end)
        size = max(-(-(last - start) // CHUNKS), 1)
        for first in range(start, last, size):
            yield first, min(first + size, last), span


@dataclass(frozen=True, kw_only=True, slots=True)
class _Chunk:
    """Steps [first, last) of a span. `before` is the state at its start, `ready` as the first windows find it."""

    piece: Piece | WholePiece
    before: Words
    ready: Words
    first: int
    last: int

    def wrapped(self, place: int, after: Words) -> bool:
        """Whether a pass of the domain was used up since the start of the chunk."""
        if not _served(self.before[place], after[place]):
            return False
        used_up = _field(after[place], "index") == _field(after[place], "windows")
        return used_up or _field(after[place], "pass") > _field(self.ready[place], "pass")

    def capped(self, place: int, after: Words) -> bool:
        return int(self.piece.windows_left(after)[place]) == 0

    def first_step(self, place: int, happened: Callable[[int, Words], bool]) -> int:
        """The step that made something happen to a domain which has happened by the end of the chunk."""
        low, high = self.first, self.last
        while high - low > 1:
            middle = (low + high) // 2
            if happened(place, self.piece.advance(self.before, self.first, middle - self.first)[0]):
                high = middle
            else:
                low = middle
        return high - 1


def _walk(plan: Plan, span: Span, first: int, last: int, seen: _Seen) -> None:
    """One chunk: extremes of credit, and the steps at which something happens to a domain."""
    piece, before = plan.piece(span), plan.state(first)
    chunk = _Chunk(piece=piece, before=before, ready=piece.settled(before), first=first, last=last)
    after, _, _, least, most = piece.advance_watching(before, first, last - first)
    seen.least, seen.most = np.minimum(seen.least, least), np.maximum(seen.most, most)
    for i in range(len(plan.names)):
        if _served(before[i], after[i]) and _field(before[i], "windows") and _view(before[i]) != _view(after[i]):
            seen.unread.setdefault(i, []).append(_left_over(plan, span, before, i))
        if i not in seen.wraps and chunk.wrapped(i, after):
            seen.wraps[i] = chunk.first_step(i, chunk.wrapped)
        if i not in seen.caps and chunk.capped(i, after) and _has_weight(plan, span, i):
            seen.caps[i] = chunk.first_step(i, chunk.capped)


def _has_weight(plan: Plan, span: Span, place: int) -> bool:
    """Whether a domain has weight somewhere in a span."""
    piece = plan.piece(span)
    return bool(piece.parts(span.first)[place] or piece.parts(span.end - 1)[place])


def _field(row: Words, name: str) -> int:
    return int(row[FIELDS.index(name)])


def _view(row: Words) -> int:
    return _field(row, "view")


def _served(before: Words, after: Words) -> bool:
    """Whether a domain was given a window between two states."""
    return any(_field(before, name) != _field(after, name) for name in ("pass", "index", "view"))


def _left_over(plan: Plan, span: Span, before: Words, place: int) -> Unread:
    """What a new view leaves of a pass: all that is left of it, or of its open group where the pass goes on.

    The tokens of a pass after place `split` are `real`, spread evenly over its windows from there on.
    """
    old = next(
        s for s in reversed(plan.timeline.spans) if s.first < span.first and _has_view(plan, s, _view(before[place]))
    )
    windows = int(plan.piece(old).unread(before)[place])
    row = before[place]
    split, index, real = _field(row, "split"), _field(row, "index"), _field(row, "real")
    of = _field(row, "windows") - split
    tokens = (index - split + windows) * real // of - (index - split) * real // of
    return Unread(step=span.first, windows=windows, tokens=tokens)


def _has_view(plan: Plan, span: Span, view: int) -> bool:
    return view_id(plan.spec.phases[span.phase]) == view


def _phases(plan: Plan, end: int) -> Iterator[PhaseForecast]:
    for shape in plan.shapes():
        last = min(shape.to_step, end)
        if last <= shape.from_step:
            return
        served = plan.cursor(last).tokens - plan.cursor(shape.from_step).tokens
        tokens = {name: int(count) for name, count in zip(plan.domains, served, strict=True)}
        epochs = {name: _epochs(count, plan.size(name, end)) for name, count in tokens.items()}
        yield PhaseForecast(name=shape.phase, first=shape.from_step, end=last, tokens=tokens, epochs=epochs)


def _epochs(tokens: int, size: int) -> float:
    """A domain that never joins has size 0 and no epochs."""
    return tokens / size if size else 0.0


def _domain(plan: Plan, name: str, end: int, seen: _Seen) -> DomainForecast:
    place = plan.names.index(name)
    served = int(plan.cursor(end).tokens[plan.domains.index(name)])
    size = plan.size(name, end)
    return DomainForecast(
        name=name,
        size=size,
        tokens=served,
        epochs=_epochs(served, size),
        worth=effective_tokens(served, size),
        wraps_at=seen.wraps.get(place),
        capped_at=seen.caps.get(place),
        unread=tuple(seen.unread.get(place, ())),
        ahead=max(-int(seen.least[place]), 0) / WINDOW,
        behind=max(int(seen.most[place]), 0) / WINDOW,
    )


def _notes(spec: RunSpec) -> Iterator[str]:
    """Weights that do not sum to 1: meant as parts, or one of them is a slip."""
    for phase in spec.phases:
        for point in phase.points:
            total = sum(point.weights.values())
            if abs(total - 1) > TOLERANCE:
                shares = ", ".join(f"{name} {weight / total:.4g}" for name, weight in point.weights.items())
                place = f" at {point.at}" if len(phase.points) > 1 else ""
                yield f"weights of phase `{phase.name}`{place} sum to {total:.6g} and are taken as parts: {shares}"


def _warnings(plan: Plan, end: int, domains: tuple[DomainForecast, ...]) -> Iterator[str]:
    if end < plan.timeline.steps:
        missing = sum(
            (s.to_step - max(s.from_step, end)) * s.batch * s.seq_len for s in plan.shapes() if s.to_step > end
        )
        yield (
            f"the run ends at step {end} of {plan.timeline.steps}, {missing} tokens short: {plan.end_reason}; "
            f"raise a cap, add text, or ask for fewer tokens"
        )
    for name, gone in plan.skipped.items():
        yield (
            f"the branch skips {gone.windows} windows ({gone.tokens} tokens) of domain `{name}`, from place "
            f"{gone.first[1]} of pass {gone.first[0]} to before place {gone.end[1]} of pass {gone.end[0]}, which this "
            f"run never reads there; `headrace run explain` of the parent names them"
        )
    yield from _padding(plan, end)
    for domain in domains:
        if domain.epochs > MANY_EPOCHS:
            yield (
                f"domain `{domain.name}` is read {domain.epochs:.2f} times: its {domain.tokens:,} tokens are worth "
                f"about {domain.worth:,.0f} new ones; above {MANY_EPOCHS:g} epochs repeated text is worth ever less"
            )
        if domain.capped_at is not None:
            yield f"domain `{domain.name}` reaches its cap in step {domain.capped_at} and gets nothing after it"
        if not domain.tokens:
            yield f"domain `{domain.name}` is never read"
        for unread in domain.unread:
            yield (
                f"the new view at step {unread.step} leaves {unread.windows} windows ({unread.tokens} tokens) of the "
                f"pass of domain `{domain.name}` unread"
            )


def _padding(plan: Plan, end: int) -> Iterator[str]:
    """Domains whose windows are so empty that a phase serves padding in their place."""
    for shape in plan.shapes():
        first = max(shape.from_step, plan.first)
        if first >= min(shape.to_step, end):
            continue
        shares = dict(zip(plan.domains, plan.shares(first), strict=True))
        phase = next(phase for phase in plan.spec.phases if phase.name == shape.phase)
        for name, share in shares.items():
            view = grown(plan.facts, name, phase, plan.grows(plan.span(first))).view
            room = view.windows * phase.seq_len
            rows = int(share) / WINDOW
            if room and rows * (1 - view.real_tokens / room) > MUCH_PADDING:
                yield (
                    f"windows of domain `{name}` are {view.real_tokens / room:.1%} full in phase `{shape.phase}`: its "
                    f"weight of real tokens takes {rows:.1%} of the rows there, mostly padding; give it less weight, "
                    f"a smaller seq_len, best_fit packing, or more text"
                )
