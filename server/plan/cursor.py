"""Where every domain stands at the start of a step.

A cursor is an array of (domains, 10) 64-bit integers that the kernel moves; rows are in bytewise order of the names.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from headrace.native import plan_tokens
from headrace.proto.errors import DataLossError

FIELDS = ("credit", "pass", "index", "before", "windows", "real", "view", "generations", "split", "first")

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


def empty(domains: Sequence[str]) -> Cursor:
    """The cursor of step 0."""
    return Cursor(step=0, domains=tuple(domains), state=np.zeros((len(domains), len(FIELDS)), dtype=np.uint64))
