"""What of a log has decided the steps below one: the plan hash that checkpoints carry, and what an anchor rests on."""

from __future__ import annotations

import hashlib
import itertools
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from functools import cached_property

from headrace.server.plan.log import Event, content


class Hashes:
    """Hashes along live events in plan order, behind a spec's digest and, in a branch, the parent's hash (`before`).

    `known` are those of another log that begins alike.
    """

    def __init__(self, live: Sequence[Event], digest: bytes, before: bytes = b"", known: Sequence[bytes] = ()) -> None:
        self._live = live
        self._digest = digest
        self._before = before
        self._known = known
        self._from_steps = [event.from_step for event in live]

    def at(self, step: int) -> bytes:
        """SHA-256, 32 bytes, over the spec digest and the events that hold from a step below, in plan order."""
        return self._all[bisect_left(self._from_steps, step)]

    def basis(self, step: int) -> bytes:
        """What an anchor rests on: SHA-256 over the spec digest and the hashes of the live events below a step.

        Not the plan hash, which would have a plan with a long log serialise all of it before its first answer.
        """
        below = self._live[: bisect_left(self._from_steps, step)]
        return hashlib.sha256(b"".join((self._before, self._digest, *(event.hash for event in below)))).digest()

    def of(self, live: Sequence[Event]) -> Hashes:
        """The hashes of another log of the same run."""
        pairs = zip(self._live, live, strict=False)
        alike = itertools.takewhile(lambda pair: pair[0] is pair[1] or pair[0] == pair[1], pairs)
        return Hashes(live, self._digest, self._before, self._all[: sum(1 for _ in alike) + 1])

    def with_event(self, event: Event) -> tuple[tuple[Event, ...], Hashes]:
        """The live log with one event more, the latest of those from its step, and its hashes."""
        place = bisect_right(self._from_steps, event.from_step)
        live = (*self._live[:place], event, *self._live[place:])
        return live, Hashes(live, self._digest, self._before, self._all[: place + 1])

    @cached_property
    def _all(self) -> list[bytes]:
        """The hash before any event, and after each live one."""
        start = hashlib.sha256(self._before + self._digest).digest() if self._before else self._digest
        hashes = list(self._known or (start,))
        for event in self._live[len(hashes) - 1 :]:
            hashes.append(hashlib.sha256(hashes[-1] + content(event)).digest())
        return hashes


def first_difference(old: Sequence[Event], new: Sequence[Event]) -> int:
    """The first step at which two live logs may differ; very large if they are equal."""
    for a, b in zip(old, new, strict=False):
        if a != b:
            return min(a.from_step, b.from_step)
    rest = old[len(new) :] or new[len(old) :]
    return rest[0].from_step if rest else 1 << 63
