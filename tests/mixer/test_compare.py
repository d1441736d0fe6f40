"""Mixtures side by side, and what a tokenizer makes of them."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree

import pytest
from headrace.mixer.caps import Bounds
from headrace.mixer.compare import compare, svg
from headrace.mixer.content import content, correct
from headrace.mixer.result import finish
from headrace.proto.errors import UsageError


def test_columns_and_chart() -> None:
    one = finish("uniform", {"a": 1, "b": 1}, Bounds())
    two = finish("manual", {"a": 9, "b": 1}, Bounds(caps={"a": 0.7}), diagnostics={"flops": 1e9})
    left, right = compare({"one": one, "<two>": two}, tokens={"a": 10, "b": 100}, budget=100)
    assert (left.distance, right.distance) == (0.0, pytest.approx(0.2))
    assert right.epochs == pytest.approx({"a": 7.0, "b": 0.3})
    assert (left.flops, right.flops, right.bound) == (None, 1e9, {"a": "cap"})
    root = ElementTree.fromstring(svg([left, right]))
    texts = [element.text for element in root.iter() if element.text]
    assert {"one", "<two>", "a", "b", "0.7000"} <= set(texts)
    with pytest.raises(UsageError, match="`b` is in only one"):
        compare({"one": one, "other": finish("uniform", {"a": 1, "c": 1}, Bounds())})


def test_equal_weights_are_not_equal_text() -> None:
    found = {entry.domain: entry for entry in content({"en": 1, "my": 1, "de": 1}, {"en": 4.0, "my": 1.0, "de": 4.0})}
    assert found["my"].share == pytest.approx(1 / 9)
    assert (found["my"].short, found["en"].short) == ("rate", "")
    few = {entry.domain: entry for entry in content({"en": 8, "my": 1, "de": 1}, {"en": 4.0, "my": 1.0, "de": 4.0})}
    assert (few["my"].short, few["de"].short) == ("both", "weight")
    wanted = {"en": 0.5, "my": 0.25, "de": 0.25}
    rates = {"en": 4.0, "my": 1.0, "de": 2.0}
    received = {entry.domain: entry.share for entry in content(correct(wanted, rates), rates)}
    assert received == pytest.approx(wanted)
    with pytest.raises(UsageError, match="`my`"):
        content({"en": 1, "my": 1}, {"en": 1, "my": 0})
