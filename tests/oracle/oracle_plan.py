"""The plan in plain Python, step by step and slot by slot from step 0: the rules as they are written, nothing clever.

Input is plain values: a spec as its JSON document, facts as {"tokens": {domain: T}, "views": {(domain, seq_len,
packing): (windows, real tokens)}}, events as dicts (sequence, kind, from_step, until_step, body), none cancelled.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any

from oracle_rng import key, permute, random_u64, threefry
from oracle_shares import between, gone, largest_remainder, parts, shares

WINDOW = 2**32


@dataclass
class Domain:
    """Where a domain stands. A pass is a list of (window, plan tokens); `served` is the number of plan tokens dealt."""

    name: str
    credit: int = 0
    pass_number: int = -1
    index: int = 0
    view: tuple[int, str] | None = None
    generations: int = 0
    joined: bool = False
    windows: list[tuple[int, int]] = field(default_factory=list)
    ranks: list[int] = field(default_factory=list)  # in the order `blocks`: rank of the group of each window
    served: int = 0

    def tokens_of_next(self) -> int:
        return self.windows[self.index][1]


@dataclass
class Generations:
    """The views of the generations that a domain has at a step, and which of them asked to join at once."""

    view: tuple[int, str]
    sizes: list[tuple[int, int]]  # windows, real tokens
    now: list[bool]
    tokens: list[int]

    @property
    def total(self) -> tuple[int, int]:
        return sum(windows for windows, _ in self.sizes), sum(real for _, real in self.sizes)


def spread(real: int, windows: int) -> list[int]:
    """Plan tokens of each of some windows: floor((i + 1) R / n) - floor(i R / n)."""
    return [(i + 1) * real // windows - i * real // windows for i in range(windows)]


def grouped_pass(
    seed: int, number: int, name: str, group: int, generations: list[tuple[int, int, int]]
) -> tuple[list[tuple[int, int]], list[int]]:
    """As `fresh_pass`, group by group, and the rank of each window's group. Generations: windows, real, groups."""
    groups: list[list[int]] = []
    first = 0
    for windows, _, count in generations:
        groups += [list(range(first + g * group, first + min((g + 1) * group, windows))) for g in range(count)]
        first += windows
    places: list[int] = []
    ranks: list[int] = []
    for rank in range(len(groups)):
        number_of = permute(key(seed, "groups", number, name), len(groups), rank)
        inside = threefry(key(seed, "block", number, name), number_of, 0)
        members = groups[number_of]
        places += [members[permute(inside, len(members), i)] for i in range(len(members))]
        ranks += [rank] * len(members)
    return list(zip(places, spread(sum(real for _, real, _ in generations), first), strict=True)), ranks


