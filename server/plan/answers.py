"""What a plan answers with: the slots of a step, where a run ends, what a branch skips and begins with."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from headrace.server.plan.cursor import Cursor, Words
from headrace.server.plan.log import Event


@dataclass(frozen=True, kw_only=True, eq=False, slots=True)
class Draw:
    """A step, one entry a slot: `domains` are places in `Plan.domains`."""

    domains: npt.NDArray[np.uint32]
    passes: Words
    indices: Words
    windows: Words
    loss_weights: npt.NDArray[np.float32]


@dataclass(frozen=True, kw_only=True, slots=True)
class End:
    """The step after the last one, and why there is no other."""

    step: int
    reason: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Skipped:
    """Windows of a domain that a branch leaves out, their plan tokens, and from where to where: (pass, index)."""

    windows: int
    tokens: int
    first: tuple[int, int]
    end: tuple[int, int]


@dataclass(frozen=True, kw_only=True, slots=True)
class Past:
    """What a branch begins with: its first step, the cursor there, the parent's domains, events and hash."""

    at: int
    cursor: Cursor
    domains: tuple[str, ...]
    events: tuple[Event, ...]
    hash: bytes
