"""What a reader yields, and the one set of rules for odd text that every reader and every format follows.

* Text is Unicode. Nothing is normalised: NUL, U+2028, lone CR, control characters and spaces are text like any other.
* A UTF-8 byte order mark at the very start of a text or JSONL file is not text; it is left out and counted.
* Bytes that are not UTF-8 (overlong forms and encoded surrogates are not) and lone surrogate escapes in JSON: `error`
  stops, `replace` puts U+FFFD for each maximal bad part (for each surrogate) and counts the document, `skip` rejects
  it.
* A missing field, null, a wrong type, a wanted field that stands twice in a JSON object or a line that is not a JSON
  object: `error` stops, else rejected and counted. A file in which no row has the field is an error under every policy.
* A text of no characters is rejected as `empty` under every policy: it has no tokens. One of spaces is text.
* Lines end at LF and nowhere else. In text files read by line, a CR before it belongs to the line end.
* Rows count from 1, as lines do in an editor.

What is read is packed, rejected or held out, and the three add up.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import compress
from typing import Any

import numpy as np
import numpy.typing as npt
from headrace.native import Texts
from headrace.proto.errors import DataLossError

_SURROGATE = re.compile("[\ud800-\udfff]")
_NOTHING: Mapping[str, Any] = {}

INVALID_UTF8 = "invalid_utf8"
LONE_SURROGATE = "lone_surrogate"
BAD_JSON = "bad_json"
NOT_OBJECT = "not_object"
MISSING = "missing_field"
NULL = "null"
WRONG_TYPE = "wrong_type"
EMPTY = "empty"
TWICE = "field_twice"
BAD_NAME = "bad_domain_name"
FILTERED = "where"
DUPLICATE = "duplicate"
ROWS_BYTES, ROWS = 1 << 19, 8192


class DocumentError(DataLossError):
    """A document is bad and the policy is to stop; the message names file, row and remedy."""


@dataclass(slots=True)
class Rows:
    """Some rows in a row of a source: the good ones column by column, the others one by one.

    Attributes:
        texts: those of the good rows, in order, with the numbers of their rows
        fields: their other fields; empty when the domain needs none
        odd: rows without a text, in order
        replaced: reasons of good rows in which something was replaced
    """

    texts: Texts = field(default_factory=Texts)
    fields: list[Mapping[str, Any]] = field(default_factory=list)
    odd: list[Row] = field(default_factory=list)
    replaced: list[str] = field(default_factory=list)

    def add(self, row: Row, *, with_fields: bool) -> None:
        """Takes one row in."""
        if row.text is None:
            self.odd.append(row)
            return
        self.texts.push(row.number, row.text)
        if with_fields:
            self.fields.append(row.fields)
        if row.reason is not None:
            self.replaced.append(row.reason)

    @property
    def is_full(self) -> bool:
        """Whether there are enough to be handed on."""
        return self.texts.bytes >= ROWS_BYTES or len(self.texts) + len(self.odd) >= ROWS

    @property
    def numbers(self) -> npt.NDArray[np.uint64]:
        """Rows of the good ones in the source, from 1."""
        return self.texts.rows

    def select(self, keep: Sequence[bool]) -> Rows:
        """The good rows that `keep` names."""
        return Rows(self.texts.select(keep), list(compress(self.fields, keep)))


@dataclass(slots=True)
class Row:
    """One record of a source: a text, or the reason why it has none.

    Attributes:
        number: row or line in the source, from 1
        text: the text, None when rejected
        reason: why it is rejected, or what was replaced in it
        detail: what a person needs to find and mend it
        fields: the record's fields that names and filters need, by their dotted names
    """

    number: int
    text: str | None
    reason: str | None = None
    detail: str = ""
    fields: Mapping[str, Any] = field(default_factory=lambda: _NOTHING)


def decode(raw: bytes, *, replace: bool) -> tuple[str | None, str | None, str]:
    """UTF-8 to text: (text, reason, detail); text is None when it is bad and not to be replaced."""
    try:
        return raw.decode("utf-8"), None, ""
    except UnicodeDecodeError as error:
        detail = f"byte 0x{raw[error.start]:02x} at offset {error.start} is not UTF-8 ({error.reason})"
    return (raw.decode("utf-8", "replace") if replace else None), INVALID_UTF8, detail


def mend(text: str, *, replace: bool) -> tuple[str | None, str | None, str]:
    """The same for text that may hold lone surrogates, as JSON escapes can write them."""
    found = _SURROGATE.search(text)
    if found is None:
        return text, None, ""
    detail = f"lone surrogate U+{ord(found.group()):04X} at character {found.start()}"
    return (_SURROGATE.sub("\ufffd", text) if replace else None), LONE_SURROGATE, detail


def pick(record: Mapping[str, Any], name: str) -> tuple[bool, Any]:
    """Whether a field is there, and its value: the name as it is written, else its parts through objects."""
    if name in record:
        return True, record[name]
    value: Any = record
    for part in name.split("."):
        if not isinstance(value, Mapping) or part not in value:
            return False, None
        value = value[part]
    return True, value


def row_of(number: int, record: Mapping[str, Any], name: str, others: tuple[str, ...] = (), *, replace: bool) -> Row:
    """The row for a parsed record: its text in field `name`, checked by the rules above, and its fields `others`."""
    found = {other: pick(record, other) for other in others}
    fields = {other: value for other, (there, value) in found.items() if there}
    there, value = pick(record, name)
    if not there:
        seen = ", ".join(sorted(str(key) for key in record)) or "none"
        return Row(number, None, MISSING, f"no field `{name}`; fields seen: {seen}", fields)
    if value is None:
        return Row(number, None, NULL, f"field `{name}` is null", fields)
    if not isinstance(value, str):
        return Row(number, None, WRONG_TYPE, f"field `{name}` is {type(value).__name__}, not a string", fields)
    if not value:
        return Row(number, None, EMPTY, f"field `{name}` is empty", fields)
    text, reason, detail = mend(value, replace=replace)
    return Row(number, text, reason, detail, fields)
