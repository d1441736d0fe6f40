"""A run as the live page, `headrace top` and the report show it: one value, made from plan and view alone.

The same figures wherever they are asked for, since every one of them follows from what is confirmed. A domain that was
not served yet has share 0, never NaN.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from headrace.server.control.records import LeaseRecord
from headrace.server.corpus.masks import quarantined
from headrace.server.plan.plan import Plan
from headrace.server.service.view import View
from headrace.server.watch.attention import judge_domains, judge_run
from headrace.server.watch.history import History, Point, origin, stretch
from headrace.server.watch.log_figures import event_figures
from headrace.server.watch.values import (
    WINDOW_STEPS,
    DomainFigures,
    LeaseFigures,
    PhaseFigures,
    RankFigures,
    RunFigures,
    Snapshot,
    Surroundings,
)

MOST_RANKS = 64
MOST_EVENTS = 30


def make_snapshot(
    view: View, history: History, around: Surroundings, drift: Sequence[Mapping[str, Any]] = ()
) -> Snapshot:
    """The run at its confirmed step; `history` is brought up to it."""
    confirmed = view.run.confirmed
    now = history.reach(view.plan, confirmed)
    before = history.at(view.plan, max(0, confirmed - WINDOW_STEPS))
    run = _run(view, now, before, around)
    lease = _lease(view.lease)
    domains = _domains(view, now, before, run, drift)
    events = event_figures(view.plan, view.events, confirmed, MOST_EVENTS)
    return Snapshot(
        now_us=around.now_us,
        run=run,
        domains=domains,
        lease=lease,
        events=events,
        event_count=len(view.events),
        notes=tuple(judge_run(run, lease, domains, drift, around)),
        drift=tuple(drift),
    )


def _run(view: View, now: Point, before: Point, around: Surroundings) -> RunFigures:
    plan, run = view.plan, view.run
    shape = plan.shape(_last_step(plan, run.confirmed))
    return RunFigures(
        name=run.name,
        kind=run.kind,
        draw=plan.spec.draw,
        parent=view.parent.run.name if view.parent else "",
        branch_at=plan.first,
        confirmed=run.confirmed,
        seal=run.seal,
        lead=run.lead,
        end=plan.end,
        end_reason=plan.end_reason,
        segment=plan.segment(view.shown_step),
        phase=PhaseFigures(
            name=shape.phase,
            from_step=shape.from_step,
            to_step=shape.to_step,
            batch=shape.batch,
            seq_len=shape.seq_len,
            packing=shape.packing,
        ),
        tokens=int(now.served.sum()),
        window_from=before.step,
        steps_per_second=around.steps_per_second,
        store_error=around.store_error,
        data_error=around.data_error,
        damage=around.damage,
        known_until=plan.known_until,
    )


def _last_step(plan: Plan, step: int) -> int:
    """A step that there is: the confirmed one, or the last one when the run is over."""
    return step if plan.end is None else max(0, min(step, plan.end - 1))


def _domains(
    view: View, now: Point, before: Point, run: RunFigures, drift: Sequence[Mapping[str, Any]]
) -> tuple[DomainFigures, ...]:
    """The most urgent first, then by target."""
    plan = view.plan
    whole, window = stretch(origin(plan), now), stretch(before, now)
    step = view.shown_step
    target = plan.weights(step)
    made = []
    for place, name in enumerate(plan.domains):
        size, tokens = plan.size(name, step), int(now.served[place])
        cap, at_cap = _cap(plan, name)
        figures = DomainFigures(
            name=name,
            target=float(target.get(name, 0.0)),
            share=float(whole.share[place]),
            due=float(whole.target[place]),
            window_share=float(window.share[place]),
            window_due=float(window.target[place]),
            behind=float(window.target[place] - window.share[place]) * float(window.tokens.sum()) / run.phase.seq_len,
            tokens=tokens,
            size=size,
            epochs=tokens / size if size else 0.0,
            cap=cap,
            at_cap=at_cap,
            cap_step=_cap_step(cap, size, tokens, int(window.tokens[place]), window.last - window.first, now.step),
        )
        made.append(figures)
    alarmed = {str(figure["domain"]) for figure in drift if figure["alarm"]}
    judged = judge_domains(
        made,
        run,
        windows=int(window.tokens.sum()) / run.phase.seq_len,
        alarmed=alarmed,
        quarantined=view.library.domains_of(quarantined(plan.masks(step))),
    )
    return tuple(sorted(judged, key=lambda domain: (-domain.urgency, -domain.target, domain.name)))


def _cap(plan: Plan, name: str) -> tuple[float | None, str]:
    policy = plan.spec.domains.get(name)
    if policy is None or policy.cap is None:
        return None, ""
    return float(policy.cap), policy.at_cap


def _cap_step(cap: float | None, size: int, tokens: int, lately: int, steps: int, now: int) -> int | None:
    """The step at which the cap is reached if the domain goes on as in the window; None where it has none."""
    if cap is None or not lately or not steps:
        return None
    return now + int(max(0.0, cap * size - tokens) * steps / lately)


def _lease(lease: LeaseRecord | None) -> LeaseFigures | None:
    if lease is None or not lease.open_ranks:
        return None
    ranks = sorted(lease.open_ranks, key=lambda rank: (rank.next_step, len(rank.label), rank.label))
    furthest = ranks[-1].next_step
    return LeaseFigures(
        job=lease.job,
        attempt=lease.attempt,
        world=lease.world,
        holder=lease.holder,
        opened_us=lease.opened_us,
        open=len(ranks),
        slowest=ranks[0].next_step,
        ranks=tuple(
            RankFigures(
                label=rank.label,
                holder=rank.holder,
                next_step=rank.next_step,
                behind=furthest - rank.next_step,
                heard_us=rank.heard_us,
            )
            for rank in ranks[:MOST_RANKS]
        ),
    )
