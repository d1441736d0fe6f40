"""Small runs for tests, written in one line each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headrace.server.plan import log
from headrace.server.plan.facts import CorpusFacts, ViewFacts
from headrace.server.plan.log import Body, Event, WeightsBody
from headrace.server.plan.plan import Plan
from headrace.server.plan.spec import DomainPolicy, Phase, Point, RunSpec


def facts(tokens: Mapping[str, int], *seq_lens: int) -> CorpusFacts:
    """Concat views, padded at the tail."""
    views = {
        (name, seq_len, "concat"): ViewFacts(windows=-(-count // seq_len), real_tokens=count)
        for name, count in tokens.items()
        for seq_len in seq_lens
    }
    return CorpusFacts(digest=bytes(32), tokens=dict(tokens), vocab_size=100, pad_id=1, views=views)


def phase(weights: Mapping[str, float], steps: int = 100, **changes: Any) -> Phase:
    points = changes.pop("points", None) or (Point(at=0, weights=weights),)
    fields = {"name": "p", "seq_len": 4, "batch": 8, "points": points, **changes}
    return Phase(steps=steps, **fields)


def spec(*phases: Phase, caps: Mapping[str, DomainPolicy] | None = None, **changes: Any) -> RunSpec:
    return RunSpec(**{"name": "r", "corpus": "c", "seed": 1, "phases": phases, "domains": caps or {}, **changes})


def plan(run: RunSpec, tokens: Mapping[str, int], events: tuple[Event, ...] = ()) -> Plan:
    return Plan(run, facts(tokens, *{shape[0] for shape in run.shapes()}), events)


def event(before: tuple[Event, ...], body: Body, from_step: int, until: int | None = None) -> tuple[Event, ...]:
    """The log with one event more."""
    made = log.append(before, body=body, from_step=from_step, until_step=until, author="me", reason="why", time_us=7)
    return (*before, made)


def weights(before: tuple[Event, ...], from_step: int, until: int | None = None, **parts: float) -> tuple[Event, ...]:
    return event(before, WeightsBody(weights=parts), from_step, until)


def windows_of(run: Plan, name: str, steps: range) -> list[tuple[int, int, int]]:
    """(pass, index, window) of a domain's slots, in slot order."""
    place = run.domains.index(name)
    found = []
    for step in steps:
        draw = run.draw(step)
        mine = draw.domains == place
        columns = (draw.passes[mine], draw.indices[mine], draw.windows[mine])
        found += [(int(p), int(i), int(w)) for p, i, w in zip(*columns, strict=True)]
    return found
