"""A strict reader of TOML tables: every key is taken by name, and what nobody takes is an error.

Messages name the file, the line and the key. TOML libraries give no lines for values, so `lines_of` finds them by
looking for headers and keys at the start of lines; a key that it cannot find (one inside an inline table) gets the
line of its table. Floats are read as `Decimal`, so that what is exact in the file stays exact.
"""

from __future__ import annotations

import difflib
import math
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from headrace.proto.errors import ConfigError

_HEADER = re.compile(r"^\s*(\[\[?)\s*([^\]\[]+?)\s*\]\]?\s*(#.*)?$")
_KEY = re.compile(r"^\s*((?:\"[^\"]*\"|'[^']*'|[A-Za-z0-9_.+-]+))\s*=")
Path = tuple[str | int, ...]


def parse(text: str, *, place: str) -> Table:
    """The root table of a TOML text; `place` names the file in messages."""
    try:
        values = tomllib.loads(text, parse_float=Decimal)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{place}: not valid TOML: {error}; correct that line") from None
    return Table(values=values, place=place, lines=lines_of(text))


def lines_of(text: str) -> dict[Path, int]:
    """Line number (from 1) of each table header and of each key that begins a line."""
    found: dict[Path, int] = {}
    counts: dict[Path, int] = {}
    table: Path = ()
    for number, line in enumerate(text.splitlines(), 1):
        if header := _HEADER.match(line):
            table = _resolve(_names(header[2]), counts, is_array=header[1] == "[[")
            for depth in range(1, len(table)):
                found.setdefault(table[:depth], number)
            found[table] = number
        elif key := _KEY.match(line):
            found.setdefault((*table, *_names(key[1])), number)
    return found


def _names(dotted: str) -> tuple[str, ...]:
    quoted = re.findall(r"\"([^\"]*)\"|'([^']*)'|([^.\s]+)", dotted)
    return tuple(next(part for part in parts if part) if any(parts) else "" for parts in quoted)


def _resolve(names: tuple[str, ...], counts: dict[Path, int], *, is_array: bool) -> Path:
    """The path of a header, with the index of each array of tables that it runs through."""
    path: Path = ()
    for depth, name in enumerate(names):
        path = (*path, name)
        if is_array and depth == len(names) - 1:
            counts[path] = counts.get(path, -1) + 1
        if path in counts:
            path = (*path, counts[path])
    return path


@dataclass(frozen=True, kw_only=True, slots=True)
class Table:
    """A table being read. `take` removes keys from what is left; `done` complains of the rest."""

    values: Mapping[str, Any]
    place: str
    lines: Mapping[Path, int]
    path: Path = ()
    _taken: set[str] = field(default_factory=set)
    _known: set[str] = field(default_factory=set)

    def error(self, key: str | None, message: str) -> ConfigError:
        """An error at a key of this table, or at the table itself."""
        path = self.path if key is None else (*self.path, key)
        while path and path not in self.lines:
            path = path[:-1]
        line = f":{self.lines[path]}" if path in self.lines else ""
        return ConfigError(f"{self.place}{line}: {message}")

    def name(self, key: str | None = None) -> str:
        """The dotted name of a key, as the user would write it."""
        parts = [str(part) for part in self.path if isinstance(part, str)] + ([key] if key else [])
        return ".".join(parts)

    def named_in(self, message: str) -> str | None:
        """The first key of this table that a message names in backticks."""
        return next((word for word in re.findall(r"`([^`]+)`", message) if word in self.values), None)

    def has(self, key: str) -> bool:
        self._known.add(key)
        return key in self.values

    def take(self, key: str, default: Any = ...) -> Any:
        """The value as TOML gave it."""
        self._taken.add(key)
        self._known.add(key)
        if key not in self.values:
            if default is ...:
                near = difflib.get_close_matches(key, [name for name in self.values if name not in self._taken], n=1)
                hint = f"did you mean it by `{near[0]}`?" if near else f"add `{key} = ...`"
                raise self.error(near[0] if near else None, f"`{self.name(key)}` is missing; {hint}")
            return default
        return self.values[key]

    def text(self, key: str, default: Any = ...) -> str:
        value = self.take(key, default)
        if not isinstance(value, str) or not value:
            raise self.error(key, f"`{self.name(key)}` must be a text that is not empty, not {show(value)}")
        return value

    def choice(self, key: str, options: tuple[str, ...], default: Any = ...) -> str:
        value = self.take(key, default)
        if value not in options or not isinstance(value, str):
            raise self.error(key, f"`{self.name(key)}` must be one of {', '.join(options)}, not {show(value)}")
        return value

    def integer(self, key: str, low: int, high: int, default: Any = ...) -> int:
        value = self.take(key, default)
        if isinstance(value, bool) or not isinstance(value, int):
            raise self.error(key, f"`{self.name(key)}` must be a whole number, not {show(value)}")
        if not low <= value <= high:
            raise self.error(key, f"`{self.name(key)}` must be from {low} to {high}, not {value}")
        return value

    def number(self, key: str, default: Any = ...) -> Decimal:
        """A finite number, exact."""
        value = self.take(key, default)
        number = finite(value)
        if number is None:
            raise self.error(key, f"`{self.name(key)}` must be a finite number, not {show(value)}")
        return number

    def table(self, key: str, default: Any = ...) -> Table:
        value = self.take(key, default)
        if not isinstance(value, Mapping):
            hint = f"; write `[{self.name(key)}]`, with single brackets" if isinstance(value, list) else ""
            raise self.error(key, f"`{self.name(key)}` must be a table, not {show(value)}{hint}")
        return self._child(value, key)

    def tables(self, key: str) -> list[Table]:
        """An array of tables, `[[key]]`."""
        value = self.take(key)
        if not isinstance(value, list) or not all(isinstance(item, Mapping) for item in value):
            found = f"`[{self.name(key)}]` is one table" if isinstance(value, Mapping) else f"not {show(value)}"
            raise self.error(
                key, f"`{self.name(key)}` must be a list of tables, {found}; write `[[{self.name(key)}]]` above each"
            )
        return [self._child(item, key, number) for number, item in enumerate(value)]

    def keys(self) -> Iterator[str]:
        """All keys, as they stand in the file."""
        return iter(self.values)

    def done(self, elsewhere: Mapping[str, Iterable[str]] | None = None) -> None:
        """Raises if the table has a key that nobody took; `elsewhere` are the keys of other tables, by their header."""
        for key in self.values:
            if key not in self._taken:
                near = difflib.get_close_matches(key, sorted(self._known), n=1)
                hint = f"did you mean `{near[0]}`?" if near else f"known here: {', '.join(sorted(self._known))}"
                home = [header for header, keys in (elsewhere or {}).items() if key in keys]
                hint = f"it belongs under `{home[0]}`" if home else hint
                raise self.error(key, f"unknown key `{self.name(key)}`; {hint}")

    def _child(self, value: Mapping[str, Any], *path: str | int) -> Table:
        return Table(values=value, place=self.place, lines=self.lines, path=(*self.path, *path))


def finite(value: object) -> Decimal | None:
    """The value as an exact number, or None if it is not a finite number."""
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
        return None
    if isinstance(value, float) and not math.isfinite(value):
        return None
    number = Decimal(value)
    return number if number.is_finite() else None


def show(value: object) -> str:
    """A value as a message shows it."""
    return f"`{value}`" if isinstance(value, str | int | float | Decimal) else f"a {type(value).__name__}"
