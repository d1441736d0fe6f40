"""Mixtures side by side, and what a tokenizer makes of them."""

from __future__ import annotations

import struct
import xml.etree.ElementTree as ElementTree
import zlib

import numpy as np
import pytest
from headrace.mixer.caps import Bounds
from headrace.mixer.compare import chart, compare
from headrace.mixer.content import content, correct
from headrace.mixer.picture import ZOOM, Box, Line, Picture, letters
from headrace.mixer.result import finish
from headrace.proto.errors import UsageError


def test_columns_and_chart() -> None:
    one = finish("uniform", {"a": 1, "b": 1}, Bounds())
    two = finish("manual", {"a": 9, "b": 1}, Bounds(caps={"a": 0.7}), diagnostics={"flops": 1e9})
    left, right = compare({"one": one, "<two>": two}, tokens={"a": 10, "b": 100}, budget=100, seconds={"one": 2.5})
    assert (left.distance, right.distance) == (0.0, pytest.approx(0.2))
    assert right.epochs == pytest.approx({"a": 7.0, "b": 0.3})
    assert (left.flops, right.flops, right.bound) == (None, 1e9, {"a": "cap"})
    assert (left.seconds, right.seconds) == (2.5, None)
    root = ElementTree.fromstring(chart([left, right]).svg())
    texts = [element.text for element in root.iter() if element.text]
    assert {"one, 2.5 s", "<two>, 1e+09 FLOPs", "a", "b", "0.7000, 7 epochs, cap"} <= set(texts)
    with pytest.raises(UsageError, match="`b` is in only one"):
        compare({"one": one, "other": finish("uniform", {"a": 1, "c": 1}, Bounds())})


def decode(png: bytes) -> np.ndarray:
    """(height, width, 3) of a PNG, every checksum verified."""
    assert png[:8] == b"\x89PNG\r\n\x1a\n"
    chunks, at = {}, 8
    while at < len(png):
        (length,) = struct.unpack(">I", png[at : at + 4])
        kind, data = png[at + 4 : at + 8], png[at + 8 : at + 8 + length]
        assert struct.unpack(">I", png[at + 8 + length : at + 12 + length])[0] == zlib.crc32(kind + data)
        chunks[kind], at = data, at + 12 + length
    width, height = struct.unpack(">II", chunks[b"IHDR"][:8])
    rows = np.frombuffer(zlib.decompress(chunks[b"IDAT"]), dtype=np.uint8).reshape(height, 1 + 3 * width)
    assert not rows[:, 0].any()
    return rows[:, 1:].reshape(height, width, 3)


def test_the_png_shows_the_same_picture() -> None:
    picture = Picture(
        width=60,
        height=30,
        boxes=[Box(x=10, y=5, width=20.5, height=4, colour="#ff0010")],
        lines=[Line(x=2, y=20, text="Hi"), Line(x=58, y=28, text="é|", anchor="end"), Line(x=-3, y=4, text="cut")],
    )
    pixels = decode(picture.png())
    assert pixels.shape == (30 * ZOOM, 60 * ZOOM, 3)
    red = (pixels == (255, 0, 16)).all(axis=2)
    assert (red.sum(), red[10:18, 20:61].all()) == (8 * 41, True)
    black = (pixels == 0).all(axis=2)
    first = black[26:42, 4:16][::ZOOM, ::ZOOM]
    assert ["".join(".#"[int(dot)] for dot in row) for row in first] == [
        *["#...#."] * 3,
        "#####.",
        *["#...#."] * 3,
        "......",
    ]
    assert picture.png() == picture.png()
    assert letters("é|").shape == (8, 12)
    assert letters("é")[:7, :5].sum() == 20  # a box for what has no dots
    dots = [letters(chr(code)).tobytes() for code in range(32, 127)]
    assert len(set(dots)) == 95


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