@functools.lru_cache(maxsize=64)
def fresh_pass(seed: int, order: str, number: int, name: str, windows: int, real: int) -> list[tuple[int, int]]:
    """All windows of a pass in order, with their plan tokens."""
    places = range(windows)
    if order == "full":
        a_key = key(seed, "pass", number, name)
        places = [permute(a_key, windows, i) for i in range(windows)]
    return list(zip(places, spread(real, windows), strict=True))


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
    generations: dict[tuple[str, str], Any] = field(default_factory=dict)  # (tokens, {(seq_len, packing): (n, R)})
    first: int = 0
    domains: dict[str, Domain] = field(default_factory=dict)
    ended: str | None = None

    def __post_init__(self) -> None:
        grows = sorted((e for e in self.events if e["kind"] == "grow"), key=lambda e: (e["from_step"], e["sequence"]))
        self.grows = grows
        self.names = sorted({*self.tokens, *(event["body"]["domain"] for event in grows)}, key=str.encode)
        self.domains = {name: self.domains.get(name, Domain(name)) for name in self.names}

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
        weights = [event for event in self.events if event["kind"] == "weights"]
        holding = [event for event in weights if event["from_step"] <= step < self.range_end(event)]
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

    def grown(self, name: str, phase: dict[str, Any], step: int) -> Generations:
        view = (phase["seq_len"], phase["packing"])
        base = [self.views.get((name, *view), (0, 0))] if name in self.tokens else []
        joined = [event["body"] for event in self.joined(name, step)]
        known = [self.generations[body["generation"], name] for body in joined]
        sizes = base + [views.get(view, (0, 0)) for _, views in known]
        tokens = ([self.tokens[name]] if name in self.tokens else []) + [size for size, _ in known]
        return Generations(view, sizes, [False] * len(base) + [body["join"] == "now" for body in joined], tokens)

    def joined(self, name: str, step: int) -> list[dict[str, Any]]:
        return [e for e in self.grows if e["from_step"] <= step and e["body"]["domain"] == name]

    def size(self, name: str, step: int) -> int:
        """Real tokens of a domain at a step."""
        grown = (self.generations[event["body"]["generation"], name][0] for event in self.joined(name, step))
        return self.tokens.get(name, 0) + sum(grown)

    def ahead(self, name: str, now: Generations) -> Domain:
        """The domain with its next pass open, if its pass is over, or with generations that join it."""
        domain = self.domains[name]
        windows, real = now.total
        if self.spec["order"] == "blocks":
            return self.ahead_in_blocks(domain, now)
        if domain.view != now.view or domain.index == len(domain.windows):
            number = domain.pass_number + 1
            one = fresh_pass(self.spec["seed"], self.spec["order"], number, name, windows, real)
            return Domain(name, domain.credit, number, 0, now.view, len(now.sizes), False, one, [], domain.served)
        if not domain.joined and any(now.now[domain.generations :]):
            return self.mixed(domain, now)
        return domain

    def ahead_in_blocks(self, domain: Domain, now: Generations) -> Domain:
        """A pass whose groups hold the same tokens at a new seq_len goes on at the next group."""
        seq_len, packing = now.view
        group = self.spec["block_tokens"] // seq_len
        concat = packing == "concat"
        sizes = [
            (windows, real, -(-tokens // self.spec["block_tokens"]) if concat else -(-windows // group))
            for (windows, real), tokens in zip(now.sizes, now.tokens, strict=True)
        ]
        used_up = domain.index == len(domain.windows)
        if domain.view == now.view and not used_up:
            return domain
        seed = self.spec["seed"]
        if not used_up and domain.view is not None and (domain.view[1], packing) == ("concat", "concat"):
            old = sizes[: domain.generations]
            one, ranks = grouped_pass(seed, domain.pass_number, domain.name, group, old)
            begun = domain.ranks[domain.index - 1] if domain.index else -1
            index = sum(rank <= begun for rank in ranks)
            if index < len(one):
                real = sum(tokens for _, tokens in one[index:])
                left = zip((window for window, _ in one[index:]), spread(real, len(one) - index), strict=True)
                windows = one[:index] + list(left)
                return replace(domain, view=now.view, index=index, windows=windows, ranks=ranks)
        number = domain.pass_number + 1
        one, ranks = grouped_pass(seed, number, domain.name, group, sizes)
        return Domain(domain.name, domain.credit, number, 0, now.view, len(sizes), False, one, ranks, domain.served)

    def mixed(self, domain: Domain, now: Generations) -> Domain:
        """What the pass has left and the windows of the new generations, permuted together."""
        left = [window for window, _ in domain.windows[domain.index :]]
        before = sum(windows for windows, _ in now.sizes[: domain.generations])
        left += range(before, now.total[0])
        real = sum(tokens for _, tokens in domain.windows[domain.index :])
        real += sum(real for _, real in now.sizes[domain.generations :])
        if self.spec["order"] == "full":
            a_key = key(self.spec["seed"], "join", domain.pass_number, domain.name)
            left = [left[permute(a_key, len(left), i)] for i in range(len(left))]
        windows = domain.windows[: domain.index] + list(zip(left, spread(real, len(left)), strict=True))
        return replace(domain, windows=windows, joined=True, generations=len(now.sizes))

    def at_cap(self, name: str, phase: dict[str, Any], step: int) -> bool:
        """Would one more window take the domain beyond its cap?"""
        policy = self.spec["domains"].get(name)
        now = self.grown(name, phase, step)
        if policy is None or policy["cap"] is None or not now.total[0]:
            return False
        ahead = self.ahead(name, now)
        return ahead.served + ahead.tokens_of_next() > Fraction(policy["cap"]) * self.size(name, step)

    # ---- the run

    def __iter__(self) -> Iterator[Step]:
        for step in range(self.first, sum(phase["steps"] for phase in self.spec["phases"])):
            made = self.step(step)
            if made is None:
                return
            yield made

    def step(self, step: int) -> Step | None:
        """Deals a step; None if it cannot be filled, with the reason in `ended`."""
        _, phase = self.phase(step)
        before = {name: self.stand(domain) for name, domain in self.domains.items()}
        open_parts = self.parts(step)
        target = self.shares(open_parts, phase, step)
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

    def shares(self, weight_parts: list[int], phase: dict[str, Any], step: int) -> list[int]:
        return shares(weight_parts, [(*self.grown(name, phase, step).total, phase["seq_len"]) for name in self.names])

    def deal(self, step: int, phase: dict[str, Any], weight_parts: list[int]) -> list[tuple[str, int, int, int]] | None:
        """The windows of the step in the order in which they are given."""
        for i, name in enumerate(self.names):
            if weight_parts[i] and self.redistributes(name) and self.at_cap(name, phase, step):
                self.ended = name if self.ended is None else self.ended
                weight_parts[i] = -1
        closed = [name for name, part in zip(self.names, weight_parts, strict=True) if part < 0]
        weight_parts = [max(part, 0) for part in weight_parts]
        if not any(weight_parts):
            return None
        self.ended = None
        share = self.shares(weight_parts, phase, step)
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
            if self.at_cap(name, phase, step):
                self.ended = name
                return None
            if balanced:
                self.domains[name].credit -= WINDOW
            dealt.append(self.serve(name, phase, step))
            if self.redistributes(name) and self.at_cap(name, phase, step):
                weight_parts[self.names.index(name)] = 0
                share = self.shares(weight_parts, phase, step)
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

    def serve(self, name: str, phase: dict[str, Any], step: int) -> tuple[str, int, int, int]:
        """Deals the domain's next window."""
        domain = self.domains[name] = self.ahead(name, self.grown(name, phase, step))
        index = domain.index
        window, tokens = domain.windows[index]
        domain.served += tokens
        domain.index += 1
        return name, domain.pass_number, index, window
