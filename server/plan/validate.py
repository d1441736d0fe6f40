"""The one validator of events, for every entrance: RPC, command line, mixer, import.

Returns notes for the caller; raises UsageError for what is wrong in itself, ConflictError for what the state of the run
forbids, UnavailableError for a generation that is not open here. Nothing is repaired: weights that do not sum to 1 are
refused, not scaled.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence

from headrace.proto.errors import ConflictError, UsageError
from headrace.server.plan.hidden import MOST_NAMED, by_event, handovers, in_words, kept
from headrace.server.plan.log import CancelBody, Event, GrowBody, MaskBody, WeightsBody, bodies
from headrace.server.plan.plan import Plan
from headrace.server.plan.timeline import Range, make_timeline, phase_starts, weight_range

TOLERANCE = 2e-6
"""How far the sum of weights on the wire may be from 1: float32 vectors of 60 domains stay within it."""


def check_event(plan: Plan, seal: int, event: Event) -> tuple[str, ...]:
    """Judges an event that is about to be appended to the plan's log."""
    match event.body:
        case WeightsBody():
            return check_weights_event(plan, seal, event)
        case GrowBody():
            return check_grow_event(plan, seal, event)
        case MaskBody():
            return check_mask_event(plan, seal, event)
        case CancelBody():
            return check_cancel_event(plan, seal, event)


# ---- weights


def check_weights_event(plan: Plan, seal: int, event: Event) -> tuple[str, ...]:
    """Judges new weights; the notes say how long they hold and which scheduled events they hide."""
    assert isinstance(event.body, WeightsBody)
    _check_free(plan, seal, event.from_step)
    check_weights(event.body.weights, plan.domains, _there(plan, event.from_step))
    _check_known("loss weight", event.body.loss_weights, plan.domains)
    for name, weight in event.body.loss_weights.items():
        if weight > 3.4e38:
            raise UsageError(f"loss weight of `{name}` is {weight:g}, which no float32 holds")
    changed = plan.with_events((*plan.events, event))
    for span in changed.spans():
        if span.source.event is event:
            changed.piece(span)
    held = weight_range(event, phase_starts(plan.spec))
    return (f"holds for steps {held.first} to {held.end - 1}", *_hidden(plan, changed, held))


def check_weights(weights: Mapping[str, float], domains: Sequence[str], needed: Iterable[str] | None = None) -> None:
    """Refuses weights that do not know a domain, miss one that is `needed` (all by default), or do not sum to 1."""
    _check_known("weight", weights, domains)
    missing = [name for name in (domains if needed is None else needed) if name not in weights]
    if missing:
        raise UsageError(f"no weight for {_names(missing)}; name every domain of the run, 0 is allowed")
    total = sum(weights.values())
    if abs(total - 1) > TOLERANCE:
        raise UsageError(f"weights sum to {total:.9g}, not to 1 within {TOLERANCE:g}; divide them by their sum")


def _there(plan: Plan, step: int) -> list[str]:
    """The domains that have joined by a step."""
    later = {grow.domain for grow in grow_bodies(plan, step + 1)}
    there = {*plan.facts.tokens, *(grow.domain for grow in grow_bodies(plan, 0, step + 1))}
    return [name for name in plan.domains if name in there or name not in later]


def grow_bodies(plan: Plan, first: int, end: int = 1 << 63) -> Iterator[GrowBody]:
    """The generations that join at steps [first, end)."""
    return bodies((event for event in plan.timeline.grows if first <= event.from_step < end), GrowBody)


def _check_known(what: str, weights: Mapping[str, float], domains: Sequence[str]) -> None:
    for name in weights:
        if name not in domains:
            raise UsageError(f"{what} for `{name}`, which the run has not; it has {_names(domains)}")


def _hidden(plan: Plan, changed: Plan, held: Range) -> Iterator[str]:
    """The events that lose steps to new weights, and what is left of them."""
    starts = phase_starts(plan.spec)
    taken = handovers(plan.timeline, changed.timeline, held)
    lost = by_event((one.before, one.first, one.end) for one in taken if one.before is not None)
    for other, steps in itertools.islice(lost.items(), MOST_NAMED):
        assert other is not None
        left = in_words(kept(changed.timeline, weight_range(other, starts)))
        yield f"hides {in_words(steps)} of {named(plan, other)}, which keeps {left}"
    if len(lost) > MOST_NAMED:
        yield f"hides steps of {len(lost) - MOST_NAMED} events more; `headrace run events` lists all"


