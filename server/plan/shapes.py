"""Shapes of steps: which range of steps has which batch, sequence length and packing."""

from __future__ import annotations

from dataclasses import dataclass, replace

from headrace.server.plan.spec import RunSpec
from headrace.server.plan.timeline import phase_starts


@dataclass(frozen=True, kw_only=True, slots=True)
class Shape:
    """Steps [from_step, to_step) have `batch` rows of `seq_len` tokens."""

    from_step: int
    to_step: int
    batch: int
    seq_len: int
    packing: str
    phase: str

    def clipped(self, first: int, end: int) -> Shape:
        """The part of it within [first, end)."""
        return replace(self, from_step=max(self.from_step, first), to_step=min(self.to_step, end))


def shapes_of(spec: RunSpec, first: int, end: int) -> list[Shape]:
    """The shapes of steps [first, end), one a phase."""
    starts = phase_starts(spec)
    whole = (
        Shape(
            from_step=start,
            to_step=start + phase.steps,
            batch=phase.batch,
            seq_len=phase.seq_len,
            packing=phase.packing,
            phase=phase.name,
        )
        for start, phase in zip(starts, spec.phases, strict=False)
    )
    return [shape.clipped(first, end) for shape in whole if shape.from_step < end and shape.to_step > first]
