"""Makes the kernel's piece of a span: the span's weights as parts, its views, and what caps still allow.

Raises UsageError when a domain has weight and no window, or a weight that someone named above 0 rounds to no share;
UnavailableError when a generation that has joined by then was not opened here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal

from headrace.native import Piece
from headrace.proto.errors import UnavailableError, UsageError
from headrace.server.plan.facts import NOTHING, CorpusFacts, ViewFacts
from headrace.server.plan.log import Event, GrowBody
from headrace.server.plan.shares import SHARES, parts
from headrace.server.plan.spec import PACKINGS, DomainPolicy, Phase, RunSpec
from headrace.server.plan.timeline import Source, Span


@dataclass(frozen=True, kw_only=True, slots=True)
class Grown:
    """A domain with the generations that have joined it: real tokens and views, one generation at a time."""

    sizes: tuple[int, ...]
    views: tuple[ViewFacts, ...]
    joining: int

    @property
    def tokens(self) -> int:
        return sum(self.sizes)

    @property
    def view(self) -> ViewFacts:
        """All generations as one view."""
        if len(self.views) == 1:
            return self.views[0]
        windows = sum(view.windows for view in self.views)
        return ViewFacts(windows=windows, real_tokens=sum(view.real_tokens for view in self.views))


def grown(facts: CorpusFacts, name: str, phase: Phase, grows: Sequence[Event]) -> Grown:
    """A domain with those of `grows` that are its own; its first generation is in the corpus, unless it came later."""
    views = [facts.view(name, phase.seq_len, phase.packing)] if name in facts.tokens else []
    sizes, joining = [facts.tokens[name]] if name in facts.tokens else [], 0
    for event in grows:
        if not isinstance(event.body, GrowBody) or event.body.domain != name:
            continue
        known = facts.generations.get((event.body.generation, name))
        if known is None:
            raise UnavailableError(
                f"generation {event.body.generation[:16]} joins domain `{name}` at step {event.from_step}, but its "
                f"manifest is not open here; open it on this server (event {event.sequence}), or ask another replica"
            )
        sizes.append(known.tokens)
        views.append(known.views.get(phase.shape, NOTHING))
        joining = len(views) if event.body.join == "now" else joining
    return Grown(sizes=tuple(sizes), views=tuple(views), joining=joining)


def make_piece(spec: RunSpec, facts: CorpusFacts, names: Sequence[str], span: Span, grows: Sequence[Event]) -> Piece:
    """The piece of a span. `names` are all domains, in bytewise order; `grows` the `grow` events that hold."""
    phase = spec.phases[span.phase]
    weights, goal = weights_of(span.source)
    piece = Piece(
        seed=spec.seed,
        draw=spec.draw,
        order=spec.order,
        batch=phase.batch,
        members=_members(spec, facts, names, phase, weights, goal, grows),
        ramp=_ramp(span.source) if goal is not weights else None,
    )
    check_named(piece, names, weights, span.first if span.source.event else span.source.start, phase)
    return piece


def weights_of(source: Source) -> tuple[Mapping[str, float], Mapping[str, float]]:
    """Weights at the start of a source and those that it moves to."""
    if source.body is not None:
        return source.body.weights, source.body.weights
    assert source.point is not None
    return source.point.weights, (source.following or source.point).weights


def _ramp(source: Source) -> tuple[int, int, str]:
    assert source.point is not None
    assert source.following is not None
    return source.start, source.following.at - source.point.at, source.point.curve


def _members(
    spec: RunSpec,
    facts: CorpusFacts,
    names: Sequence[str],
    phase: Phase,
    weights: Mapping[str, float],
    goal: Mapping[str, float],
    grows: Sequence[Event],
) -> list[dict[str, object]]:
    members = []
    for name, start, end in zip(names, parts(weights, names), parts(goal, names), strict=True):
        domain = grown(facts, name, phase, grows)
        if (start or end) and not domain.view.windows:
            raise UsageError(
                f"phase `{phase.name}` gives domain `{name}` a weight, but it has no window of {phase.seq_len} tokens "
                f"({phase.packing}) there; give it weight 0, a smaller seq_len, or more text"
            )
        policy = spec.domains.get(name, DomainPolicy())
        blocks = _blocks(domain, phase, spec.block_tokens) if spec.order == "blocks" else None
        members.append({**_member(name, start, end, domain, phase, policy), "blocks": blocks})
    return members


def _blocks(domain: Grown, phase: Phase, block_tokens: int) -> tuple[int, bool, list[tuple[int, int, int]]]:
    """Windows of a group, whether a group holds the same tokens at every seq_len, and each generation's groups.

    That is so where windows are cut at multiples of seq_len; the number of groups then follows from the tokens alone.
    """
    group, goes_on = block_tokens // phase.seq_len, phase.packing == "concat"
    generations = []
    for size, view in zip(domain.sizes, domain.views, strict=True):
        groups = -(-size // block_tokens) if goes_on else -(-view.windows // group)
        generations.append((view.windows, view.real_tokens, groups))
    return group, goes_on, generations


def _member(name: str, start: int, end: int, domain: Grown, phase: Phase, policy: DomainPolicy) -> dict[str, object]:
    view = domain.view
    return {
        "name": name,
        "parts": start,
        "parts_to": end,
        "view": view_id(phase),
        "windows": view.windows,
        "real": view.real_tokens,
        "seq_len": phase.seq_len,
        "generations": len(domain.views),
        "joining": domain.joining,
        "budget": budget(policy.cap, domain.tokens),
        "stop": policy.at_cap == "stop",
    }


def view_id(phase: Phase) -> int:
    """The kernel's name of a phase's view."""
    return phase.seq_len << 8 | PACKINGS.index(phase.packing)


def budget(cap: Decimal | None, tokens: int) -> int | None:
    """Plan tokens that a cap allows: the whole part of cap * tokens, exact."""
    if cap is None:
        return None
    top, bottom = cap.as_integer_ratio()
    return min(top * tokens // bottom, (1 << 63) - 1)


def check_named(piece: Piece, names: Sequence[str], weights: Mapping[str, float], step: int, phase: Phase) -> None:
    """Refuses a weight above 0 that rounds to no share."""
    for name, share in zip(names, piece.shares(step), strict=True):
        if weights.get(name, 0) > 0 and share == 0:
            raise UsageError(
                f"weight of `{name}` in phase `{phase.name}` is {weights[name]:g}, which is less than a part in "
                f"{SHARES} of the windows and would never be served; give it more, or 0"
            )