def named(plan: Plan, event: Event) -> str:
    """An event for the one who changes what it does: number, author, first step."""
    whose = "" if event in plan.live else " of a parent"
    by = f"by {event.author}, " if event.author else ""
    return f"event {event.sequence}{whose} ({by}from step {event.from_step})"


# ---- generations and masks


def check_grow_event(plan: Plan, seal: int, event: Event) -> tuple[str, ...]:
    """Judges a generation that joins; the notes name what of the run a new domain has no weight in."""
    assert isinstance(event.body, GrowBody)
    _check_free(plan, seal, event.from_step)
    body = event.body
    if any((other.domain, other.generation) == (body.domain, body.generation) for other in grow_bodies(plan, 0)):
        raise ConflictError(
            f"generation {body.generation[:16]} is in domain `{body.domain}` already, or joins it later"
        )
    if body.generation == plan.facts.digest.hex() and body.domain in plan.facts.tokens:
        raise ConflictError(
            f"`{body.manifest or body.generation[:16]}` is the corpus that the run was made with, which domain "
            f"`{body.domain}` reads already; name the manifest that `headrace corpus grow` wrote"
        )
    if body.join == "now" and plan.spec.order == "blocks":
        raise UsageError("in the order `blocks` a generation joins at the next pass; leave out `join`")
    changed = plan.with_events((*plan.events, event))
    for span in changed.spans():
        if span.end > event.from_step:
            changed.piece(span)
    size = f"{changed.size(body.domain, event.from_step):,} tokens"
    if body.domain in plan.domains:
        how = "are mixed with what the open pass has left" if body.join == "now" else "come with its next pass"
        said = f"domain `{body.domain}` has {size} from step {event.from_step} on; the new ones {how}"
        return (said, *_waits(plan, event, body))
    phases = _names([shape.phase for shape in plan.shapes(event.from_step)])
    return (
        f"domain `{body.domain}` is new, with {size}, and has no weight in {phases}: it is read from the step on from "
        f"which `headrace weights set` names it",
    )


def _waits(plan: Plan, event: Event, body: GrowBody) -> Iterator[str]:
    """Of two generations that join a domain `now` within one pass, the later one waits for its end."""
    if body.join != "now":
        return
    for other in plan.timeline.grows:
        assert isinstance(other.body, GrowBody)
        if (other.body.domain, other.body.join) == (body.domain, "now") and other.from_step != event.from_step:
            later = "this one" if other.from_step < event.from_step else "that one"
            one = named(plan, other)
            yield f"{one} joins `{body.domain}` now too: within one pass, {later} waits for the end of the pass"


def check_mask_event(plan: Plan, seal: int, event: Event) -> tuple[str, ...]:
    """Judges documents that are taken down."""
    assert isinstance(event.body, MaskBody)
    _check_free(plan, seal, event.from_step)
    check_mask_domain(plan, event.body)
    earlier = _masked_by(plan, event.body, event.from_step)
    if set(event.body.values) <= earlier.keys():
        first = min(earlier.values(), key=lambda other: other.from_step)
        raise ConflictError(
            f"mask by {event.body.by}: {_names(event.body.values)} is taken down already, by event {first.sequence} "
            f"from step {first.from_step} on; nothing was changed"
        )
    again = sorted(set(event.body.values) & earlier.keys())
    notes = (f"taken down already by earlier events: {_names(again)}",) if again else ()
    return (f"what it names is served as padding from step {event.from_step} on", *notes, *_overtaken(plan, event))


