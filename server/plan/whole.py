"""Evaluation: every window of a phase's domains once, in order, with the last batch filled up by empty rows.

A phase of a run of kind `eval` that names neither steps nor tokens is *whole*: domain after domain in bytewise order,
window after window, nothing shuffled, nothing twice. Its steps follow from the corpus. Rows beyond the last window have
the window `NO_WINDOW`: they are served as padding without a label and with loss weight 0, so that batches keep their
shape, every rank takes as many steps, and sums of losses hold each window exactly once.

`WholePiece` stands where the kernel's `Piece` does in other runs; everything here is in closed form.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
from headrace.native import plan_tokens
from headrace.proto.errors import UsageError
from headrace.server.plan.cursor import FIELDS, Words
from headrace.server.plan.facts import CorpusFacts, ViewFacts
from headrace.server.plan.shares import PARTS, SHARES
from headrace.server.plan.spec import Phase, Point, RunSpec

NO_WINDOW = (1 << 64) - 1
"""The window, and index, of a row that fills the last batch of an evaluation."""


def with_steps(spec: RunSpec, facts: CorpusFacts) -> RunSpec:
    """The spec with the steps of whole phases, and weights in proportion to windows, as this corpus makes them."""
    if all(phase.steps for phase in spec.phases):
        return spec
    if spec.domains:
        raise UsageError("an evaluation of every window knows no caps; leave the [domain] tables out, or give steps")
    return replace(spec, phases=tuple(phase if phase.steps else _measured(phase, facts) for phase in spec.phases))


def chosen(phase: Phase, domains: Sequence[str]) -> tuple[str, ...]:
    """The domains of a whole phase: those with a weight, or all if it names none."""
    named = [name for name, weight in phase.points[0].weights.items() if weight > 0] if phase.points else domains
    return tuple(sorted(named, key=str.encode))


def _measured(phase: Phase, facts: CorpusFacts) -> Phase:
    names = [name for name in chosen(phase, facts.domains) if name in facts.tokens]
    windows = {name: float(facts.view(name, *phase.shape).windows) for name in names}
    total = sum(facts.view(name, *phase.shape).windows for name in names)
    if not total:
        raise UsageError(
            f"phase `{phase.name}` has no window of {phase.seq_len} tokens ({phase.packing}) to evaluate; "
            f"give it a smaller seq_len, or more text"
        )
    return replace(phase, steps=-(-total // phase.batch), points=(Point(at=0, weights=windows),))


@dataclass(frozen=True, kw_only=True)
class WholePiece:
    """Steps from `first` on. `views` and `ends` are those of `names`: windows, and how many lie before and in each."""

    first: int
    batch: int
    view: int
    names: tuple[str, ...]
    views: tuple[ViewFacts, ...]
    ends: npt.NDArray[np.int64]

    def _served(self, step: int) -> npt.NDArray[np.int64]:
        """Windows of each domain that lie before a step."""
        begins = np.concatenate([np.zeros(1, np.int64), self.ends[:-1]])
        before = (step - self.first) * self.batch - begins
        served: npt.NDArray[np.int64] = np.minimum(np.maximum(before, 0), self.ends - begins)
        return served

    def parts(self, step: int) -> Words:
        """Each domain's part of the step's windows, in units of 2^-62."""
        counts = self._counts(step)
        return np.array([count * PARTS // sum(counts) for count in counts], dtype=np.uint64)

    def shares(self, step: int) -> npt.NDArray[np.int64]:
        """Each domain's share of the step's windows; what rounding leaves goes to the first that has one."""
        counts = self._counts(step)
        shares = [count * SHARES // sum(counts) for count in counts]
        shares[next(i for i, count in enumerate(counts) if count)] += SHARES - sum(shares)
        return np.array(shares, dtype=np.int64)

    def _counts(self, step: int) -> list[int]:
        return [int(count) for count in self._served(step + 1) - self._served(step)]

    def check(self, state: Words) -> None:
        """Raises ValueError when a state is not one of whole phases: what is dealt follows from the step alone."""
        split, credit = (state[:, FIELDS.index(name)] for name in ("split", "credit"))
        if state.shape != (len(self.names), len(FIELDS)) or split.any() or credit.any():
            raise ValueError("it is not that of an evaluation")

    def advance(self, state: Words, step: int, steps: int) -> tuple[Words, int, int | None]:
        """The state after `steps` steps."""
        before, after, made = self._served(step), self._served(step + steps), state.copy()
        for place in np.flatnonzero(after > before):
            made[place] = self._row(state[place], int(before[place]), int(after[place]), self.views[place])
        return made, steps, None

    def _row(self, row: Words, before: int, after: int, view: ViewFacts) -> Words:
        """A domain's row with `after` windows of this pass dealt; the pass opens with its first."""
        values = dict(zip(FIELDS, (int(word) for word in row), strict=True))
        if not before:
            served = int(plan_tokens(row.reshape(1, -1))[0])
            opened = values["pass"] + (values["windows"] > 0)
            values |= {"pass": opened, "before": served, "view": self.view, "generations": 1}
            values |= {"windows": view.windows, "real": view.real_tokens, "first": view.windows}
        return np.array([(values | {"index": after})[name] for name in FIELDS], dtype=np.uint64)

    def advance_watching(
        self, state: Words, step: int, steps: int
    ) -> tuple[Words, int, int | None, npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """As `advance`; nothing is owed in an evaluation."""
        nothing = np.zeros(len(self.names), dtype=np.int64)
        return (*self.advance(state, step, steps), nothing, nothing)

    def deal(self, state: Words, step: int) -> tuple[Any, int | None]:
        """Domain, pass, index and window of each slot."""
        counts = self._counts(step)
        begin, passes = self._served(step), self.advance(state, step, 1)[0][:, FIELDS.index("pass")]
        last = max(i for i, count in enumerate(counts) if count)
        empty = self.batch - sum(counts)
        places = np.repeat(np.arange(len(counts)), counts)
        windows = np.concatenate([np.arange(low, low + count) for low, count in zip(begin, counts, strict=True)])
        domains = np.concatenate([places, np.full(empty, last)]).astype(np.uint32)
        filled = np.concatenate([windows.astype(np.uint64), np.full(empty, NO_WINDOW, np.uint64)])
        return (domains, passes[domains], filled, filled.copy()), None

    def settled(self, state: Words) -> Words:
        """The state itself: no pass ends within a whole phase."""
        return state

    def unread(self, state: Words) -> Words:
        """Windows that another phase would leave unread: none, it reads all."""
        return np.zeros(len(self.names), dtype=np.uint64)

    def windows_left(self, state: Words) -> Words:
        """No domain is capped."""
        return np.full(len(self.names), NO_WINDOW, dtype=np.uint64)


def whole_piece(facts: CorpusFacts, names: Sequence[str], phase: Phase, first: int, view: int) -> WholePiece:
    """The piece of a whole phase, whose steps and weights are `with_steps`'s; `names` are in bytewise order."""
    nothing = ViewFacts(windows=0, real_tokens=0)
    wanted = phase.points[0].weights
    views = tuple(facts.view(name, *phase.shape) if name in wanted else nothing for name in names)
    ends = np.cumsum([view.windows for view in views], dtype=np.int64)
    return WholePiece(first=first, batch=phase.batch, view=view, names=tuple(names), views=views, ends=ends)
