"""A run's spec: everything that is fixed when a run is made.

`RunSpec.from_toml` reads RUN.toml (see `headrace.server.plan.read`), `to_json` writes the canonical document, `digest`
names its content. The digest covers plan version, seed, kind, draw, order, phases, policies and the corpus digest; it
covers no name of run or phase, no path and no `lead`, which change nothing in the stream.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from decimal import Decimal
from typing import Any

from headrace.proto.errors import UsageError
from headrace.server.plan.log import DOMAIN_NAME, canonical

PLAN_VERSION = 1
"""Rises whenever a spec and a log would give another stream than before; a server refuses versions it does not know."""

DRAWS = ("balanced", "multinomial")
ORDERS = ("full", "blocks", "none")
PACKINGS = ("concat", "best_fit")
KINDS = ("train", "eval")
CURVES = ("hold", "linear", "cosine")
AT_CAP = ("redistribute", "stop")
NAME = DOMAIN_NAME

BLOCK_TOKENS = 1 << 26
"""Tokens of a group in the order `blocks`: 128 MiB of two-byte ids, one long read of a remote store."""
LARGEST_BATCH = 1 << 20
LARGEST_SEQ_LEN = 1 << 30
LARGEST_RUN = 1 << 62
"""Tokens of a run, so that no count of tokens, windows or steps leaves 64 bits."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Point:
    """Weights `at` steps after the start of the phase, and the curve from here to the next point."""

    at: int
    weights: Mapping[str, float]
    curve: str = "hold"

    def __post_init__(self) -> None:
        if self.curve not in CURVES:
            raise UsageError(f"no curve `{self.curve}`; there are {', '.join(CURVES)}")
        for name, weight in self.weights.items():
            if not NAME.fullmatch(name):
                raise UsageError(f"`{name}` is not a domain name")
            if not math.isfinite(weight) or weight < 0:
                raise UsageError(f"weight of `{name}` must be a finite number of at least 0, not {weight}")
        if not any(weight > 0 for weight in self.weights.values()):
            raise UsageError("some domain must have a weight above 0")


@dataclass(frozen=True, kw_only=True, slots=True)
class Phase:
    """`steps` steps of one shape: `batch` windows of `seq_len` tokens. The first of `points` is at 0.

    0 steps: a whole phase of an evaluation, which the corpus measures; without `points` it has every domain.
    """

    name: str
    steps: int
    seq_len: int
    batch: int
    packing: str = "concat"
    points: tuple[Point, ...]

    def __post_init__(self) -> None:
        if not NAME.fullmatch(self.name):
            raise UsageError(f"`{self.name}` is not a name for a phase; letters, digits and ._+- make one")
        if self.steps < 0 or not 1 <= self.seq_len <= LARGEST_SEQ_LEN or not 1 <= self.batch <= LARGEST_BATCH:
            raise UsageError(f"phase `{self.name}`: {self.steps} steps of {self.batch} x {self.seq_len} tokens")
        if self.packing not in PACKINGS:
            raise UsageError(f"phase `{self.name}`: no packing `{self.packing}`; there are {', '.join(PACKINGS)}")
        if not self.steps:
            if [point for point in self.points if point.at or point.curve != "hold"]:
                raise UsageError(f"phase `{self.name}`: an evaluation of every window has no schedule")
            return
        places = [point.at for point in self.points]
        if not places or places[0] != 0 or sorted(set(places)) != places or places[-1] >= self.steps:
            raise UsageError(
                f"phase `{self.name}`: its `schedule` must begin at 0, rise, and lie within its {self.steps} steps"
            )
        if self.points[-1].curve != "hold":
            raise UsageError(
                f"phase `{self.name}`: the last point of its `schedule` has no next one to go to; leave its curve out"
            )

    @property
    def shape(self) -> tuple[int, str]:
        return self.seq_len, self.packing


@dataclass(frozen=True, kw_only=True, slots=True)
class DomainPolicy:
    """`cap` in epochs, an exact decimal, or None; `at_cap`: what happens there."""

    cap: Decimal | None = None
    at_cap: str = "redistribute"

    def __post_init__(self) -> None:
        if self.cap is not None and not (self.cap.is_finite() and self.cap > 0):
            raise UsageError(f"a cap must be a number of epochs above 0, not {self.cap}")
        if self.at_cap not in AT_CAP:
            raise UsageError(f"at_cap must be one of {', '.join(AT_CAP)}, not `{self.at_cap}`")


@dataclass(frozen=True, kw_only=True, slots=True)
class Branch:
    """Where a run leaves its parent: it shares the parent's plan below `at`, and its cursor there is the parent's at
    `at + skip`.

    `parent_digest` is the parent's spec digest and `parent_hash` its plan hash at `at + skip`, in hex: so the child's
    digest stands for all of its past. `keeps_weights`: weights events of the parent that hold at `at` go on.
    """

    run: str
    parent_digest: str
    parent_hash: str
    at: int
    skip: int = 0
    keeps_weights: bool = True

    def __post_init__(self) -> None:
        if self.at < 0 or self.skip < 0:
            raise UsageError(f"a branch cannot be at step {self.at} and skip {self.skip} steps")


