"""Plots as SVG text: lines over steps, and bars with a mark. No script, no font, no address in them.

Colours are classes (`s0` to `s7` for lines), so that the style of the page that holds a plot decides on light and dark.
Lines of more than a few hundred points are thinned to one point a pixel.
"""

from __future__ import annotations

import html
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

WIDTH, HEIGHT = 860, 300
_LEFT, _RIGHT, _TOP, _BOTTOM = 62, 34, 12, 28
SERIES = 8


@dataclass(frozen=True, kw_only=True, slots=True)
class Line:
    """Values at the steps of a plot, None where there are none; `stepped` holds each value since the step before."""

    name: str
    place: int
    values: Sequence[float | None]
    dashed: bool = False
    stepped: bool = False


def ticks(low: float, high: float, most: int) -> list[float]:
    """Round numbers within a range, at most so many."""
    span = high - low
    if span <= 0:
        return [low]
    rough = span / max(1, most - 1)
    size = 10.0 ** math.floor(math.log10(rough))
    step = size * next(factor for factor in (1, 2, 2.5, 5, 10) if factor * size >= rough * (1 - 1e-9))
    first = math.ceil(low / step - 1e-9)
    return [number * step for number in range(first, math.floor(high / step + 1e-9) + 1)]


def lines_plot(
    steps: Sequence[int],
    lines: Sequence[Line],
    *,
    title: str,
    label: Callable[[float], str],
    marks: Iterable[int] = (),
    level: float | None = None,
) -> str:
    """Lines over steps. `marks` are steps with a thin line, `level` a value with one; `title` is what is read aloud."""
    values = [value for line in lines for value in line.values if value is not None]
    low, high = min([0.0, *values]), max([*values, level or 0.0, 1e-9])
    high += (high - low) * 0.04
    left, right = (0, max(steps, default=1)) if steps else (0, 1)
    frame = _Frame(left, right, low, high)
    parts = [f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{html.escape(title)}">']
    for value in ticks(low, high, 6):
        y = frame.y(value)
        parts.append(f'<path class="grid" d="M{_LEFT} {y}H{WIDTH - _RIGHT}"/>')
        parts.append(f'<text class="tick end" x="{_LEFT - 8}" y="{y + 4}">{html.escape(label(value))}</text>')
    for value in ticks(left, right, 9):
        parts.append(f'<text class="tick middle" x="{frame.x(value)}" y="{HEIGHT - 8}">{value:,.0f}</text>')
    for step in marks:
        parts.append(f'<path class="event" d="M{frame.x(step)} {_TOP}V{HEIGHT - _BOTTOM}"/>')
    if level is not None:
        parts.append(f'<path class="level" d="M{_LEFT} {frame.y(level)}H{WIDTH - _RIGHT}"/>')
    for line in lines:
        style = f"line s{line.place % SERIES}{' dashed' if line.dashed else ''}"
        parts.append(
            f'<path class="{style}" d="{frame.path(steps, line)}"><title>{html.escape(line.name)}</title></path>'
        )
    return "".join([*parts, "</svg>"])


@dataclass(frozen=True, slots=True)
class _Frame:
    """Places of values in a plot."""

    left: float
    right: float
    low: float
    high: float

    def x(self, step: float) -> float:
        return round(_LEFT + (WIDTH - _LEFT - _RIGHT) * (step - self.left) / max(self.right - self.left, 1e-9), 1)

    def y(self, value: float) -> float:
        inside = HEIGHT - _TOP - _BOTTOM
        return round(_TOP + inside * (1 - (value - self.low) / max(self.high - self.low, 1e-9)), 1)

    def path(self, steps: Sequence[int], line: Line) -> str:
        """Moves and lines; a gap where a value is missing."""
        out: list[str] = []
        pen, last = False, float("-inf")
        for place, (step, value) in enumerate(zip(steps, line.values, strict=True)):
            if value is None:
                pen = False
                continue
            x = self.x(step)
            if x - last < 0.7 and pen and place < len(steps) - 1:
                continue
            y = self.y(value)
            out.append(f"V{y}H{x}" if pen and line.stepped else f"{'L' if pen else 'M'}{x} {y}")
            pen, last = True, x
        return "".join(out)


def sparkline(values: Sequence[float | None], *, title: str) -> str:
    """A line without axes, from 0 to its highest value."""
    known = [value for value in values if value is not None]
    if len(known) < 2:
        return ""
    high = max(known) or 1.0
    width, height, count = 120, 22, len(values)
    every = max(1, count // width)
    points = [
        f"{width * place / (count - 1):.1f},{height - 1 - (height - 2) * value / high:.1f}"
        for place, value in enumerate(values)
        if value is not None and (place % every == 0 or place == count - 1)
    ]
    return (
        f'<svg class="spark" viewBox="0 0 {width} {height}" role="img" aria-label="{html.escape(title)}">'
        f'<polyline points="{" ".join(points)}"/></svg>'
    )


def bar(part: float, mark: float | None) -> str:
    """A bar of a part of 1, with a mark at another; for figures that stand beside it as text."""
    shown = f'<rect class="fill" width="{100 * min(max(part, 0), 1):.1f}" height="10"/>'
    if mark is not None:
        shown += f'<rect class="mark" x="{min(max(100 * mark - 0.6, 0), 98.8):.1f}" width="1.2" height="10"/>'
    return f'<svg class="bar" viewBox="0 0 100 10" preserveAspectRatio="none" aria-hidden="true">{shown}</svg>'
