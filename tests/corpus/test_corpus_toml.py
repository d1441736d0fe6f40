"""CORPUS.toml and `where` are read strictly: what is wrong is named with its line, and what is right is exact."""

from __future__ import annotations

from typing import Any

import pytest
from headrace.proto.errors import ConfigError
from headrace.server.corpus.spec import CorpusSpec
from headrace.server.corpus.where import parse_where

GOOD = '[corpus]\nout = "c"\n[[domain]]\nname = "no"\nfiles = ["a"]\n'


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[corpus\n", "line 1"),
        (GOOD + "tex = 1\n", r"C.toml:6: unknown key `domain.tex`; did you mean `text`\?"),
        (GOOD + "text = 1\n", "C.toml:6: `domain.text` must be a text"),
        (GOOD + 'format = "csv"\n', "C.toml:6: .*must be one of auto, jsonl"),
        (GOOD + 'on_bad = "ignore"\n', "C.toml:6: .*must be one of error, replace, skip"),
        (GOOD + "holdout = 1\n", "C.toml:6: .*`holdout` is a share from 0 to below 1"),
        (GOOD + "holdout = nan\n", "C.toml:6: .*finite number"),
        (GOOD + "max_rejected = -0.1\n", "share from 0 to 1"),
        (GOOD + 'where = "tokens >"\n', "C.toml:6: `where`: a number"),
        (GOOD + 'separator = "x"\n', "goes with `document"),
        ('[corpus]\n[[domain]]\nname = "d"\nfiles = []\n', "C.toml:4: .*list of texts"),
        ('[corpus]\n[[domain]]\nname = "a b"\nfiles = ["a"]\n', "C.toml:3: `a b` cannot be a `name`"),
        ('[corpus]\n[[domain]]\nname = "{}"\nfiles = ["a"]\n', "empty field name"),
        ("[corpus]\n", "`domain` is missing"),
        (
            '[corpus]\nbos = "yes"\n[[domain]]\nname = "d"\nfiles = ["a"]\n',
            "C.toml:2: `corpus.bos` must be true or false",
        ),
        ('[corpus]\nid_bytes = 3\n[[domain]]\nname = "d"\nfiles = ["a"]\n', "C.toml:2: `corpus.id_bytes` is 2 or 4"),
        (
            '[corpus]\nduplicates = "drop"\n[[domain]]\nname = "d"\nfiles = ["a"]\n',
            r"C.toml:2: .*belongs under `\[\[domain\]\]`",
        ),
        (GOOD + "bos = true\n", r"C.toml:6: unknown key `domain.bos`; it belongs under `\[corpus\]`"),
        (GOOD + "zzz = 1\n", "known here: document, duplicates, files, .*keep, .*where"),
        (GOOD + GOOD.partition("\n")[2].partition("\n")[2], "C.toml:7: domain `no` is named twice"),
    ],
)
def test_what_is_wrong_is_named_with_its_line(text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        CorpusSpec.from_toml(text, place="C.toml")


def test_defaults() -> None:
    spec = CorpusSpec.from_toml(GOOD)
    assert spec.domains[0].name == "no"
    assert (spec.bos, spec.eos, spec.tail, spec.domains[0].on_bad) == (False, None, "pad", "error")


@pytest.mark.parametrize(
    ("text", "record", "passes"),
    [
        ("a == 1", {"a": 1}, True),
        ("a == 1.0", {"a": 1}, True),
        ("a != 'x'", {"a": "y"}, True),
        ("a != 'x'", {}, False),
        ("a == null", {}, True),
        ("a != null", {"a": 0}, True),
        ("a == true and not b < -2.5e1", {"a": True, "b": 3}, True),
        ("a in ['x', 'y'] or b >= 2", {"a": "z", "b": 2}, True),
        ("a in ['x', 'y']", {"a": "z"}, False),
        ('(a == 1 or a == 2) and b == "it\'s"', {"a": 2, "b": "it's"}, True),
        ("meta.lang == 'de'", {"meta.lang": "de"}, True),
        ("`odd name` < 3", {"odd name": 2}, True),
        ("tokens >= 5 and bytes < 9", {":tokens": 5, ":bytes": 8}, True),
        ("`tokens` == 5", {":tokens": 1, "tokens": 5}, True),
        ("a == ''", {"a": ""}, True),
    ],
)
def test_where(text: str, record: dict[str, Any], passes: bool) -> None:
    assert parse_where(text).test(record) is passes


def test_where_knows_what_it_reads() -> None:
    where = parse_where("tokens > 3 and meta.lang == 'de' and not `x y` == 1")
    assert where.fields == ("meta.lang", "x y")
    assert where.needs_text
    assert not parse_where("`tokens` > 3").needs_text


@pytest.mark.parametrize(
    "text",
    ["", "a", "a =", "a == b", "a == 1 or", "(a == 1", "a == 1)", "a < null", "1 == a", "a in []", "a in 3", "a == 'x"],
)
def test_where_that_is_not_understood_is_refused_with_its_place(text: str) -> None:
    with pytest.raises(ConfigError, match=r"at character \d+"):
        parse_where(text)


@pytest.mark.parametrize(("text", "value"), [("a < 3", "x"), ("a == 'x'", 3), ("a == true", 1), ("a < 3", True)])
def test_unlike_types_are_no_comparison(text: str, value: object) -> None:
    with pytest.raises(TypeError, match="cannot be compared"):
        parse_where(text).test({"a": value})
