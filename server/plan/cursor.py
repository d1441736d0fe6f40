"""Where every domain stands at the start of a step, and the anchors from which any other step is near.

A cursor is an array of (domains, 10) 64-bit integers that the kernel moves; rows are in bytewise order of the names.
As JSON it is keyed by name, so that a domain that joins later finds its row empty and no other row moved.
"""

from __future__ import annotations

import json
import threading
from bisect import bisect_right, insort
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from headrace.native import plan_tokens
from headrace.proto.errors import DataLossError
from headrace.server.plan.log import canonical

FIELDS = ("credit", "pass", "index", "before", "windows", "real", "view", "generations", "split", "first")
RECENT = 32

Words = npt.NDArray[np.uint64]


@dataclass(frozen=True, kw_only=True, eq=False, slots=True)
class Cursor:
    """The state at the start of `step`.

    Columns of `state`: credit (units of 2^-32 windows, two's complement), pass, index (windows dealt of it), plan
    tokens before it, its windows and real tokens, its view, its generations, and where generations joined it.
    """

    step: int
    domains: tuple[str, ...]
    state: Words

    def _column(self, name: str) -> Words:
        return self.state[:, FIELDS.index(name)]

    @property
    def credit(self) -> npt.NDArray[np.int64]:
        """Windows owed to each domain by the draw, in units of 2^-32."""
        return np.ascontiguousarray(self._column("credit")).view(np.int64)

    @property
    def passes(self) -> Words:
        return self._column("pass")

    @property
    def indices(self) -> Words:
        """Windows of the pass that are dealt; equal to the pass's length when it is used up."""
        return self._column("index")

    @property
    def windows(self) -> Words:
        """Length of the open pass, in windows; 0 where none is open yet."""
        return self._column("windows")

    @property
    def tokens(self) -> Words:
        """Plan tokens served since the start of the run."""
        return plan_tokens(self.state)

    def over(self, domains: Sequence[str], step: int | None = None) -> Cursor:
        """The same state with the rows of these domains, empty where there was none; as the cursor of `step`."""
        step = self.step if step is None else step
        if self.domains == tuple(domains):
            return Cursor(step=step, domains=self.domains, state=self.state)
        rows = {name: row for name, row in zip(self.domains, self.state, strict=True) if row.any() or name in domains}
        nothing = np.zeros(len(FIELDS), dtype=np.uint64)
        state = np.array([rows.pop(name, nothing) for name in domains], dtype=np.uint64)
        if rows:
            raise DataLossError(f"a cursor has domains {', '.join(rows)}, which the plan has not")
        return Cursor(step=step, domains=tuple(domains), state=state)

    def to_json(self) -> str:
        """One line, exact whatever the size of the numbers."""
        rows = {
            name: [int(word) for word in row] for name, row in zip(self.domains, self.state, strict=True) if row.any()
        }
        return canonical({"schema": 1, "step": self.step, "fields": list(FIELDS), "domains": rows})


def empty(domains: Sequence[str]) -> Cursor:
    """The cursor of step 0."""
    return Cursor(step=0, domains=tuple(domains), state=np.zeros((len(domains), len(FIELDS)), dtype=np.uint64))


def from_json(text: str, domains: Sequence[str]) -> Cursor:
    """Reads what `to_json` wrote. Raises DataLossError when it is not that, or names a domain that there is not."""
    try:
        values: dict[str, Any] = json.loads(text)
        rows = {name: [int(word) for word in row] for name, row in values["domains"].items()}
        state = np.array([rows.pop(name, [0] * len(FIELDS)) for name in domains], dtype=np.uint64)
        good = values["schema"] == 1 and values["fields"] == list(FIELDS) and not rows
        if good and state.shape == (len(domains), len(FIELDS)) and _is_sound(state):
            return Cursor(step=int(values["step"]), domains=tuple(domains), state=state)
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError):
        pass
    raise DataLossError(f"an anchor cannot be read: {text[:80]!r}; delete the anchors of the run, they are made again")


def _is_sound(state: Words) -> bool:
    """Places of a pass in order: where generations joined, what is dealt, its length."""
    split, index, windows = (state[:, FIELDS.index(name)] for name in ("split", "index", "windows"))
    return bool(((split <= index) & (index <= windows)).all())


class Anchors:
    """Cursors by step: those of the store for good, read when they are needed, and the latest few.

    May be used by several threads.
    """

    def __init__(self, first: Cursor, stored: Iterable[tuple[int, str]] = ()) -> None:
        self._lock = threading.Lock()
        self._domains = first.domains
        self._kept: dict[int, Cursor | str] = {**dict(stored), first.step: first}
        self._recent: dict[int, Cursor] = {}
        self._steps = sorted(self._kept)

    def nearest(self, step: int) -> Cursor:
        """The latest cursor at or before a step. Raises DataLossError when the store's cannot be read."""
        with self._lock:
            at = self._steps[bisect_right(self._steps, step) - 1]
            found = self._recent.get(at) or self._kept[at]
            if isinstance(found, str):
                found = self._kept[at] = from_json(found, self._domains)
            return found

    def remember(self, cursor: Cursor) -> None:
        """Keeps a cursor until 32 others have come after it."""
        with self._lock:
            if cursor.step in self._kept or cursor.step in self._recent:
                return
            self._recent[cursor.step] = cursor
            insort(self._steps, cursor.step)
            if len(self._recent) > RECENT:
                oldest = next(iter(self._recent))
                del self._recent[oldest]
                self._steps.remove(oldest)

    def below(self, step: int, first: Cursor) -> Anchors:
        """Those up to and at a step, over the domains of `first`, which is the first cursor of all."""
        with self._lock:
            held = {**self._kept, **self._recent}
        made = Anchors(first)
        for at in sorted(at for at in held if first.step < at <= step):
            cursor = held[at]
            made._kept[at] = cursor if isinstance(cursor, str) else cursor.over(first.domains)
            made._steps.append(at)
        return made