@dataclass(frozen=True, kw_only=True, slots=True)
class RunSpec:
    """The spec of a run. `corpus` is the path of the manifest as written; `domains` holds policies, where given.

    `block_tokens` is the size of a group in the order `blocks`, which every seq_len divides.
    Phases count from step 0 even in a branch, whose steps below `branch.at` are its parent's.
    """

    name: str
    corpus: str
    seed: int
    kind: str = "train"
    lead: int = 8
    draw: str = "balanced"
    order: str = "full"
    phases: tuple[Phase, ...]
    block_tokens: int = BLOCK_TOKENS
    domains: Mapping[str, DomainPolicy] = field(default_factory=dict)
    branch: Branch | None = None

    def __post_init__(self) -> None:
        if not NAME.fullmatch(self.name):
            raise UsageError(f"`{self.name}` is not a name for a run; letters, digits and ._+- make one")
        if not 0 <= self.seed < 1 << 63 or not 1 <= self.lead <= 1 << 20:
            raise UsageError("a seed is from 0 to 2^63 - 1 and a lead from 1 to 2^20")
        for value, options in ((self.kind, KINDS), (self.draw, DRAWS), (self.order, ORDERS)):
            if value not in options:
                raise UsageError(f"`{value}` is not one of {', '.join(options)}")
        for phase in self.phases:
            if self.order == "blocks" and (self.block_tokens < 1 or self.block_tokens % phase.seq_len):
                raise UsageError(
                    f"phase `{phase.name}`: seq_len {phase.seq_len} does not divide block_tokens {self.block_tokens}, "
                    f"so windows would cross groups; choose a multiple of every seq_len"
                )
        names = [phase.name for phase in self.phases]
        if not names or len(set(names)) != len(names):
            raise UsageError("a run has one phase at least, and no two of one name")
        whole = [phase.name for phase in self.phases if not phase.steps]
        if whole and (self.kind != "eval" or len(whole) < len(self.phases)):
            raise UsageError(
                f"phase `{whole[0]}` names neither steps nor tokens: that is for runs of kind `eval`, which then read "
                f"every window once in each of their phases"
            )
        if self.branch is not None and self.branch.at >= self.steps:
            raise UsageError(f"a branch at step {self.branch.at} needs steps beyond it; its phases have {self.steps}")
        if sum(phase.steps * phase.batch * phase.seq_len for phase in self.phases) >= LARGEST_RUN:
            raise UsageError(f"a run has fewer than 2^62 tokens ({LARGEST_RUN}); make it shorter")

    @property
    def steps(self) -> int:
        """Steps of all phases."""
        return sum(phase.steps for phase in self.phases)

    def shapes(self) -> set[tuple[int, str]]:
        """(seq_len, packing) of every view that the run reads."""
        return {phase.shape for phase in self.phases}

    @staticmethod
    def from_toml(text: str, *, place: str) -> RunSpec:
        """Reads RUN.toml; raises ConfigError naming `place` and the line."""
        from headrace.server.plan.read import read_run

        return read_run(text, place=place)

    def to_json(self) -> str:
        """The canonical document: sorted keys, no spaces, decimals as texts."""
        return canonical({"plan_version": PLAN_VERSION, **_plain(self)})

    @staticmethod
    def from_json(text: str) -> RunSpec:
        """Reads what `to_json` wrote; raises UsageError for another plan version."""
        values = json.loads(text)
        version = values.pop("plan_version", None)
        if version != PLAN_VERSION:
            raise UsageError(
                f"spec of plan version {version}; this Headrace knows {PLAN_VERSION}: use the one that wrote it"
            )
        return _from_plain(values)

    def digest(self, corpus_digest: bytes) -> bytes:
        """SHA-256 of what decides the stream, 32 bytes."""
        content = _plain(self)
        for key in ("name", "corpus", "lead"):
            del content[key]
        for phase in content["phases"]:
            del phase["name"]
        if "branch" in content:
            del content["branch"]["run"]
        document = {"plan_version": PLAN_VERSION, "corpus_digest": corpus_digest.hex(), **content}
        return hashlib.sha256(canonical(document).encode()).digest()


def _plain(spec: RunSpec) -> dict[str, Any]:
    """The spec as plain values, with every default written out."""
    policies = {
        name: {"cap": None if policy.cap is None else format(policy.cap.normalize(), "f"), "at_cap": policy.at_cap}
        for name, policy in spec.domains.items()
    }
    fields = ("name", "corpus", "seed", "kind", "lead", "draw", "order")
    phases = [_plain_phase(phase) for phase in spec.phases]
    more: dict[str, Any] = {} if spec.branch is None else {"branch": asdict(spec.branch)}
    if spec.order == "blocks":
        more["block_tokens"] = spec.block_tokens
    return {**{key: getattr(spec, key) for key in fields}, "phases": phases, "domains": policies, **more}


def _plain_phase(phase: Phase) -> dict[str, Any]:
    points = [
        {"at": point.at, "curve": point.curve, "weights": {name: float(w) for name, w in point.weights.items()}}
        for point in phase.points
    ]
    fields = ("name", "steps", "seq_len", "batch", "packing")
    return {**{key: getattr(phase, key) for key in fields}, "points": points}


def _from_plain(values: dict[str, Any]) -> RunSpec:
    phases = tuple(
        Phase(**{**phase, "points": tuple(Point(**point) for point in phase["points"])}) for phase in values["phases"]
    )
    domains = {
        name: DomainPolicy(cap=None if policy["cap"] is None else Decimal(policy["cap"]), at_cap=policy["at_cap"])
        for name, policy in values["domains"].items()
    }
    branch = Branch(**values["branch"]) if "branch" in values else None
    return RunSpec(**{**values, "phases": phases, "domains": domains, "branch": branch})
