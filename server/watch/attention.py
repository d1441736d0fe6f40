"""What needs a look, and how much: a shard in quarantine, off target, near a cap, drifting, a rank or a store away.

Small samples are no alarm: with the balanced draw a domain may be a window or two from its target and is right, with
the multinomial draw it may be several standard deviations, so both are allowed before anything is called off target.
The states of a domain, most urgent first: `quarantine`, `drift`, `off`, `near cap`, `capped`, `ok`, `unused`.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from headrace.server.watch.values import DomainFigures, LeaseFigures, Note, RunFigures, Surroundings

OFF_TARGET = 0.02
"""Points of share, as in the alert ShareOffTarget."""
NEAR_CAP = 0.9
"""Part of a cap."""
MANY_EPOCHS = 4.0
"""Beyond it repeated tokens lose their worth quickly (Muennighoff et al., 2023)."""
RANK_SILENT_US = 30_000_000
MOST_NOTES = 24


def allowed_windows(draw: str, due: float, windows: float, domains: int) -> float:
    """Windows that a domain may be from its target by the draw alone."""
    harmonic = math.log(max(1, domains)) + 1
    if draw == "multinomial":
        return 4 * math.sqrt(max(windows * due * (1 - due), 0.0)) + 1
    return harmonic + 1


def judge_domains(
    domains: Sequence[DomainFigures],
    run: RunFigures,
    *,
    windows: float,
    alarmed: Collection[str],
    quarantined: Collection[str] = (),
) -> list[DomainFigures]:
    """Each domain with its state and urgency; `windows` were dealt in the window, `alarmed` are those that drift,
    `quarantined` those with a shard that is not read any more."""
    capped = {domain.name for domain in domains if _is_capped(domain, run)}
    made = []
    for domain in domains:
        allowed = allowed_windows(run.draw, domain.window_due, windows, len(domains))
        apart = domain.window_share - domain.window_due
        # What a capped domain gives up, the others get: that is as it should be.
        is_off = abs(apart) > OFF_TARGET and abs(domain.behind) > allowed and not (capped and apart > 0)
        if domain.name in quarantined:
            made.append(replace(domain, state="quarantine", urgency=5.0))
            continue
        state, urgency = _state(domain, capped=domain.name in capped, is_off=is_off, drifts=domain.name in alarmed)
        made.append(replace(domain, state=state, urgency=urgency))
    return made


def _state(domain: DomainFigures, *, capped: bool, is_off: bool, drifts: bool) -> tuple[str, float]:
    apart = abs(domain.window_share - domain.window_due)
    used = domain.epochs / domain.cap if domain.cap else 0.0
    if drifts:
        return "drift", 4 + apart
    if capped:
        return "capped", 1.0
    if is_off:
        return "off", 3 + apart
    if used >= NEAR_CAP:
        return "near cap", 2 + used
    return ("ok", 0.0) if domain.target or domain.tokens else ("unused", -1.0)


def _is_capped(domain: DomainFigures, run: RunFigures) -> bool:
    """Whether no whole window is left below the cap."""
    return domain.cap is not None and domain.size > 0 and domain.cap * domain.size - domain.tokens < run.phase.seq_len


LEVELS = ("alarm", "warning", "note")


def judge_run(
    run: RunFigures,
    lease: LeaseFigures | None,
    domains: Sequence[DomainFigures],
    drift: Sequence[Mapping[str, Any]],
    around: Surroundings,
) -> list[Note]:
    """What to look at, most urgent first."""
    found = [
        *_of_server(run, around.refused),
        *_of_domains(run, domains, drift),
        *_ranks(lease, around.now_us),
        *_repeats(domains),
    ]
    found.sort(key=lambda note: LEVELS.index(note.level))
    more = len(found) - MOST_NOTES
    return found if more <= 0 else [*found[:MOST_NOTES], Note(level=found[MOST_NOTES].level, text=f"and {more} more")]


def _of_server(run: RunFigures, refused: Mapping[str, str]) -> Iterator[Note]:
    if run.data_error:
        yield Note(level="alarm", text=f"The seal is stuck: {run.data_error}")
    elif run.damage:
        yield Note(level="alarm", text=f"Blocks failed their checksum: {run.damage}")
    if run.store_error:
        text = f"The control store is away, serving goes on up to step {run.seal}: {run.store_error}"
        yield Note(level="alarm", text=text)
    if run.known_until is not None:
        text = f"A generation is not open on this server: no step from {run.known_until} on"
        yield Note(level="alarm", text=text)
    for name, why in sorted(refused.items()):
        yield Note(level="alarm", text=f"Run {name} is not served by this server: {why}")


def _of_domains(
    run: RunFigures, domains: Sequence[DomainFigures], drift: Sequence[Mapping[str, Any]]
) -> Iterator[Note]:
    for figure in drift:
        if figure["alarm"]:
            yield Note(level="alarm", text=_drift_text(figure), domain=str(figure["domain"]))
    yield from map(_off_text, [domain for domain in domains if domain.state == "off"][:5])
    for domain in domains:
        if domain.state == "quarantine":
            text = f"{domain.name} has shards in quarantine: what they hold is served as padding"
            yield Note(level="warning", text=text, domain=domain.name)
        if domain.state == "near cap":
            yield Note(level="warning", text=_cap_text(domain, run), domain=domain.name)
        if domain.state == "capped":
            yield Note(level="note", text=_capped_text(domain), domain=domain.name)


def _drift_text(figure: Mapping[str, Any]) -> str:
    return (
        f"{figure['domain']}: {str(figure['feature']).replace('_', ' ')} drifts against the {figure['against']}, "
        f"JSD {figure['jsd']:.3g} bits, {figure['value_floor_ratio']:.3g} times its noise floor"
    )


def _off_text(domain: DomainFigures) -> Note:
    apart = 100 * (domain.window_share - domain.window_due)
    side = "above" if apart > 0 else "below"
    text = f"{domain.name} is {abs(apart):.1f} points {side} its target of {100 * domain.window_due:.1f} %"
    return Note(level="warning", text=text, domain=domain.name)


def _cap_text(domain: DomainFigures, run: RunFigures) -> str:
    assert domain.cap is not None
    text = f"{domain.name} has used {domain.epochs:.2f} of {domain.cap:g} epochs"
    if domain.cap_step is None or (run.end is not None and domain.cap_step >= run.end):
        return f"{text}; at this pace the run ends first"
    what = "the run stops there" if domain.at_cap == "stop" else "then others get its share"
    return f"{text}: its cap comes at about step {domain.cap_step:,}, {what}"


def _capped_text(domain: DomainFigures) -> str:
    return f"{domain.name} has used up its cap of {domain.cap:g} epochs and gets nothing more"


def _ranks(lease: LeaseFigures | None, now_us: int) -> Iterator[Note]:
    if lease is None:
        return
    if lease.open < lease.world:
        yield Note(level="warning", text=f"{lease.open} of {lease.world} ranks are open")
    silent = [rank for rank in lease.ranks if now_us - rank.heard_us > RANK_SILENT_US]
    if silent:
        names = ", ".join(rank.label for rank in silent[:5])
        who = "1 rank was" if len(silent) == 1 else f"{len(silent)} ranks were"
        text = f"{who} not heard for {RANK_SILENT_US // 1_000_000} s: {names}"
        yield Note(level="warning", text=text)


def _repeats(domains: Sequence[DomainFigures]) -> Iterator[Note]:
    many = [domain for domain in domains if domain.epochs > MANY_EPOCHS]
    if many:
        names = ", ".join(f"{domain.name} ({domain.epochs:.1f})" for domain in many[:5])
        more = f" and {len(many) - 5} more" if len(many) > 5 else ""
        text = f"Beyond {MANY_EPOCHS:g} epochs repeated text is worth ever less: {names}{more}"
        yield Note(level="note", text=text)
