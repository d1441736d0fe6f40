"""Random small runs: a spec, facts and weights events, made from one seed so that a failure can be repeated."""

from __future__ import annotations

import json
import random
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from headrace.server.plan import log
from headrace.server.plan.facts import CorpusFacts, GenerationFacts, ViewFacts
from headrace.server.plan.log import CancelBody, Event, GrowBody, WeightsBody
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
        generations = {
            key: (one.tokens, {shape: (view.windows, view.real_tokens) for shape, view in one.views.items()})
            for key, one in self.facts.generations.items()
        }
        spec = json.loads(self.spec.to_json())
        return Oracle(spec, dict(self.facts.tokens), views, self.plain_events(), generations)

    def plain_events(self) -> list[dict[str, Any]]:
        """The live events by sequence, as the oracle wants them."""
        return [plain_event(event) for event in sorted(log.live(self.events), key=lambda event: event.sequence)]


def plain_event(event: Event) -> dict[str, Any]:
    fields = ("sequence", "kind", "from_step", "until_step")
    return {**{name: getattr(event, name) for name in fields}, "body": json.loads(log.body_to_json(event.body))}


def weights(rng: random.Random, names: list[str], *, zeros: bool = True) -> dict[str, float]:
    """Skewed random weights that sum to about 1; some may be 0. One in three is of eighths, so that credits tie."""
    if rng.random() < 0.33:
        eighths = [rng.choice(names) for _ in range(8)]
        return {name: eighths.count(name) / 8 for name in names}
    made = {name: 0.0 if zeros and rng.random() < 0.2 else rng.random() ** rng.choice((1, 4)) + 1e-6 for name in names}
    if not any(made.values()):
        made[names[0]] = 1.0
    total = sum(made.values())
    return {name: weight / total for name, weight in made.items()}


def make_views(rng: random.Random, even: bool) -> tuple[int, dict[tuple[int, str], ViewFacts]]:
    """Real tokens of some files, and views of them; `even`: windows of `concat` are full."""
    tokens = rng.choice((rng.randint(16, 60), rng.randint(60, 3000)))
    tokens = -(-tokens // SEQ_LENS[-1]) * SEQ_LENS[-1] if even else tokens
    views = {}
    for seq_len in SEQ_LENS:
        windows = -(-tokens // seq_len)
        views[seq_len, "concat"] = ViewFacts(windows=windows, real_tokens=tokens)
        loose = -(-windows * 5 // 4)
        views[seq_len, "best_fit"] = ViewFacts(windows=loose, real_tokens=max(tokens - 3, loose))
    return tokens, views


def make_facts(rng: random.Random, names: list[str], joiners: list[tuple[str, str]]) -> CorpusFacts:
    even = rng.random() < 0.5
    made = {name: make_views(rng, even) for name in names}
    tokens = {name: size for name, (size, _) in made.items()}
    views = {(name, *shape): view for name, (_, of) in made.items() for shape, view in of.items()}
    generations = {
        joiner: GenerationFacts(tokens=size, views=of) for joiner in joiners for size, of in [make_views(rng, even)]
    }
    return CorpusFacts(digest=bytes(32), tokens=tokens, vocab_size=100, pad_id=1, views=views, generations=generations)


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
    new = ["a0"] if rng.random() < 0.5 else []
    joiners = [(f"{number:064x}", rng.choice(names + new)) for number in range(rng.choice((0, 0, 1, 3)))]
    facts = make_facts(rng, names, joiners)
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
        order=rng.choice(("full", "full", "full", "blocks", "none")),
        block_tokens=rng.choice((16, 48, 160)),
        phases=phases,
        domains=policies,
    )
    return RandomRun(seed=seed, spec=spec, facts=facts, events=tuple(make_events(rng, spec, names, joiners)))


def make_events(
    rng: random.Random, spec: RunSpec, names: list[str], joiners: list[tuple[str, str]], first: int = 0
) -> list[Event]:
    """Generations at random steps, then weights in any order, nested and hidden; some events are taken back."""
    wishes: list[tuple[log.Body, int, int | None]] = []
    joins: dict[str, int] = {}
    for generation, domain in joiners:
        step = rng.randrange(first, spec.steps)
        joins[domain] = min(joins.get(domain, step), step)
        join = "next_pass" if spec.order == "blocks" else rng.choice(("now", "next_pass"))
        body = GrowBody(domain=domain, generation=generation, join=join)
        wishes.append((body, step, None))
    for _ in range(rng.choice((0, 1, 2, 5))):
        step = rng.randrange(first, spec.steps)
        there = names + [name for name, join in joins.items() if join <= step and name not in names]
        until = step + rng.randint(1, 20) if rng.random() < 0.5 else None
        loss_weights = {name: 0.5 for name in there if rng.random() < 0.2}
        wishes.append((WeightsBody(weights=weights(rng, there), loss_weights=loss_weights), step, until))
    events: list[Event] = []
    for body, step, until in wishes:
        events.append(append(events, body, step, until))
        if isinstance(body, WeightsBody) and rng.random() < 0.1:
            events.append(append(events, CancelBody(sequence=events[-1].sequence), step, None))
    return events


def append(events: list[Event], body: log.Body, step: int, until: int | None) -> Event:
    return log.append(events, body=body, from_step=step, until_step=until, author="", reason="", time_us=len(events))
