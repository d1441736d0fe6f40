"""Cursors to begin from: those of the store as texts that show any damage, and those that walks have left in memory.

An anchor is one line: the SHA-256 of what follows it, a space, and JSON with the step, what the cursor rests on (a
digest of the spec and of the log below the step) and the cursor. A text that was changed anywhere, or that belongs to
another log or corpus, is refused; the plan also has the kernel look at the numbers, so that no anchor can make it
panic. Given up: going on without a bad anchor, which would hide that the store is damaged.
"""

from __future__ import annotations

import hashlib
import json
import threading
from bisect import bisect_right, insort
from collections.abc import Callable, Iterable, Sequence

import numpy as np
from headrace.proto.errors import DataLossError
from headrace.server.plan.cursor import FIELDS, Cursor
from headrace.server.plan.log import canonical

SCHEMA = 2
RECENT = 32
MOST_MARKS = 4096
REMEDY = "`headrace run verify RUN --forget-anchors` deletes what is damaged, and it is made again"

Read = Callable[[int, str], Cursor]


def to_text(cursor: Cursor, basis: bytes) -> str:
    """The anchor of a cursor, exact whatever the size of the numbers."""
    rows = {
        name: [int(word) for word in row] for name, row in zip(cursor.domains, cursor.state, strict=True) if row.any()
    }
    body = canonical(
        {"schema": SCHEMA, "step": cursor.step, "basis": basis.hex(), "fields": list(FIELDS), "domains": rows}
    )
    return f"{hashlib.sha256(body.encode()).hexdigest()} {body}"


def from_text(text: str, step: int, domains: Sequence[str], basis: bytes) -> Cursor:
    """Reads what `to_text` wrote. Raises DataLossError when it is not that, or of another step, plan or domain."""
    digest, _, body = text.partition(" ")
    if hashlib.sha256(body.encode(errors="replace")).hexdigest() != digest:
        raise damaged(step, "its bytes have changed since it was written, or another version wrote it")
    try:
        values = json.loads(body)
        if (values["schema"], values["step"], values["fields"]) != (SCHEMA, step, list(FIELDS)):
            raise damaged(step, "it is of another version or another step")
        if values["basis"] != basis.hex():
            raise damaged(step, f"it rests on spec and log {values['basis'][:16]}, here they are {basis.hex()[:16]}")
        rows = {name: [int(word) for word in row] for name, row in values["domains"].items()}
        state = np.array([rows.pop(name, [0] * len(FIELDS)) for name in domains], dtype=np.uint64)
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError) as error:
        raise damaged(step, f"it is not one: {type(error).__name__}") from None
    if rows or state.shape != (len(domains), len(FIELDS)):
        raise damaged(step, "its domains or fields are not those of the plan")
    return Cursor(step=step, domains=tuple(domains), state=state)


def damaged(step: int, what: str) -> DataLossError:
    """The refusal of an anchor at or below a step, with what to do about it."""
    return DataLossError(f"the stored anchor at or below step {step} cannot be used: {what}; {REMEDY}")


class Anchors:
    """Cursors by step: those of the store, read when they are needed; marks that walks left; the latest few.

    May be used by several threads.
    """

    def __init__(self, first: Cursor, stored: Iterable[tuple[int, str]] = ()) -> None:
        self._lock = threading.Lock()
        self._held: dict[int, Cursor | str] = {**dict(stored), first.step: first}
        self._marks: list[int] = []
        self._recent: dict[int, Cursor] = {}
        self._steps = sorted(self._held)

    def nearest(self, step: int, read: Read) -> Cursor:
        """The latest cursor at or before a step; `read` makes one of a stored text, or raises DataLossError."""
        with self._lock:
            at = self._steps[bisect_right(self._steps, step) - 1]
            found = self._recent.get(at) or self._held[at]
            if isinstance(found, str):
                found = self._held[at] = read(at, found)
            return found

    def remember(self, cursor: Cursor, *, mark: bool = False) -> None:
        """Keeps a cursor: a mark for good (every second one when they become many), others until 32 have followed."""
        with self._lock:
            if cursor.step in self._held:
                return
            if cursor.step not in self._recent:
                insort(self._steps, cursor.step)
            if mark:
                self._recent.pop(cursor.step, None)
                self._held[cursor.step] = cursor
                self._marks.append(cursor.step)
                self._thin()
                return
            self._recent[cursor.step] = cursor
            if len(self._recent) > RECENT:
                self._forget(next(iter(self._recent)), self._recent)

    def _thin(self) -> None:
        if len(self._marks) > MOST_MARKS:
            self._marks.sort()
            for step in self._marks[::2]:
                self._forget(step, self._held)
            del self._marks[::2]

    def _forget(self, step: int, where: dict[int, Cursor] | dict[int, Cursor | str]) -> None:
        del where[step]
        self._steps.remove(step)

    def below(self, step: int, first: Cursor) -> Anchors:
        """Those up to and at a step, over the domains of `first`, which is the first cursor of all."""
        with self._lock:
            held = {at: cursor for at, cursor in self._held.items() if first.step < at <= step}
            recent = {at: cursor for at, cursor in self._recent.items() if first.step < at <= step}
            marks = [at for at in self._marks if at in held]
        made = Anchors(first)
        for at, cursor in held.items():
            made._held[at] = cursor if isinstance(cursor, str) else cursor.over(first.domains)
        made._recent = {at: cursor.over(first.domains) for at, cursor in recent.items()}
        made._marks = marks
        made._steps = sorted({*made._held, *made._recent})
        return made
