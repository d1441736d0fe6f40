"""What a checkpoint says of the stream: small, the same for all ranks, safe in JSON.

It counts the steps that the trainer has taken, never those prefetched, and holds no rank and no worker, so any world
size can load it. A step is taken when the loader has handed it out (with micro-batches: its last one). Take the state
after the optimizer step, in the same place as the model's.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headrace.proto.errors import StateMismatchError, UsageError
from headrace.proto.v1 import data_pb2

SCHEMA = 1
KEYS = {"schema", "run_id", "spec_digest", "plan_hash", "next_step"}


@dataclass(frozen=True, kw_only=True, slots=True)
class State:
    """Position in a run. `plan_hash` covers the events below `next_step`, the first step not taken yet."""

    run_id: str
    spec_digest: bytes
    plan_hash: bytes
    next_step: int

    def __post_init__(self) -> None:
        if not self.run_id:
            raise StateMismatchError("state: run_id is empty")
        for name in ("spec_digest", "plan_hash"):
            size = len(getattr(self, name))
            if size != 32:
                raise StateMismatchError(f"state: {name} has {size} bytes, 32 are needed")
        if not 0 <= self.next_step < 2**63:
            raise StateMismatchError(f"state: next_step must be from 0 to 2^63 - 1, not {self.next_step!r}")

    def to_dict(self) -> dict[str, Any]:
        """JSON-safe: strings and whole numbers only."""
        return {
            "schema": SCHEMA,
            "run_id": self.run_id,
            "spec_digest": self.spec_digest.hex(),
            "plan_hash": self.plan_hash.hex(),
            "next_step": self.next_step,
        }

    @classmethod
    def from_dict(cls, value: Mapping[str, Any], *, place: str = "state") -> State:
        """Checks every key; raises StateMismatchError that names `place` and what is wrong there."""
        if not isinstance(value, Mapping):
            raise StateMismatchError(f"{place}: a mapping is needed, not {type(value).__name__}")
        if value.get("schema") != SCHEMA:
            raise StateMismatchError(
                f"{place}: schema is {value.get('schema')!r}, this version reads {SCHEMA}; "
                "it is no state of a Headrace loader, or one of another version"
            )
        if value.keys() != KEYS:
            odd = ", ".join(sorted(str(key) for key in value.keys() ^ KEYS))
            raise StateMismatchError(f"{place}: missing or unknown keys: {odd}")
        step = value["next_step"]
        if type(step) is not int:
            raise StateMismatchError(f"{place}: next_step must be a whole number, not {step!r}")
        return cls(
            run_id=str(value["run_id"]),
            spec_digest=_hex(value["spec_digest"], f"{place}: spec_digest"),
            plan_hash=_hex(value["plan_hash"], f"{place}: plan_hash"),
            next_step=step,
        )

    def to_message(self) -> data_pb2.State:
        return data_pb2.State(
            schema=SCHEMA,
            run_id=self.run_id,
            spec_digest=self.spec_digest,
            plan_hash=self.plan_hash,
            next_step=self.next_step,
        )


def _hex(value: object, place: str) -> bytes:
    try:
        return bytes.fromhex(value if isinstance(value, str) else "?")
    except ValueError:
        raise StateMismatchError(f"{place} must be a string of hexadecimal digits, not {value!r}") from None


def load_file(path: Path) -> State:
    """Reads a state from a JSON file: the state itself, or a document that holds one under some key."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UsageError(f"{path}: no such file") from None
    except (OSError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise UsageError(f"{path}: cannot be read as JSON: {error}") from None
    return only_state(document, place=str(path))


def only_state(document: object, *, place: str) -> State:
    """The one state in a document: itself, or somewhere in its mappings. Raises UsageError for none or several."""
    found = _states_in(document, "")
    if len(found) != 1:
        where = ", ".join(inside or "top" for inside, _ in found)
        raise UsageError(f"{place}: one loader state is needed, found {len(found)}{': ' + where if found else ''}")
    inside, value = found[0]
    return State.from_dict(value, place=f"{place}{': ' + inside if inside else ''}")


def _states_in(value: object, place: str) -> list[tuple[str, Mapping[str, Any]]]:
    if not isinstance(value, dict):
        return []
    if {"schema", "next_step"} <= value.keys():
        return [(place, value)]
    return [found for key, inner in value.items() for found in _states_in(inner, f"{place}.{key}".lstrip("."))]
