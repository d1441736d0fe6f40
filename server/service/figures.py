"""What a run has really served, from its plan: the same numbers from every server, at every time."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice

from headrace.server.service.handle import RunHandle
from headrace.server.service.view import View

LARGEST_SERIES = 256


@dataclass(frozen=True, kw_only=True, slots=True)
class DomainFigures:
    """One domain: target and realized part of the tokens, real tokens served, epochs."""

    name: str
    target: float
    share: float
    tokens: int
    epochs: float


@dataclass(frozen=True, kw_only=True, slots=True)
class RunFigures:
    """One run at its confirmed step; `slowest_rank` is `confirmed` when no rank is open."""

    name: str
    seal: int
    confirmed: int
    lead: int
    segment: int
    slowest_rank: int
    ranks: int
    store_up: bool
    generation_missing: bool
    domains: tuple[DomainFigures, ...]


def run_figures(handle: RunHandle) -> RunFigures:
    """The figures of a run as this server's newest view has it."""
    view = handle.view
    ranks = view.lease.open_ranks if view.lease else ()
    return RunFigures(
        name=view.run.name,
        seal=view.run.seal,
        confirmed=view.run.confirmed,
        lead=view.run.lead,
        segment=view.plan.segment(view.shown_step),
        slowest_rank=min((rank.next_step for rank in ranks), default=view.run.confirmed),
        ranks=len(ranks),
        store_up=handle.store_error is None,
        generation_missing=view.plan.known_until is not None,
        domains=tuple(_cap(domain_figures(view, view.run.confirmed))),
    )


def domain_figures(view: View, step: int) -> Sequence[DomainFigures]:
    """Every domain over steps [0, step): a domain that was not served yet has share 0, never NaN."""
    served = view.plan.cursor(step).tokens
    target = view.plan.weights(view.shown_step)
    total = sum(served)
    return [
        DomainFigures(
            name=name,
            target=target.get(name, 0.0),
            share=tokens / total if total else 0.0,
            tokens=tokens,
            epochs=tokens / max(1, view.plan.size(name, step)),
        )
        for name, tokens in zip(view.plan.domains, map(int, served), strict=True)
    ]


def _cap(domains: Iterable[DomainFigures]) -> Iterable[DomainFigures]:
    """At most 256 series a run; the rest is one domain `other`."""
    left = iter(domains)
    yield from islice(left, LARGEST_SERIES)
    rest = list(left)
    if rest:
        yield DomainFigures(
            name="other",
            target=sum(domain.target for domain in rest),
            share=sum(domain.share for domain in rest),
            tokens=sum(domain.tokens for domain in rest),
            epochs=max(domain.epochs for domain in rest),
        )