def _overtaken(plan: Plan, event: Event) -> Iterator[str]:
    """The scheduled masks that change nothing, or less, because this one comes before them."""
    mask = event.body
    assert isinstance(mask, MaskBody)
    for other in plan.holding:
        if not isinstance(other.body, MaskBody) or other.from_step <= event.from_step or other.body.by != mask.by:
            continue
        shared = [value for value in other.body.values if value in mask.values]
        if shared and mask.domain in ("", other.body.domain):
            what = "all of it" if len(shared) == len(other.body.values) else _names(shared)
            yield f"comes before {named(plan, other)}, and takes down {what} already from step {event.from_step} on"


def check_mask_domain(plan: Plan, body: MaskBody) -> None:
    """Refuses a mask of a domain that the run has not."""
    if body.domain and body.domain not in plan.domains:
        raise UsageError(f"no domain `{body.domain}` in the run; it has {_names(plan.domains)}")


def _masked_by(plan: Plan, body: MaskBody, step: int) -> dict[str, Event]:
    """The values of a mask that live events take down at a step, in the same way and as widely."""
    found: dict[str, Event] = {}
    for event in plan.holding:
        if event.kind != "mask" or event.from_step > step:
            continue
        other = event.body
        assert isinstance(other, MaskBody)
        if other.by == body.by:
            wide = other.domain in ("", body.domain)
            found |= {value: event for value in other.values if wide and value in body.values}
    return found


# ---- cancel


def check_cancel_event(plan: Plan, seal: int, event: Event) -> tuple[str, ...]:
    """Judges a cancel: its event must be live and hold from the seal on or later, and nothing may lean on it."""
    assert isinstance(event.body, CancelBody)
    number = event.body.sequence
    target = next((other for other in plan.live if other.sequence == number), None)
    if target is None:
        raise ConflictError(f"event {number} is not in the log, is cancelled already, or is a cancel itself")
    if target.from_step < seal:
        raise ConflictError(
            f"event {number} holds from step {target.from_step}, which is sealed; the first free step is {seal}: "
            f"make a new event from there instead"
        )
    gone = set(plan.domains) - set(plan.with_events([*(e for e in plan.events if e.sequence != number)]).domains)
    for other in plan.live:
        if other.sequence != number and gone & named_by(other):
            raise ConflictError(
                f"event {number} brings domain {_names(sorted(gone))}, which event {other.sequence} names; "
                f"cancel that one first"
            )
    return (f"event {number} will not take hold at step {target.from_step}", *_instead(plan, target))


def _instead(plan: Plan, target: Event) -> Iterator[str]:
    """Where the steps of cancelled weights get theirs from."""
    if target.kind != "weights":
        return
    timeline = make_timeline(plan.spec, [event for event in plan.holding if event != target])
    held = weight_range(target, phase_starts(plan.spec))
    given = by_event((one.after, one.first, one.end) for one in handovers(plan.timeline, timeline, held))
    for other, steps in itertools.islice(given.items(), MOST_NAMED):
        whence = "the schedule of the phase" if other is None else named(plan, other)
        yield f"weights of {in_words(steps)} come from {whence} instead"
    if len(given) > MOST_NAMED:
        yield f"the rest comes from {len(given) - MOST_NAMED} events more"
    if not given:
        yield f"later events hide all of event {target.sequence}, so no weight changes"


def named_by(event: Event) -> set[str]:
    """The domains that an event names."""
    match event.body:
        case WeightsBody(weights=weights, loss_weights=loss_weights):
            return {*weights, *loss_weights}
        case GrowBody(domain=domain) | MaskBody(domain=domain):
            return {domain}
        case CancelBody():
            return set()


def _check_free(plan: Plan, seal: int, step: int) -> None:
    if plan.spec.kind == "eval":
        raise ConflictError(
            f"run `{plan.spec.name}` is an evaluation, sealed whole when it was made: nothing of it can change; "
            f"make another one"
        )
    if step < seal:
        raise ConflictError(f"step {step} is sealed and can never change; the first free step is {seal}")
    if step >= plan.timeline.steps:
        raise ConflictError(f"the run ends at step {plan.timeline.steps}, so nothing can hold from step {step} on")


def _names(names: Sequence[str]) -> str:
    return ", ".join(f"`{name}`" for name in names[:8]) + (f" and {len(names) - 8} more" if len(names) > 8 else "")
