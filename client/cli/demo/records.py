"""What the trainers wrote down of the stream, and the check that it is the stream that was planned."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from headrace.client.cli.demo.processes import DemoError


@dataclass(frozen=True, kw_only=True, slots=True)
class Record:
    """One step as the trainers received it."""

    step: int
    segment: int
    loss: float
    digest: str
    """Step digest over the rows of all ranks in slot order, hex."""


def read_records(path: Path) -> list[Record]:
    """The records of one attempt; a last line that a crash cut short is not a record."""
    if not path.exists():
        return []
    lines = path.read_text(encoding="utf-8").split("\n")[:-1]
    return [Record(**json.loads(line)) for line in lines]


def whole_stream(attempts: Sequence[Sequence[Record]], *, steps: int) -> list[Record]:
    """One record for each step of the run, from all attempts.

    Raises DemoError when a step is missing, or when a step that an attempt trained on again was not the same again.
    """
    stream: dict[int, Record] = {}
    for records in attempts:
        for record in records:
            earlier = stream.setdefault(record.step, record)
            if (earlier.digest, earlier.segment) != (record.digest, record.segment):
                raise DemoError(f"step {record.step} came again with other rows: {earlier.digest} and {record.digest}")
    missing = [step for step in range(steps) if step not in stream]
    if missing or len(stream) != steps:
        raise DemoError(
            f"the trainers should have seen steps 0 to {steps - 1}; missing: {missing[:5]}, seen: {len(stream)}"
        )
    return [stream[step] for step in range(steps)]


def check_digests(stream: Sequence[Record], planned: Mapping[int, str]) -> None:
    """Raise DemoError unless every step received has the digest that the plan gives it."""
    for record in stream:
        if planned.get(record.step) != record.digest:
            raise DemoError(
                f"step {record.step} was received as {record.digest} and planned as {planned.get(record.step)}: "
                "the stream that was served is not the one that was planned"
            )


def check_one_swap(stream: Sequence[Record], *, at: int) -> None:
    """Raise DemoError unless the segment changes exactly once, at step `at`."""
    changes = [later.step for earlier, later in pairwise(stream) if later.segment != earlier.segment]
    if changes != [at]:
        raise DemoError(f"the swap was announced for step {at}, and the segment changed at steps {changes}")
