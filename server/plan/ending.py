"""Whether and why caps end a run before its last phase is over."""

from __future__ import annotations

from headrace.server.plan.outline import Outline
from headrace.server.plan.spec import RunSpec
from headrace.server.plan.timeline import Span


def may_end_before(outline: Outline, reach: int) -> bool:
    """Whether caps could end the run below `reach`: without one, no walk is needed to know the end."""
    capped = any(policy.cap is not None for policy in outline.spec.domains.values())
    return capped and any(_may_end(outline, span) for span in outline.spans() if span.end <= reach)


def _may_end(outline: Outline, span: Span) -> bool:
    """Whether caps could leave a step of a span without a domain to give; a ramp may begin or end at weight 0."""
    first, last = (
        {name for name, part in zip(outline.names, outline.piece(span).parts(step), strict=True) if part}
        for step in (span.first, span.end - 1)
    )
    policies = outline.spec.domains
    capped = {name for name, policy in policies.items() if policy.cap is not None}
    stops = {name for name in capped if policies[name].at_cap == "stop"}
    moving = span.source.following is not None and bool(capped & (first | last))
    return first <= capped or moving or bool(stops & (first | last))


def why_ended(spec: RunSpec, name: str) -> str:
    """Why the run ended when a domain had reached its cap."""
    policy = spec.domains[name]
    if policy.at_cap == "stop":
        return f"domain `{name}` has reached its cap of {policy.cap} epochs, where the run is to stop"
    return f"every domain with weight has reached its cap, `{name}` too"
