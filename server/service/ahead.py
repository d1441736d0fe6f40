"""Rows that a stream is going to serve next, built together when they are not kept built.

A trainer at the seal is served from what the seal task has built. One that reads older steps (a rollback, an observer,
a replay) has its ranges built as they come up; one by one, each costs a change of threads and a message of its own. So
ranges that already wait are built along with the one that is due: twice as many each time, as long as as many wait,
and half as many when far fewer do, so that a client which takes steps as they come hardly waits for those after.

What was given up: up to `MOST_BYTES` a stream are held while its client is slow to take them.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterable, Sequence

from headrace.proto.errors import HeadraceError
from headrace.proto.v1 import data_pb2 as pb
from headrace.server.service.rows import StepRows

MOST_BYTES = 6 << 20
MOST_RANGES = 8
Range = pb.GetBatchRequest | pb.RowRange
_Key = tuple[int, int, int]


class Ahead:
    """What one stream has built ahead, until it is taken."""

    def __init__(self) -> None:
        self._rows: dict[_Key, StepRows] = {}
        self._most = 1

    def choose(self, due: Range, waiting: Iterable[Range], row_bytes: Callable[[int], int]) -> list[_Key]:
        """The range that is due, and those after it that should be built along with it."""
        chosen = [_key(due)]
        room = MOST_BYTES - due.rows * row_bytes(due.step)
        for wanted in itertools.islice(waiting, self._most - 1):
            room -= wanted.rows * row_bytes(wanted.step)
            if room < 0:
                break
            chosen.append(_key(wanted))
        if len(chosen) == self._most:
            self._most = min(2 * self._most, MOST_RANGES)
        elif room >= 0 and len(chosen) < self._most // 2:  # there were no more
            self._most //= 2
        return chosen

    def build(self, chosen: Sequence[_Key], build: Callable[[int, int, int], StepRows]) -> StepRows:
        """Builds them, on any thread, and gives the first; what is wrong with another is raised in its own turn."""
        due = build(*chosen[0])
        with contextlib.suppress(HeadraceError):
            for one in chosen[1:]:
                self._rows[one] = build(*one)
        return due

    def size(self, wanted: Range) -> int | None:
        """Bytes of ids of a range that is built; None when it is not."""
        built = self._rows.get(_key(wanted))
        return None if built is None else len(built.ids)

    def take(self, wanted: Range) -> StepRows | None:
        """The rows of a range that is built, once."""
        return self._rows.pop(_key(wanted), None)


def _key(wanted: Range) -> _Key:
    return wanted.step, wanted.first_slot, wanted.rows
