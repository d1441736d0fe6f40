"""What a reader yields, and the one set of rules for odd text that every reader and every format follows.

* Text is Unicode. Nothing is normalised: NUL, U+2028, lone CR, control characters and spaces are text like any other.
* A UTF-8 byte order mark at the very start of a text or JSONL file is not text; it is left out and counted.
* Bytes that are not UTF-8 (overlong forms and encoded surrogates are not) and lone surrogate escapes in JSON: `error`
  stops, `replace` puts U+FFFD for each maximal bad part (for each surrogate) and counts the document, `skip` rejects
  it.
* A missing field, null, a wrong type or a line that is not a JSON object: `error` stops, else rejected and counted.
  A file in which no row has the field is an error under every policy.
* A text of no characters is rejected as `empty` under every policy: it has no tokens. One of spaces is text.
* Lines end at LF and nowhere else. In text files read by line, a CR before it belongs to the line end.
* Rows count from 1, as lines do in an editor.

What is read is packed, rejected or held out, and the three add up.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

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
BAD_NAME = "bad_domain_name"
REPLACEABLE = (INVALID_UTF8, LONE_SURROGATE)


@dataclass(slots=True)
class Row:
    """One record of a source: a text, or the reason why it has none.

    Attributes:
        number: row or line in the source, from 1
        text: the text, None when rejected
        reason: why it is rejected, or what was replaced in it
        detail: what a person needs to find and mend it
        fields: the record's other fields, for names and filters
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


def pick(record: Mapping[str, Any], path: tuple[str, ...]) -> tuple[bool, Any]:
    """Whether the field at `path` is there, and its value."""
    value: Any = record
    for part in path:
        if not isinstance(value, Mapping) or part not in value:
            return False, None
        value = value[part]
    return True, value


def row_of(number: int, record: Mapping[str, Any], path: tuple[str, ...], *, replace: bool) -> Row:
    """The row for a parsed record: its text checked by the rules above."""
    there, value = pick(record, path)
    name = ".".join(path)
    if not there:
        seen = ", ".join(sorted(str(key) for key in record)) or "none"
        return Row(number, None, MISSING, f"no field `{name}`; fields seen: {seen}", record)
    if value is None:
        return Row(number, None, NULL, f"field `{name}` is null", record)
    if not isinstance(value, str):
        return Row(number, None, WRONG_TYPE, f"field `{name}` is {type(value).__name__}, not a string", record)
    if not value:
        return Row(number, None, EMPTY, f"field `{name}` is empty", record)
    text, reason, detail = mend(value, replace=replace)
    return Row(number, text, reason, detail, record)
