"""A terminal that is painted over and over: its size, its keys, and how it is left as it was found."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
import termios
import tty
import unicodedata
from collections.abc import Iterator, Sequence
from typing import Any

_ENTER = "\x1b[?1049h\x1b[?25l"
_LEAVE = "\x1b[?25h\x1b[?1049l"
_KEYS = {"\x1b[A": "up", "\x1b[B": "down", "\x1b[5~": "page up", "\x1b[6~": "page down", "\x1b": "q", "\x03": "q"}


def is_terminal() -> bool:
    """Whether somebody sits in front of both ends."""
    return sys.stdin.isatty() and sys.stdout.isatty() and os.environ.get("TERM", "") != "dumb"


def has_colour() -> bool:
    """Whether colours may be used: on a terminal, unless NO_COLOR is set (https://no-color.org)."""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM", "") != "dumb"


def clean(text: str) -> str:
    """The text on one line without what could steer a terminal: names and reasons come from others."""
    return "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in " ".join(text.split()))


def width_of(text: str) -> int:
    """Columns that a text takes."""
    return sum(_width(char) for char in text)


def _width(char: str) -> int:
    if unicodedata.combining(char):
        return 0
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1


def fit(text: str, width: int) -> str:
    """The text in exactly so many columns, with an ellipsis where it is cut."""
    if width_of(text) <= width:
        return text + " " * (width - width_of(text))
    kept, left = "", max(0, width - 1)
    for char in text:
        if _width(char) > left:
            break
        kept, left = kept + char, left - _width(char)
    return kept + "…" * (width > 0) + " " * left


class Screen:
    """The whole terminal, while somebody looks."""

    def __init__(self) -> None:
        self._pipe = os.pipe()

    def size(self) -> tuple[int, int]:
        """Columns and lines of the terminal itself: COLUMNS, where exported, would not follow a resize."""
        try:
            size = os.get_terminal_size(sys.stdout.fileno())
        except OSError:
            size = os.terminal_size((0, 0))
        return size.columns or 80, size.lines or 24

    def paint(self, lines: Sequence[str]) -> None:
        """The lines, from the top; what was there before goes."""
        sys.stdout.write("\x1b[H" + "\x1b[K\r\n".join(lines) + "\x1b[K\x1b[J")
        sys.stdout.flush()

    def key(self, seconds: float) -> str:
        """The next key within so many seconds; `resize` when the size has changed, else nothing."""
        ready, _, _ = select.select([sys.stdin.fileno(), self._pipe[0]], [], [], seconds)
        if self._pipe[0] in ready:
            os.read(self._pipe[0], 64)
            return "resize"
        if not ready:
            return ""
        text = os.read(sys.stdin.fileno(), 16).decode(errors="replace")
        return _KEYS.get(text, text or "q")

    def resized(self, *_: Any) -> None:
        """The handler of SIGWINCH."""
        with contextlib.suppress(OSError):
            os.write(self._pipe[1], b"r")


@contextlib.contextmanager
def screen() -> Iterator[Screen]:
    """A screen for the length of a block; the terminal is left as it was, whatever happens."""
    opened, descriptor = Screen(), sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)
    handler = signal.signal(signal.SIGWINCH, opened.resized)
    sys.stdout.write(_ENTER)
    try:
        tty.setcbreak(descriptor)
        yield opened
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)
        signal.signal(signal.SIGWINCH, handler)
        sys.stdout.write(_LEAVE)
        sys.stdout.flush()
