"""`where` filters: which documents of a source belong to a domain.

    where = "tokens >= 512 and quality > 0.7 and lang in ['de', 'fr'] and not (source == 'web' or license == null)"

Names are fields of the record (dots go into objects; backquotes for odd names and for a field that is really called
`tokens` or `bytes`); `tokens` is the document's number of token ids without bos and eos, `bytes` its UTF-8 bytes.
Literals are numbers, 'strings', true, false, null and lists. A comparison with a field that is missing or null is
false, but for `== null` and `!= null`; one between unlike types is an error of the document.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from headrace.proto.errors import ConfigError

_TOKEN = re.compile(
    r"""\s*(?:(?P<number>-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)|'(?P<single>[^']*)'|"(?P<double>[^"]*)"|`(?P<quoted>[^`]+)`"""
    r"""|(?P<word>[A-Za-z_][A-Za-z0-9_.-]*)|(?P<sign>==|!=|<=|>=|<|>|\(|\)|\[|\]|,))"""
)
_COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_CONSTANTS: dict[str, Any] = {"true": True, "false": False, "null": None}
TOKENS, BYTES = "tokens", "bytes"
Test = Callable[[Mapping[str, Any]], bool]


@dataclass(frozen=True, slots=True)
class Where:
    """A parsed filter.

    Attributes:
        fields: names of the record's fields that it reads
        needs_text: whether it asks for `tokens` or `bytes`, which are known once the text is encoded
        test: its value for a mapping that holds the fields, and `tokens` and `bytes` under `:tokens` and `:bytes`
    """

    fields: tuple[str, ...]
    needs_text: bool
    test: Test = field(compare=False)


def parse_where(text: str) -> Where:
    """Parses a filter; an error shows where in the text it is."""
    parser = _Parser(text)
    test = parser.either()
    parser.end()
    return Where(tuple(sorted(parser.fields)), bool(parser.own), test)


class _Parser:
    """Recursive descent: either > both > one > comparison."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self.fields: set[str] = set()
        self.own: set[str] = set()

    def _error(self, message: str) -> ConfigError:
        return ConfigError(f"`where`: {message} at character {self._at + 1} of `{self._text}`")

    def _peek(self) -> re.Match[str] | None:
        return _TOKEN.match(self._text, self._at)

    def _take(self, *wanted: str) -> str | None:
        found = self._peek()
        if found is None or (found["sign"] or found["word"]) not in wanted:
            return None
        self._at = found.end()
        return found["sign"] or found["word"]

    def end(self) -> None:
        if self._text[self._at :].strip():
            raise self._error("this is not understood")

    def either(self) -> Test:
        tests = [self._both()]
        while self._take("or"):
            tests.append(self._both())
        return tests[0] if len(tests) == 1 else lambda record: any(test(record) for test in tests)

    def _both(self) -> Test:
        tests = [self._one()]
        while self._take("and"):
            tests.append(self._one())
        return tests[0] if len(tests) == 1 else lambda record: all(test(record) for test in tests)

    def _one(self) -> Test:
        if self._take("not"):
            inner = self._one()
            return lambda record: not inner(record)
        if self._take("("):
            inner = self.either()
            if not self._take(")"):
                raise self._error("`)` is missing")
            return inner
        return self._comparison()

    def _comparison(self) -> Test:
        name = self._name()
        if self._take("in"):
            values = self._list()
            return lambda record: record.get(name) is not None and record[name] in values
        sign = self._take(*_COMPARE)
        if sign is None:
            raise self._error("one of == != < <= > >= in is missing")
        value = self._literal()
        compare = _COMPARE[sign]
        if value is None:
            if sign not in ("==", "!="):
                raise self._error("null can only be compared by == and !=")
            return lambda record: (record.get(name) is None) == (sign == "==")
        return lambda record: record.get(name) is not None and compare(_alike(record[name], value, name), value)

    def _name(self) -> str:
        found = self._peek()
        if found is None or not (found["word"] or found["quoted"]) or found["word"] in _CONSTANTS:
            raise self._error("the name of a field is missing")
        self._at = found.end()
        if found["word"] in (TOKENS, BYTES):
            self.own.add(found["word"])
            return f":{found['word']}"
        self.fields.add(found["word"] or found["quoted"])
        return found["word"] or found["quoted"]

    def _literal(self) -> Any:
        found = self._peek()
        if found is None or found["sign"] or found["quoted"] or (found["word"] and found["word"] not in _CONSTANTS):
            raise self._error("a number, a 'string', true, false or null is missing")
        self._at = found.end()
        if found["number"] is not None:
            number = found["number"]
            return int(number) if number.lstrip("-").isdigit() else float(number)
        return _CONSTANTS[found["word"]] if found["word"] else (found["single"] or found["double"] or "")

    def _list(self) -> list[Any]:
        if not self._take("["):
            raise self._error("a list such as ['a', 'b'] is missing")
        values = [self._literal()]
        while self._take(","):
            values.append(self._literal())
        if not self._take("]"):
            raise self._error("`]` is missing")
        return values


def _alike(value: Any, literal: Any, name: str) -> Any:
    """The value, refused when it cannot be compared with the literal."""
    kinds = [(bool,), (int, float), (str,)]
    for kind in kinds:
        if isinstance(literal, kind) and isinstance(literal, bool) == (kind == (bool,)):
            if isinstance(value, kind) and isinstance(value, bool) == (kind == (bool,)):
                return value
            break
    raise TypeError(f"field `{name}` is {type(value).__name__}, which cannot be compared with {literal!r}")
