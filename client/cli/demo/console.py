"""What the demo prints: numbered stages with their times, plain lines and tables that need no colour."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import click


def say(text: str) -> None:
    """A line below the running stage."""
    for line in text.splitlines():
        click.echo(f"      {line}")


class Stages:
    """Numbers the stages, times each and sums up at the end."""

    def __init__(self, total: int) -> None:
        self._total = total
        self._times: list[tuple[str, float]] = []

    @contextmanager
    def stage(self, name: str, what: str) -> Iterator[None]:
        """Announce a stage, and print its seconds when it is done."""
        click.echo(f"[{len(self._times) + 1}/{self._total}] {name}: {what}")
        begin = time.perf_counter()
        yield
        self._times.append((name, time.perf_counter() - begin))
        say(f"done in {self._times[-1][1]:.1f} s")

    def summary(self) -> str:
        """`text 1.5 s, tokenizers 9.0 s, ...; 80.2 s in all`."""
        parts = ", ".join(f"{name} {seconds:.1f} s" for name, seconds in self._times)
        return f"{parts}; {sum(seconds for _, seconds in self._times):.1f} s in all"


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Aligned columns, the first to the left and the others to the right."""
    widths = [max(len(row[i]) for row in [header, *rows]) for i in range(len(header))]
    lines = []
    for row in [header, ["-" * width for width in widths], *rows]:
        cells = [row[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)
