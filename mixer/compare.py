"""Several mixtures of one corpus side by side: weights, epochs, what bound, cost, and a chart.

What holds: mixtures of different domains are refused by name rather than padded with zeros. What was given up: other
charts than grouped bars.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from headrace.mixer.epochs import epochs
from headrace.mixer.picture import Box, Line, Picture
from headrace.mixer.result import Mixture
from headrace.mixer.simplex import Weights
from headrace.proto.errors import UsageError

_COLOURS = ("#4269d0", "#efb118", "#ff725c", "#6cc5b0", "#3ca951", "#ff8ab7", "#a463f2", "#97bbf5", "#9c6b4e")


@dataclass(frozen=True, kw_only=True, slots=True)
class Column:
    """One mixture. epochs: where tokens and budget are known; bound: kind by domain; distance: from the first one."""

    label: str
    weights: Weights
    epochs: Weights
    bound: Mapping[str, str]
    flops: float | None
    seconds: float | None
    distance: float


def compare(
    mixtures: Mapping[str, Mixture],
    tokens: Mapping[str, float] | None = None,
    budget: float | None = None,
    seconds: Mapping[str, float] | None = None,
) -> tuple[Column, ...]:
    """A column for each labelled mixture; distance: half the sum of differences from the first.

    seconds: wall time by label, where it was kept; a result that sums measured trials has it in its diagnostics.
    """
    if not mixtures:
        raise UsageError("compare: no mixture given")
    labels = list(mixtures)
    first = mixtures[labels[0]]
    for label, mixture in mixtures.items():
        odd = sorted(set(mixture.weights) ^ set(first.weights))
        if odd:
            raise UsageError(f"compare: `{odd[0]}` is in only one of `{labels[0]}` and `{label}`; compare one corpus")
    return tuple(
        _column(
            label, mixture, first, epochs(mixture.weights, tokens, budget) if tokens and budget else {}, seconds or {}
        )
        for label, mixture in mixtures.items()
    )


def _column(
    label: str, mixture: Mixture, first: Mixture, read: Mapping[str, float], seconds: Mapping[str, float]
) -> Column:
    weights = dict(mixture.weights)
    return Column(
        label=label,
        weights=weights,
        epochs=dict(read),
        bound={entry.domain: entry.kind for entry in mixture.caps.bound},
        flops=_number(mixture.diagnostics.get("flops")),
        seconds=seconds.get(label, _number(mixture.diagnostics.get("seconds"))),
        distance=sum(abs(weight - first.weights[name]) for name, weight in weights.items()) / 2,
    )


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) else None


def chart(columns: Sequence[Column], title: str = "mixture weights") -> Picture:
    """Grouped horizontal bars, one group a domain; epochs, where known, and the bound stand beside the weight."""
    names = list(columns[0].weights)
    bar, gap, left, width = 12, 10, 170, 760
    group, top = bar * len(columns) + gap, 40 + 16 * len(columns)
    largest = max(weight for column in columns for weight in column.weights.values()) or 1.0
    scale = (width - left - 190) / largest
    boxes, lines = list[Box](), [Line(x=10, y=20, text=title, size=14)]
    for index, column in enumerate(columns):
        colour, y = _COLOURS[index % len(_COLOURS)], 32 + 16 * index
        boxes.append(Box(x=left, y=y, width=10, height=10, colour=colour))
        lines.append(Line(x=left + 16, y=y + 9, text=f"{column.label}{_cost(column)}"))
        for row, name in enumerate(names):
            length, at = column.weights[name] * scale, top + row * group + bar * index
            boxes.append(Box(x=left, y=at, width=length, height=bar - 2, colour=colour))
            lines.append(Line(x=left + length + 4, y=at + 9, text=_beside(column, name)))
    for row, name in enumerate(names):
        middle = top + row * group + bar * len(columns) / 2 + 4
        lines.append(Line(x=left - 8, y=middle, text=name, anchor="end"))
    return Picture(width=width, height=top + group * len(names) + 10, boxes=boxes, lines=lines)


def _cost(column: Column) -> str:
    flops = "" if column.flops is None else f", {column.flops:.3g} FLOPs"
    return flops + ("" if column.seconds is None else f", {column.seconds:.3g} s")


def _beside(column: Column, name: str) -> str:
    read = f", {column.epochs[name]:.3g} epochs" if name in column.epochs else ""
    return f"{column.weights[name]:.4f}{read}" + (f", {column.bound[name]}" if name in column.bound else "")
