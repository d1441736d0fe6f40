"""The event log: what the plan cannot know, in a chain of hashes.

An event holds from a step on. Its hash covers the hash of the event before it, so that nothing can be changed, taken
out or put in between without every later hash changing: the audit chain. The plan reads events by (from step,
sequence); numbers, authors and times are for people and never change a stream.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, TypeVar

from headrace.proto.errors import DataLossError, UsageError

EMPTY_HEAD = bytes(32)


@dataclass(frozen=True, kw_only=True, slots=True)
class WeightsBody:
    """Weights of real tokens for every domain of the run (0 allowed), and loss weights (1 where not named)."""

    weights: Mapping[str, float]
    loss_weights: Mapping[str, float] = field(default_factory=dict)

    kind = "weights"

    def __post_init__(self) -> None:
        _check_numbers("weight", self.weights)
        _check_numbers("loss weight", self.loss_weights)


@dataclass(frozen=True, kw_only=True, slots=True)
class CancelBody:
    """Takes back the event with this number."""

    sequence: int

    kind = "cancel"


@dataclass(frozen=True, kw_only=True, slots=True)
class GrowBody:
    """A generation joins a domain; a new name is a new domain. `generation` is the digest of its manifest, in hex.

    `join`: "next_pass" (its windows wait for the domain's next pass) or "now" (they are mixed with what the open pass
    has left). `manifest` says where it was; only the digest means anything to the plan.
    """

    domain: str
    generation: str
    join: str = "next_pass"
    manifest: str = ""

    kind = "grow"

    def __post_init__(self) -> None:
        if self.join not in JOINS:
            raise UsageError(f"a generation joins {' or '.join(JOINS)}, not `{self.join}`")
        if not DOMAIN_NAME.fullmatch(self.domain):
            raise UsageError(f"`{self.domain}` is not a domain name")
        if not re.fullmatch(r"[0-9a-f]{64}", self.generation):
            raise UsageError("a generation is named by the digest of its manifest: 64 hexadecimal digits")


@dataclass(frozen=True, kw_only=True, slots=True)
class MaskBody:
    """Documents taken down: their tokens are served as padding. `by` says what the values name.

    source: files, "path" or "path:row"; hash: hex XXH3-128 of texts, as `headrace corpus hash` prints it; shard: shards
    of the store that are quarantined; field: "name=value". An empty domain means every domain.
    """

    by: str
    values: tuple[str, ...]
    domain: str = ""

    kind = "mask"

    def __post_init__(self) -> None:
        if self.by not in MASKS:
            raise UsageError(f"a mask goes by {', '.join(MASKS)}, not by `{self.by}`")
        if not self.values or not all(self.values):
            raise UsageError("a mask names what it takes down: one value at least, none empty")


Body = WeightsBody | CancelBody | GrowBody | MaskBody
BodyT = TypeVar("BodyT", WeightsBody, CancelBody, GrowBody, MaskBody)
KINDS = ("weights", "cancel", "grow", "mask")
JOINS = ("next_pass", "now")
MASKS = ("source", "hash", "shard", "field")
DOMAIN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,63}")


@dataclass(frozen=True, kw_only=True)
class Event:
    """One entry of the log. `until_step` None: it holds until the next phase. Times are microseconds since 1970.

    `text` is the canonical JSON of the body. It is what hashes cover, so a log is verified without its bodies being
    made; `body` is made when it is first asked for, and raises UsageError where the text is none.
    """

    sequence: int
    kind: str
    from_step: int
    until_step: int | None
    text: str
    author: str
    reason: str
    time_us: int
    previous_hash: bytes
    hash: bytes

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise UsageError(f"this Headrace knows no event of kind `{self.kind}`; a newer version wrote it")
        if self.until_step is not None and self.kind != "weights":
            raise UsageError(f"a `{self.kind}` holds for good, it cannot end at step {self.until_step}")
        if self.sequence < 1 or self.from_step < 0:
            raise UsageError(f"an event cannot have number {self.sequence} and step {self.from_step}")
        if self.until_step is not None and self.until_step <= self.from_step:
            raise UsageError(
                f"an event from step {self.from_step} cannot end at step {self.until_step}; "
                f"name an end after its first step, or none"
            )

    @cached_property
    def body(self) -> Body:
        return body_from_json(self.kind, self.text)


def _check_numbers(what: str, weights: Mapping[str, float]) -> None:
    """Refuses what no stream can be made of; what a run makes of it is judged by the validator."""
    for name, weight in weights.items():
        if isinstance(weight, bool) or not isinstance(weight, int | float):
            raise UsageError(f"{what} of `{name}` is not a number")
        if not math.isfinite(weight) or weight < 0:
            raise UsageError(f"{what} of `{name}` must be a finite number of at least 0, not {weight}")


def canonical(value: Any) -> str:
    """JSON with sorted keys and no spaces: equal values have equal texts."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


