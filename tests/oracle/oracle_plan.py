"""The plan in plain Python, step by step and slot by slot from step 0: the rules as they are written, nothing clever.

Input is plain values: a spec as its JSON document, facts as {"tokens": {domain: T}, "views": {(domain, seq_len,
packing): (windows, real tokens)}}, events as dicts (sequence, kind, from_step, until_step, body), none cancelled.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from oracle_rng import key, permute, random_u64
from oracle_shares import between, gone, largest_remainder, parts, shares

WINDOW = 2**32


@dataclass
class Domain:
    """Where a domain stands. `served` is the number of plan tokens dealt."""

    name: str
    credit: int = 0
    pass_number: int = -1
    index: int = 0
    view: tuple[int, str] | None = None
    windows: int = 0
    real: int = 0
    served: int = 0

    def window_ahead(self, view: tuple[int, str], windows: int, real: int) -> Domain:
        """The domain with its next pass open, if its pass is over."""
        if self.view == view and self.index < self.windows:
            return self
        number = self.pass_number + 1
        return Domain(self.name, self.credit, number, 0, view, windows, real, self.served)

    def tokens_of_next(self) -> int:
        return (self.index + 1) * self.real // self.windows - self.index * self.real // self.windows


@dataclass
class Step:
    """What a step holds, and how domains stood at its start. Slots are (domain, pass, index, window)."""

    number: int
    slots: list[tuple[str, int, int, int]]
    cursor: dict[str, tuple[int, int, int, int]]  # credit, pass (0 before any), index, tokens
    shares: dict[str, int]
    loss_weights: dict[str, float]


@dataclass
class Oracle:
    """The run; iterate for its steps."""

    spec: dict[str, Any]
    tokens: dict[str, int]
    views: dict[tuple[str, int, str], tuple[int, int]]
    events: list[dict[str, Any]] = field(default_factory=list)
    ended: str | None = None

    def __post_init__(self) -> None:
        self.names = sorted(self.tokens, key=str.encode)
        self.domains = {name: Domain(name) for name in self.names}

    # ---- what holds at a step

    def phase(self, step: int) -> tuple[int, dict[str, Any]]:
        start = 0
        for phase in self.spec["phases"]:
            if step < start + phase["steps"]:
                return start, phase
            start += phase["steps"]
        raise IndexError(step)

    def event(self, step: int) -> dict[str, Any] | None:
        """The latest event by sequence whose range holds the step."""
        holding = [event for event in self.events if event["from_step"] <= step < self.range_end(event)]
        return max(holding, key=lambda event: event["sequence"], default=None)

    def range_end(self, event: dict[str, Any]) -> int:
        if event["until_step"] is not None:
            return int(event["until_step"])
        start, phase = self.phase(event["from_step"])
        return int(start + phase["steps"])

    def parts(self, step: int) -> list[int]:
        """Weights of a step before caps, in parts of 2^62."""
        event = self.event(step)
        if event is not None:
            return parts(event["body"]["weights"], self.names)
        start, phase = self.phase(step)
        points = phase["points"]
        here = max(i for i, point in enumerate(points) if start + point["at"] <= step)
        now = parts(points[here]["weights"], self.names)
        if points[here]["curve"] == "hold":
            return now
        goal = parts(points[here + 1]["weights"], self.names)
        offset = step - start - points[here]["at"]
        way = gone(points[here]["curve"], offset, points[here + 1]["at"] - points[here]["at"])
        return [between(a, b, way) for a, b in zip(now, goal, strict=True)]

    def view(self, name: str, phase: dict[str, Any]) -> tuple[int, int]:
        return self.views.get((name, phase["seq_len"], phase["packing"]), (0, 0))

    def at_cap(self, name: str, phase: dict[str, Any]) -> bool:
        """Would one more window take the domain beyond its cap?"""
        policy = self.spec["domains"].get(name)
        windows, real = self.view(name, phase)
        if policy is None or policy["cap"] is None or not windows:
            return False
        ahead = self.domains[name].window_ahead((phase["seq_len"], phase["packing"]), windows, real)
        return ahead.served + ahead.tokens_of_next() > Fraction(policy["cap"]) * self.tokens[name]

    # ---- the run

    def __iter__(self) -> Iterator[Step]:
        for step in range(sum(phase["steps"] for phase in self.spec["phases"])):
            made = self.step(step)
            if made is None:
                return
            yield made

    def step(self, step: int) -> Step | None:
        """Deals a step; None if it cannot be filled, with the reason in `ended`."""
        _, phase = self.phase(step)
        before = {name: self.stand(domain) for name, domain in self.domains.items()}
        open_parts = self.parts(step)
        target = self.shares(open_parts, phase)
        dealt = self.deal(step, phase, open_parts)
        if dealt is None:
            return None
        items = sorted(dealt, key=lambda item: str.encode(item[0]))
        places = [permute(key(self.spec["seed"], "slots", step, ""), phase["batch"], i) for i in range(len(items))]
        owner = {place: item[0] for place, item in zip(places, items, strict=True)}
        queue = {name: [item for item in dealt if item[0] == name] for name in self.names}
        slots = [queue[owner[slot]].pop(0) for slot in range(phase["batch"])]
        event = self.event(step)
        named = event["body"]["loss_weights"] if event else {}
        weights = {name: named.get(name, 1.0) for name in self.names}
        return Step(step, slots, before, dict(zip(self.names, target, strict=True)), weights)

    def stand(self, domain: Domain) -> tuple[int, int, int, int]:
        return domain.credit, max(domain.pass_number, 0), domain.index, domain.served

    def shares(self, weight_parts: list[int], phase: dict[str, Any]) -> list[int]:
        return shares(weight_parts, [(*self.view(name, phase), phase["seq_len"]) for name in self.names])

    def deal(self, step: int, phase: dict[str, Any], weight_parts: list[int]) -> list[tuple[str, int, int, int]] | None:
        """The windows of the step in the order in which they are given."""
        for i, name in enumerate(self.names):
            if weight_parts[i] and self.redistributes(name) and self.at_cap(name, phase):
                self.ended = name if self.ended is None else self.ended
                weight_parts[i] = -1
        closed = [name for name, part in zip(self.names, weight_parts, strict=True) if part < 0]
        weight_parts = [max(part, 0) for part in weight_parts]
        if not any(weight_parts):
            return None
        self.ended = None
        share = self.shares(weight_parts, phase)
        for name in closed:
            self.give_away(name, share)
        balanced = self.spec["draw"] == "balanced"
        if balanced:
            for name, part in zip(self.names, share, strict=True):
                self.domains[name].credit += part * phase["batch"]
        dealt = []
        for slot in range(phase["batch"]):
            if not any(weight_parts):
                self.ended = dealt[-1][0]
                return None
            name = self.most_credit(share) if balanced else self.drawn(step, slot, share)
            if self.at_cap(name, phase):
                self.ended = name
                return None
            if balanced:
                self.domains[name].credit -= WINDOW
            dealt.append(self.serve(name, phase))
            if self.redistributes(name) and self.at_cap(name, phase):
                weight_parts[self.names.index(name)] = 0
                share = self.shares(weight_parts, phase)
                self.give_away(name, share)
        return dealt

    def redistributes(self, name: str) -> bool:
        return bool(self.spec["domains"].get(name, {}).get("at_cap") == "redistribute")

    def give_away(self, name: str, share: list[int]) -> None:
        """The credit of a capped domain goes to the others in proportion to their shares."""
        credit = self.domains[name].credit
        if not any(share):
            return
        gifts = largest_remainder(abs(credit), share)
        self.domains[name].credit = 0
        for other, gift in zip(self.names, gifts, strict=True):
            self.domains[other].credit += gift if credit > 0 else -gift

    def most_credit(self, share: list[int]) -> str:
        open_names = [name for name, part in zip(self.names, share, strict=True) if part > 0]
        return max(open_names, key=lambda name: (self.domains[name].credit, [-byte for byte in name.encode()] + [1]))

    def drawn(self, step: int, slot: int, share: list[int]) -> str:
        """The domain whose part of [0, 2^32) holds the slot's random 32 bits."""
        place = random_u64(key(self.spec["seed"], "draw", step, ""), slot) >> 32
        end = 0
        for name, part in zip(self.names, share, strict=True):
            end += part
            if place < end:
                return name
        raise AssertionError("shares sum to 2^32")

    def serve(self, name: str, phase: dict[str, Any]) -> tuple[str, int, int, int]:
        """Deals the domain's next window."""
        windows, real = self.view(name, phase)
        domain = self.domains[name].window_ahead((phase["seq_len"], phase["packing"]), windows, real)
        self.domains[name] = domain
        index = domain.index
        window = index
        if self.spec["order"] == "full":
            window = permute(key(self.spec["seed"], "pass", domain.pass_number, name), domain.windows, index)
        domain.served += domain.tokens_of_next()
        domain.index += 1
        return name, domain.pass_number, index, window
