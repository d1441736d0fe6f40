"""Several mixtures of one corpus side by side: weights, epochs, what bound, cost, and a chart in plain SVG.

What holds: mixtures of different domains are refused by name rather than padded with zeros. What was given up: a
plotting library; the chart is grouped bars, drawn by hand, readable by any browser.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape

from headrace.mixer.epochs import epochs
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
    distance: float


def compare(
    mixtures: Mapping[str, Mixture], tokens: Mapping[str, float] | None = None, budget: float | None = None
) -> tuple[Column, ...]:
    """A column for each labelled mixture; distance: half the sum of differences from the first."""
    if not mixtures:
        raise UsageError("compare: no mixture given")
    labels = list(mixtures)
    first = mixtures[labels[0]]
    for label, mixture in mixtures.items():
        odd = sorted(set(mixture.weights) ^ set(first.weights))
        if odd:
            raise UsageError(f"compare: `{odd[0]}` is in only one of `{labels[0]}` and `{label}`; compare one corpus")
    return tuple(_column(label, mixture, first, tokens, budget) for label, mixture in mixtures.items())


def _column(
    label: str, mixture: Mixture, first: Mixture, tokens: Mapping[str, float] | None, budget: float | None
) -> Column:
    weights = dict(mixture.weights)
    flops = mixture.diagnostics.get("flops")
    return Column(
        label=label,
        weights=weights,
        epochs=epochs(weights, tokens, budget) if tokens and budget else {},
        bound={entry.domain: entry.kind for entry in mixture.caps.bound},
        flops=float(flops) if isinstance(flops, int | float) else None,
        distance=sum(abs(weight - first.weights[name]) for name, weight in weights.items()) / 2,
    )


def svg(columns: Sequence[Column], title: str = "mixture weights") -> str:
    """Grouped horizontal bars, one group a domain."""
    names = list(columns[0].weights)
    bar, gap, left, width = 12, 10, 170, 760
    group = bar * len(columns) + gap
    top = 40 + 16 * len(columns)
    height = top + group * len(names) + 10
    largest = max(weight for column in columns for weight in column.weights.values()) or 1.0
    scale = (width - left - 80) / largest
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        'font-family="sans-serif" font-size="11">',
        f'<rect width="{width}" height="{height}" fill="white"/>',
        f'<text x="10" y="20" font-size="14">{escape(title)}</text>',
    ]
    for index, column in enumerate(columns):
        colour, y = _COLOURS[index % len(_COLOURS)], 32 + 16 * index
        parts.append(f'<rect x="{left}" y="{y}" width="10" height="10" fill="{colour}"/>')
        parts.append(f'<text x="{left + 16}" y="{y + 9}">{escape(column.label)}</text>')
    for row, name in enumerate(names):
        y = top + row * group
        middle = y + bar * len(columns) / 2 + 4
        parts.append(f'<text x="{left - 8}" y="{middle:.1f}" text-anchor="end">{escape(name)}</text>')
        for index, column in enumerate(columns):
            length, at = column.weights[name] * scale, y + bar * index
            colour = _COLOURS[index % len(_COLOURS)]
            parts.append(f'<rect x="{left}" y="{at}" width="{length:.2f}" height="{bar - 2}" fill="{colour}"/>')
            parts.append(f'<text x="{left + length + 4:.2f}" y="{at + 9}">{column.weights[name]:.4f}</text>')
    return "\n".join([*parts, "</svg>"]) + "\n"
