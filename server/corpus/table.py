"""A TOML table that is read strictly: every key is taken once, with its type, or it is an error that names the line."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from typing import Any, TypeVar

from headrace.proto.errors import ConfigError

T = TypeVar("T")
_KINDS = {
    str: "a string",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    list: "a list",
    dict: "a table",
}


def parse_toml(text: str, *, place: str) -> dict[str, Any]:
    """The document as a dict; a syntax error names the file and the line."""
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{place}: this is not TOML: {error}") from None


def _line(text: str, header: str, number: int, key: str) -> int | None:
    """Line of `key` below the `number`-th `header`, counted from 1, as far as plain text search can tell."""
    seen, inside = -1, header == ""
    for line, content in enumerate(text.splitlines(), start=1):
        stripped = content.strip()
        if stripped.startswith("["):
            found = stripped.split("#")[0].strip().strip("[]").strip() == header
            seen += found
            inside = found and seen == number
        elif inside and re.match(rf"""["']?{re.escape(key)}["']?\s*=""", stripped):
            return line
    return None


class Table:
    """One table of a file; `take` every key, then `close`."""

    def __init__(self, values: Mapping[str, Any], *, text: str, place: str, header: str = "", number: int = 0) -> None:
        self._values = dict(values)
        self._text, self._place, self._header, self._number = text, place, header, number

    def error(self, key: str, message: str) -> ConfigError:
        """The error for a key of this table: file, line, table, what is wrong."""
        line = _line(self._text, self._header, self._number, key)
        where = f"{self._place}:{line}" if line else self._place
        table = f" in [{self._header}]" if self._header else ""
        return ConfigError(f"{where}: `{key}`{table} {message}")

    def take(self, key: str, kind: type[T], default: T | None = None) -> T | None:
        """The value of an optional key."""
        if key not in self._values:
            return default
        value = self._values.pop(key)
        if kind is float and type(value) is int:
            value = float(value)
        if type(value) is not kind:
            raise self.error(key, f"must be {_KINDS[kind]}, not `{value!r}`")
        return value

    def need(self, key: str, kind: type[T], hint: str) -> T:
        """The value of a key that has no default; `hint` shows one."""
        value = self.take(key, kind)
        if value is None:
            raise ConfigError(
                f"{self._place}: `{key}` is missing in [{self._header}]; write for example: {key} = {hint}"
            )
        return value

    def choice(self, key: str, allowed: tuple[str, ...], default: str) -> str:
        """A string out of a few."""
        value = self.take(key, str, default)
        if value not in allowed:
            raise self.error(key, f"must be one of {', '.join(allowed)}, not `{value}`")
        return value

    def strings(self, key: str, hint: str) -> tuple[str, ...]:
        """A list of at least one string."""
        values = self.need(key, list, hint)
        if not values or not all(type(value) is str and value for value in values):
            raise self.error(key, f"must be a list of strings, for example {hint}")
        return tuple(values)

    def close(self) -> None:
        """Refuses what nobody took."""
        for key in self._values:
            raise self.error(key, "is not known here; remove it or correct its spelling")
