"""Random small runs: a spec, facts and weights events, made from one seed so that a failure can be repeated."""

from __future__ import annotations

import json
import random
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from headrace.server.plan import log
from headrace.server.plan.facts import CorpusFacts, ViewFacts
from headrace.server.plan.log import Event, WeightsBody
from headrace.server.plan.plan import Plan
from headrace.server.plan.spec import DomainPolicy, Phase, Point, RunSpec
from oracle_plan import Oracle

SEQ_LENS = (4, 8, 16)


@dataclass(frozen=True)
class RandomRun:
    """A run in both forms."""

    seed: int
    spec: RunSpec
    facts: CorpusFacts
    events: tuple[Event, ...]

    def plan(self, anchors: tuple[tuple[int, str], ...] = ()) -> Plan:
        return Plan(self.spec, self.facts, self.events, anchors)

    def oracle(self) -> Oracle:
        views = {key: (view.windows, view.real_tokens) for key, view in self.facts.views.items()}
        spec = json.loads(self.spec.to_json())
        return Oracle(spec, dict(self.facts.tokens), views, self.plain_events())

    def plain_events(self) -> list[dict[str, Any]]:
        """The events by sequence, as the oracle wants them."""
        return [plain_event(event) for event in self.events]


def plain_event(event: Event) -> dict[str, Any]:
    assert isinstance(event.body, WeightsBody)
    return {
        "sequence": event.sequence,
        "kind": event.kind,
        "from_step": event.from_step,
        "until_step": event.until_step,
        "body": {"weights": dict(event.body.weights), "loss_weights": dict(event.body.loss_weights)},
    }


def weights(rng: random.Random, names: list[str], *, zeros: bool = True) -> dict[str, float]:
    """Skewed random weights that sum to about 1; some may be 0."""
    made = {name: 0.0 if zeros and rng.random() < 0.2 else rng.random() ** rng.choice((1, 4)) + 1e-6 for name in names}
    if not any(made.values()):
        made[names[0]] = 1.0
    total = sum(made.values())
    return {name: weight / total for name, weight in made.items()}


def make_facts(rng: random.Random, names: list[str]) -> CorpusFacts:
    tokens, views = {}, {}
    for name in names:
        tokens[name] = rng.choice((rng.randint(16, 60), rng.randint(60, 3000)))
        for seq_len in SEQ_LENS:
            windows = -(-tokens[name] // seq_len)
            views[name, seq_len, "concat"] = ViewFacts(windows=windows, real_tokens=tokens[name])
            loose = -(-windows * 5 // 4)
            views[name, seq_len, "best_fit"] = ViewFacts(windows=loose, real_tokens=max(tokens[name] - 3, loose))
    return CorpusFacts(digest=bytes(32), tokens=tokens, vocab_size=100, pad_id=1, views=views)


def make_phase(rng: random.Random, number: int, names: list[str]) -> Phase:
    steps = rng.randint(1, 30)
    places = sorted({0, *(rng.randrange(steps) for _ in range(rng.choice((0, 0, 1, 2))))})
    curves = [rng.choice(("hold", "linear", "cosine")) for _ in places[:-1]] + ["hold"]
    points = tuple(
        Point(at=at, weights=weights(rng, names), curve=curve) for at, curve in zip(places, curves, strict=True)
    )
    return Phase(
        name=f"p{number}",
        steps=steps,
        seq_len=rng.choice(SEQ_LENS),
        batch=rng.choice((1, 2, 3, 8, 17)),
        packing=rng.choice(("concat", "concat", "best_fit")),
        points=points,
    )


def make_run(seed: int) -> RandomRun:
    """The run of a seed."""
    rng = random.Random(seed)
    names = rng.sample(["b", "a", "a-b", "a.b", "B", "aa", "z9", "deu", "x+y"], rng.randint(1, 6))
    facts = make_facts(rng, names)
    policies = {
        name: DomainPolicy(
            cap=Decimal(rng.randint(1, 60)) / 10, at_cap="stop" if rng.random() < 0.15 else "redistribute"
        )
        for name in names
        if rng.random() < 0.35
    }
    phases = tuple(make_phase(rng, number, names) for number in range(rng.randint(1, 4)))
    spec = RunSpec(
        name="r",
        corpus="c",
        seed=rng.getrandbits(63),
        draw="balanced" if rng.random() < 0.75 else "multinomial",
        order="full" if rng.random() < 0.85 else "none",
        phases=phases,
        domains=policies,
    )
    events: list[Event] = []
    for _ in range(rng.choice((0, 1, 2, 5))):
        first = rng.randrange(spec.steps)
        until = first + rng.randint(1, 20) if rng.random() < 0.5 else None
        loss_weights = {name: 0.5 for name in names if rng.random() < 0.2}
        body = WeightsBody(weights=weights(rng, names), loss_weights=loss_weights)
        events.append(
            log.append(events, body=body, from_step=first, until_step=until, author="", reason="", time_us=len(events))
        )
    return RandomRun(seed=seed, spec=spec, facts=facts, events=tuple(events))