def _plain(body: Body) -> dict[str, Any]:
    match body:
        case WeightsBody():
            weights = {name: float(weight) for name, weight in body.weights.items()}
            loss_weights = {name: float(weight) for name, weight in body.loss_weights.items()}
            return {"loss_weights": loss_weights, "weights": weights}
        case CancelBody():
            return {"sequence": body.sequence}
        case GrowBody():
            return {name: getattr(body, name) for name in ("domain", "generation", "join", "manifest")}
        case MaskBody():
            return {"by": body.by, "domain": body.domain, "values": list(body.values)}


def body_to_json(body: Body) -> str:
    """Canonical JSON of a body."""
    return canonical(_plain(body))


def body_from_json(kind: str, text: str) -> Body:
    """The body that `body_to_json` wrote. Raises UsageError for a kind that this version does not know."""
    values = json.loads(text)
    match kind:
        case "weights":
            return WeightsBody(weights=values["weights"], loss_weights=values["loss_weights"])
        case "cancel":
            return CancelBody(sequence=values["sequence"])
        case "grow":
            return GrowBody(**values)
        case "mask":
            return MaskBody(by=values["by"], domain=values["domain"], values=tuple(values["values"]))
    raise UsageError(f"this Headrace knows no event of kind `{kind}`; a newer version wrote it")


def bodies(events: Iterable[Event], wanted: type[BodyT]) -> Iterator[BodyT]:
    """The bodies of one kind, in order; those of other kinds are not made."""
    for event in events:
        if event.kind == wanted.kind:
            assert isinstance(event.body, wanted)
            yield event.body


def content(event: Event) -> bytes:
    """What an event means to the plan, as canonical JSON: no number, author, reason, time or path."""
    body = event.text
    if event.kind == "grow":
        body = canonical({name: value for name, value in _plain(event.body).items() if name != "manifest"})
    return f'["{event.kind}",{event.from_step},{canonical(event.until_step)},{body}]'.encode()


def chain_hash(event: Event, previous_hash: bytes) -> bytes:
    """SHA-256 over the previous hash and the whole event."""
    manifest = event.body.manifest if event.kind == "grow" and isinstance(event.body, GrowBody) else ""
    who = [event.sequence, event.author, event.reason, event.time_us, manifest]
    return hashlib.sha256(previous_hash + content(event) + b"\n" + canonical(who).encode()).digest()


def append(
    before: Sequence[Event],
    *,
    body: Body,
    from_step: int,
    until_step: int | None,
    author: str,
    reason: str,
    time_us: int,
    head: bytes = EMPTY_HEAD,
) -> Event:
    """The next event of a log. `head` is what an empty log starts from (a branch starts from its parent's head)."""
    draft = Event(
        sequence=before[-1].sequence + 1 if before else 1,
        kind=body.kind,
        from_step=from_step,
        until_step=until_step,
        text=body_to_json(body),
        author=author,
        reason=reason,
        time_us=time_us,
        previous_hash=before[-1].hash if before else head,
        hash=b"",
    )
    return replace(draft, hash=chain_hash(draft, draft.previous_hash))


def verify(events: Iterable[Event], head: bytes = EMPTY_HEAD, first: int = 1) -> bytes:
    """Checks numbers and hashes of a log from event `first` on, which follows `head`; returns the new head.

    Raises DataLossError naming the first bad event.
    """
    for number, event in enumerate(events, first):
        if event.sequence != number or event.previous_hash != head or event.hash != chain_hash(event, head):
            raise DataLossError(
                f"the audit chain breaks at event {event.sequence} (place {number} of the log): the log was changed "
                f"after it was written; restore the control store from a backup or an export"
            )
        head = event.hash
    return head


def live(events: Sequence[Event]) -> tuple[Event, ...]:
    """Events that mean something to the plan, by (from step, sequence): neither cancelled nor a `cancel`."""
    gone = {body.sequence for body in bodies(events, CancelBody)}
    kept = (event for event in events if event.sequence not in gone and event.kind != "cancel")
    return tuple(sorted(kept, key=lambda event: (event.from_step, event.sequence)))
