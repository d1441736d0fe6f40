"""What a run has really served, from its plan: the same numbers from every server, at every time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice

import numpy as np
import numpy.typing as npt
from headrace.server.corpus.manifest import Corpus
from headrace.server.plan.log import MaskBody, bodies
from headrace.server.service.handle import RunHandle
from headrace.server.service.view import View
from headrace.server.watch.attention import allowed_windows
from headrace.server.watch.values import WINDOW_STEPS

MOST_DOMAINS = 256
OTHER = "other"
_WINDOW_LOOKS = 32


@dataclass(frozen=True, kw_only=True, slots=True)
class DomainFigures:
    """One domain, in parts of real tokens where nothing else is said.

    Attributes:
        target: of the first unsealed step, before caps
        share: realized from the first step on
        window_target, window_share: both over the last 256 confirmed steps
        tokens: real tokens served
        epochs: tokens over the tokens of the domain
        cap: epochs, None when the domain has none
        tokens_left: real tokens up to the cap, None without one
    """

    name: str
    target: float
    share: float
    window_target: float
    window_share: float
    tokens: int
    epochs: float
    cap: float | None = None
    tokens_left: float | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class RunFigures:
    """One run at its confirmed step.

    Attributes:
        slowest_rank: next step of the rank that is furthest behind; `confirmed` when none is open
        tolerance: how far a share may be from its target by the draw alone, over the window
        changed: when the newest change of weights was made, seconds since 1970; when the run was, without any
        missing: whether a generation of the log is not open on this server
        events: of the log, by kind; masks: mask events by what they name
        read, rejected: documents of the corpora, the latter by reason
    """

    name: str
    kind: str
    seal: int
    confirmed: int
    end: int
    lead: int
    segment: int
    slowest_rank: int
    ranks: int
    world: int
    tolerance: float
    changed: float
    store_up: bool
    store_writable: bool
    seal_blocked: bool
    missing: bool
    checksum_failures: int = 0
    events: Mapping[str, int] = field(default_factory=dict)
    masks: Mapping[str, int] = field(default_factory=dict)
    read: int = 0
    rejected: Mapping[str, int] = field(default_factory=dict)
    domains: tuple[DomainFigures, ...] = ()


def run_figures(handle: RunHandle, *, most_domains: int = MOST_DOMAINS) -> RunFigures:
    """The figures of a run as this server's newest view has it."""
    view = handle.view
    ranks = view.lease.open_ranks if view.lease else ()
    kinds = Counter(event.kind for event in view.events)
    masks = Counter(body.by for body in bodies(view.events, MaskBody))
    read, rejected = _documents([view.library.base, *view.library.generations.values()])
    return RunFigures(
        name=view.run.name,
        kind=view.run.kind,
        seal=view.run.seal,
        confirmed=view.run.confirmed,
        end=view.plan.end or 0,
        lead=view.run.lead,
        segment=view.plan.segment(view.shown_step),
        slowest_rank=min((rank.next_step for rank in ranks), default=view.run.confirmed),
        ranks=len(ranks),
        world=view.lease.world if view.lease and ranks else 0,
        tolerance=_tolerance(view),
        changed=_changed(view),
        store_up=handle.store_error is None,
        store_writable=not handle.store_refuses_writes,
        seal_blocked=handle.data_error is not None,
        missing=view.plan.known_until is not None,
        checksum_failures=handle.checksum_failures,
        events=kinds,
        masks=masks,
        read=read,
        rejected=rejected,
        domains=tuple(folded(domain_figures(view, view.run.confirmed), most_domains)),
    )


def _changed(view: View) -> float:
    times = [event.time_us for event in view.events if event.kind == "weights"]
    return max([view.run.created_us, *times]) / 1e6


def _documents(corpora: Sequence[Corpus]) -> tuple[int, Counter[str]]:
    rejected: Counter[str] = Counter()
    read = 0
    for corpus in corpora:
        for source in corpus.manifest.sources:
            read += source.read
            rejected.update(source.rejected)
    return read, rejected


def _window(view: View, confirmed: int) -> tuple[int, int]:
    return max(view.plan.first, confirmed - WINDOW_STEPS), confirmed


def _tolerance(view: View) -> float:
    first, last = _window(view, view.run.confirmed)
    if last <= first:
        return 1.0
    windows = (last - first) * view.plan.shape(last - 1).batch
    domains = len(view.plan.domains)
    return min(1.0, allowed_windows(view.plan.spec.draw, 0.5, windows, domains) / windows)


def domain_figures(view: View, step: int) -> list[DomainFigures]:
    """Every domain over steps [first, step): a domain that was not served yet has share 0, never NaN."""
    plan = view.plan
    first, _ = _window(view, step)
    served = plan.cursor(step).tokens.astype(np.float64)
    lately = served - plan.cursor(first).tokens.astype(np.float64)
    shares, window = _parts(served), _parts(lately)
    target = plan.weights(view.shown_step)
    due = _due(view, first, step) if step > first else np.array([target[name] for name in plan.domains])
    found = []
    for place, (name, tokens) in enumerate(zip(plan.domains, plan.cursor(step).tokens.tolist(), strict=True)):
        size = max(1, plan.size(name, step))
        policy = plan.spec.domains.get(name)
        cap = None if policy is None or policy.cap is None else float(policy.cap)
        found.append(
            DomainFigures(
                name=name,
                target=target.get(name, 0.0),
                share=float(shares[place]),
                window_target=float(due[place]),
                window_share=float(window[place]),
                tokens=int(tokens),
                epochs=tokens / size,
                cap=cap,
                tokens_left=None if cap is None else max(0.0, cap * size - tokens),
            )
        )
    return found


def _parts(tokens: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    total = float(tokens.sum())
    return tokens / total if total else np.zeros_like(tokens)


def _due(view: View, first: int, step: int) -> npt.NDArray[np.float64]:
    """The mean target over steps [first, step), from at most 32 of them and each whose segment is another one."""
    looks = sorted({*np.linspace(first, step - 1, min(_WINDOW_LOOKS, step - first)).astype(int).tolist()})
    edges = np.diff([*looks, step])
    weights = [list(view.plan.weights(look).values()) for look in looks]
    due: npt.NDArray[np.float64] = np.average(np.array(weights), axis=0, weights=edges)
    return due


def folded(domains: Iterable[DomainFigures], most: int) -> Iterable[DomainFigures]:
    """At most so many domains and one more, `other`, for the rest.

    The first ones stay, in the order of the run, which domains that join later never change.
    """
    left = iter(domains)
    yield from islice(left, most)
    rest = list(left)
    if rest:
        yield DomainFigures(
            name=OTHER,
            target=sum(domain.target for domain in rest),
            share=sum(domain.share for domain in rest),
            window_target=sum(domain.window_target for domain in rest),
            window_share=sum(domain.window_share for domain in rest),
            tokens=sum(domain.tokens for domain in rest),
            epochs=max(domain.epochs for domain in rest),
        )
