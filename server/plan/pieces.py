"""Makes the kernel's piece of a span: the span's weights as parts, its views, and what caps still allow.

Raises UsageError when a domain has weight and no window, or a weight that someone named above 0 rounds to no share.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal

from headrace.native import Piece
from headrace.proto.errors import UsageError
from headrace.server.plan.facts import CorpusFacts
from headrace.server.plan.shares import SHARES, parts
from headrace.server.plan.spec import PACKINGS, DomainPolicy, Phase, RunSpec
from headrace.server.plan.timeline import Source, Span


def make_piece(spec: RunSpec, facts: CorpusFacts, span: Span) -> Piece:
    """The piece of a span."""
    phase = spec.phases[span.phase]
    weights, goal = weights_of(span.source)
    members = _members(spec, facts, phase, weights, goal)
    piece = Piece(
        seed=spec.seed,
        draw=spec.draw,
        order=spec.order,
        batch=phase.batch,
        members=members,
        ramp=_ramp(span.source) if goal is not weights else None,
    )
    check_named(piece, facts.domains, weights, span.first if span.source.event else span.source.start, phase)
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
    spec: RunSpec, facts: CorpusFacts, phase: Phase, weights: Mapping[str, float], goal: Mapping[str, float]
) -> list[dict[str, object]]:
    starts, ends = parts(weights, facts.domains), parts(goal, facts.domains)
    made = []
    for name, start, end in zip(facts.domains, starts, ends, strict=True):
        view = facts.view(name, phase.seq_len, phase.packing)
        if (start or end) and not view.windows:
            raise UsageError(
                f"phase `{phase.name}` gives domain `{name}` a weight, but it has no window of {phase.seq_len} tokens "
                f"({phase.packing}); give it weight 0 there, a smaller seq_len, or more text"
            )
        policy = spec.domains.get(name, DomainPolicy())
        made.append(
            {
                "name": name,
                "parts": start,
                "parts_to": end,
                "view": phase.seq_len << 8 | PACKINGS.index(phase.packing),
                "windows": view.windows,
                "real": view.real_tokens,
                "seq_len": phase.seq_len,
                "generations": 1,
                "joining": 0,
                "budget": budget(policy.cap, facts.tokens[name]),
                "stop": policy.at_cap == "stop",
            }
        )
    return made


def budget(cap: Decimal | None, tokens: int) -> int | None:
    """Plan tokens that a cap allows: the whole part of cap * tokens, exact."""
    if cap is None:
        return None
    top, bottom = cap.as_integer_ratio()
    return min(top * tokens // bottom, (1 << 63) - 1)


def check_named(piece: Piece, domains: Sequence[str], weights: Mapping[str, float], step: int, phase: Phase) -> None:
    """Refuses a weight above 0 that rounds to no share."""
    for name, share in zip(domains, piece.shares(step), strict=True):
        if weights.get(name, 0) > 0 and share == 0:
            raise UsageError(
                f"weight of `{name}` in phase `{phase.name}` is {weights[name]:g}, which is less than a part in "
                f"{SHARES} of the windows and would never be served; give it more, or 0"
            )
