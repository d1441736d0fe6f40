"""Plots of a report as inline SVG: bars by language, and fairness against length. Pure functions of numbers.

Colours and text come from the page's style sheet (`.s0` to `.s7` for the tokenizers), so light and dark need one SVG.
"""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence

COLOURS = 8
_ROW = 14
_LEFT = 90
_WIDTH = 760


def bars(values: Mapping[str, Mapping[str, float]], *, unit: str, order: Sequence[str]) -> str:
    """Horizontal bars: for each of `order` a group with a bar for each tokenizer that has a value for it."""
    names = list(values)
    most = max((value for row in values.values() for value in row.values()), default=0.0) or 1.0
    group = _ROW * len(names) + 8
    parts = []
    for row, label in enumerate(order):
        top = row * group
        parts.append(_text(_LEFT - 8, top + group / 2, label, anchor="end"))
        for place, name in enumerate(names):
            value = values[name].get(label)
            if value is None:
                continue
            size = (_WIDTH - _LEFT - 70) * value / most
            y = top + 2 + place * _ROW
            title = html.escape(f"{name}, {label}: {value:.2f} {unit}")
            parts.append(
                f'<rect class="s{place % COLOURS}" x="{_LEFT}" y="{y:.1f}" width="{size:.1f}" height="{_ROW - 2}">'
                f"<title>{title}</title></rect>"
            )
            parts.append(_text(_LEFT + size + 4, y + _ROW / 2 + 3, f"{value:.1f}"))
    return _svg(group * len(order), parts, f"{unit} by language")


def scatter(points: Mapping[str, tuple[float, float]], *, across: str, up: str) -> str:
    """A point for each tokenizer, (across, up), with its name beside it; both axes begin at 0."""
    height, bottom = 320, 280
    right = max((x for x, _ in points.values()), default=0.0) * 1.15 or 1.0
    top = max((y for _, y in points.values()), default=0.0) * 1.15 or 1.0
    parts = [f'<path class="axis" d="M{_LEFT} 10V{bottom}H{_WIDTH - 20}"/>']
    for tick in range(1, 6):
        x, y = _LEFT + (_WIDTH - _LEFT - 40) * tick / 5, bottom - (bottom - 20) * tick / 5
        parts.append(_text(x, bottom + 16, f"{right * tick / 5:.3g}", anchor="middle"))
        parts.append(_text(_LEFT - 8, y + 4, f"{top * tick / 5:.3g}", anchor="end"))
        parts.append(f'<path class="grid" d="M{_LEFT} {y:.1f}H{_WIDTH - 20}"/>')
    parts.append(_text(_WIDTH / 2, height - 4, across, anchor="middle"))
    parts.append(_text(_LEFT + 6, 18, up))
    for place, (name, (x, y)) in enumerate(points.items()):
        left, down = _LEFT + (_WIDTH - _LEFT - 40) * x / right, bottom - (bottom - 20) * y / top
        title = html.escape(f"{name}: {x:.2f}, {y:.4f}")
        parts.append(
            f'<circle class="s{place % COLOURS}" cx="{left:.1f}" cy="{down:.1f}" r="6"><title>{title}</title></circle>'
        )
        parts.append(_text(left + 9, down + 4, name))
    return _svg(height, parts, f"{up} against {across}")


def _text(x: float, y: float, text: str, *, anchor: str = "start") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{html.escape(text)}</text>'


def _svg(height: float, parts: Sequence[str], label: str) -> str:
    return (
        f'<svg role="img" aria-label="{html.escape(label, quote=True)}" viewBox="0 0 {_WIDTH} {height:.0f}">'
        f"{''.join(parts)}</svg>"
    )
