"""JSON Lines: one object a line. Plain lines go through the Rust scanner, all others through Python's parser.

The scanner stops at the first line that is not plain. Plain is only what is JSON by the letter and holds the wanted
fields once at the top; the careful way decides everything else, so both give the same rows (a property test compares
them).
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from typing import Any

from headrace.server.corpus.bytestream import Source
from headrace.server.corpus.documents import BAD_JSON, NOT_OBJECT, TWICE, Row, Rows, decode, row_of
from headrace.server.corpus.lines import line_blocks, next_line
from headrace.server.corpus.spec import DomainSpec

# Control characters inside strings are kept: files in the wild hold them, and nothing is gained by losing a document.
_JSON = json.JSONDecoder(strict=False, object_pairs_hook=lambda pairs: _Object(pairs))


class _Object(dict[str, Any]):
    """A JSON object that knows which of its keys stood there more than once."""

    def __init__(self, pairs: list[tuple[str, Any]]) -> None:
        super().__init__(pairs)
        counts = Counter(key for key, _ in pairs) if len(self) < len(pairs) else {}
        self.twice = {key for key, count in counts.items() if count > 1}


def jsonl_rows(source: Source, spec: DomainSpec, notes: Counter[str]) -> Iterator[Rows]:
    """Rows of the file, some at a time; blank lines are counted in `notes` and are no rows."""
    others = spec.fields
    replace = spec.on_bad == "replace"
    number, rows = 1, Rows()
    for block, begin, end in line_blocks(source, notes):
        at = begin
        while at < end:
            taken, at, raw = rows.texts.take_jsonl(block, at, end, number, spec.text, others)
            number += taken
            for values in raw:
                rows.fields.append({name: json.loads(value) for name, value in zip(others, values, strict=True)})
            if at < end:
                line, at = next_line(block, at, end)
                if line.isspace():
                    notes["blank_lines"] += 1
                else:
                    rows.add(careful(number, line, spec.text, others, replace=replace), with_fields=bool(others))
                number += 1
        del block  # a line may be as large as memory allows twice, not thrice
        if rows.is_full:
            yield rows
            rows = Rows()
    yield rows


def careful(number: int, line: bytes, field: str, others: tuple[str, ...], *, replace: bool) -> Row:
    """The row of any line."""
    text, reason, detail = decode(line, replace=replace)
    if text is None:
        return Row(number, None, reason, detail)
    try:
        record = _JSON.decode(text)
    except (ValueError, RecursionError) as error:
        return Row(number, None, BAD_JSON, f"not JSON: {error}")
    if not isinstance(record, _Object):
        return Row(number, None, NOT_OBJECT, f"a JSON {type(record).__name__}, not an object")
    twice = sorted(record.twice & {field, *others})
    if twice:
        return Row(number, None, TWICE, f"field `{twice[0]}` stands there more than once")
    row = row_of(number, record, field, others, replace=replace)
    if row.text is not None and row.reason is None:
        row.reason, row.detail = reason, detail
    return row
