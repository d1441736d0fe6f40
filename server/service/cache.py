"""Whole steps that are built already: the seal task reads a step before it is sealed, and serving takes it from here.

Bounded by bytes, oldest steps out first. Only what is sealed may enter, so nothing in it can ever be wrong.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable

from headrace.server.service.rows import StepRows, slice_rows

LARGEST_BYTES = 256 << 20


class BuiltSteps:
    """Whole steps of one run, by number."""

    def __init__(self, largest_bytes: int = LARGEST_BYTES) -> None:
        self._steps: OrderedDict[int, StepRows] = OrderedDict()
        self._left = largest_bytes

    def keep(self, steps: Iterable[StepRows]) -> None:
        """Keeps sealed steps as long as there is room for newer ones."""
        for built in steps:
            if built.step not in self._steps:
                self._steps[built.step] = built
                self._left -= built.size
        while self._left < 0:
            self._left += self._steps.popitem(last=False)[1].size

    def size(self, step: int, rows: int) -> int | None:
        """Bytes of the ids of so many rows of a step; None when the step is not here."""
        whole = self._steps.get(step)
        return None if whole is None else len(whole.ids) // whole.rows * rows

    def rows(self, step: int, first_slot: int, rows: int) -> StepRows | None:
        """Rows of a step, without copying their ids; None when the step is not here or has no such slots."""
        whole = self._steps.get(step)
        if whole is None or rows < 1 or first_slot + rows > whole.rows:
            return None
        return slice_rows(whole, first_slot, rows)
