"""The one validator of events, for every entrance: RPC, command line, mixer, import.

Returns notes for the caller; raises UsageError for what is wrong in itself, ConflictError for what the state of the run
forbids. Nothing is repaired: weights that do not sum to 1 are refused, not scaled.
"""

from __future__ import annotations

from collections.abc import Mapping

from headrace.proto.errors import ConflictError, UsageError
from headrace.server.plan.log import CancelBody, Event, WeightsBody
from headrace.server.plan.pieces import make_piece
from headrace.server.plan.plan import Plan
from headrace.server.plan.timeline import phase_starts, weight_range

TOLERANCE = 2e-6
"""How far the sum of weights on the wire may be from 1: float32 vectors of 60 domains stay within it."""


def check_event(plan: Plan, seal: int, event: Event) -> tuple[str, ...]:
    """Judges an event that is about to be appended to the plan's log."""
    match event.body:
        case WeightsBody():
            return check_weights_event(plan, seal, event)
        case CancelBody():
            return check_cancel_event(plan, seal, event)


def check_weights_event(plan: Plan, seal: int, event: Event) -> tuple[str, ...]:
    """Judges new weights; the notes say which scheduled events they hide and where they end."""
    assert isinstance(event.body, WeightsBody)
    _check_free(plan, seal, event.from_step)
    check_weights(event.body.weights, plan.domains)
    _check_loss_weights(event.body.loss_weights, plan.domains)
    changed = plan.with_events((*plan.events, event))
    first, end, _ = weight_range(event, phase_starts(plan.spec))
    for span in changed.timeline.spans:
        if span.source.event is not None and span.source.event.sequence == event.sequence:
            make_piece(plan.spec, plan.facts, span)
    notes = [f"holds for steps {first} to {end - 1}"]
    notes += [
        _hidden(other) for other in plan.live if isinstance(other.body, WeightsBody) and first <= other.from_step < end
    ]
    return tuple(notes)


def check_weights(weights: Mapping[str, float], domains: tuple[str, ...]) -> None:
    """Refuses weights that miss or do not know a domain, or do not sum to 1."""
    _check_known("weight", weights, domains)
    missing = [name for name in domains if name not in weights]
    if missing:
        raise UsageError(f"no weight for {_names(missing)}; name every domain of the run, 0 is allowed")
    total = sum(weights.values())
    if abs(total - 1) > TOLERANCE:
        raise UsageError(f"weights sum to {total:.9g}, not to 1 within {TOLERANCE:g}; divide them by their sum")


def _check_loss_weights(weights: Mapping[str, float], domains: tuple[str, ...]) -> None:
    _check_known("loss weight", weights, domains)
    for name, weight in weights.items():
        if weight > 3.4e38:
            raise UsageError(f"loss weight of `{name}` is {weight:g}, which no float32 holds")


def _check_known(what: str, weights: Mapping[str, float], domains: tuple[str, ...]) -> None:
    for name in weights:
        if name not in domains:
            raise UsageError(f"{what} for `{name}`, which the run has not; it has {_names(domains)}")


def check_cancel_event(plan: Plan, seal: int, event: Event) -> tuple[str, ...]:
    """Judges a cancel: its event must be live and hold from the seal on or later."""
    assert isinstance(event.body, CancelBody)
    number = event.body.sequence
    target = next((other for other in plan.live if other.sequence == number), None)
    if target is None:
        raise ConflictError(f"event {number} is not in the log, is cancelled already, or is a cancel itself")
    if target.from_step < seal:
        raise ConflictError(
            f"event {number} holds from step {target.from_step}, which is sealed; the first free step is {seal}: "
            f"set new weights from there instead"
        )
    return (f"event {number} will not take hold at step {target.from_step}",)


def _check_free(plan: Plan, seal: int, step: int) -> None:
    if step < seal:
        raise ConflictError(f"step {step} is sealed and can never change; the first free step is {seal}")
    if step >= plan.timeline.steps:
        raise ConflictError(f"the run ends at step {plan.timeline.steps}, so nothing can hold from step {step} on")


def _hidden(event: Event) -> str:
    return f"hides event {event.sequence}, which is scheduled for step {event.from_step}"


def _names(names: tuple[str, ...] | list[str]) -> str:
    return ", ".join(f"`{name}`" for name in names[:8]) + (f" and {len(names) - 8} more" if len(names) > 8 else "")
