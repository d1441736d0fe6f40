"""Decoding as ids come gives what decoding all of them gives, wherever the stream is cut."""

from __future__ import annotations

import numpy as np
import pytest
from headrace.proto.errors import UsageError
from headrace.tokenizer import Tokenizer
from headrace.tokenizer.spec import TrainSpec
from headrace.tokenizer.stream import StreamDecoder
from headrace.tokenizer.train import train
from hypothesis import given, settings
from hypothesis import strategies as st

TEXT = "Emoji 👍🏽 and 中文字典 and हिन्दी, ‮rtl and é. " * 10


def tokenizer() -> Tokenizer:
    return train(TrainSpec(vocab_size=300, variant="classical"), {"x": [TEXT]})[0]


MADE = tokenizer()


@settings(max_examples=150, deadline=None)
@given(ids=st.lists(st.integers(0, MADE.vocab_size - 1), max_size=40), data=st.data())
def test_stream_equals_whole(ids: list[int], data: st.DataObject) -> None:
    decoder, out, at = StreamDecoder(MADE), "", 0
    while at < len(ids):
        size = data.draw(st.integers(1, 5))
        out += decoder.feed(ids[at : at + size])
        at += size
    assert out + decoder.finish() == MADE.decode_text(ids)


def test_every_id_alone_and_every_prefix() -> None:
    ids = MADE.encode(TEXT)
    decoder, text, bytes_so_far = StreamDecoder(MADE), "", b""
    for number, each in enumerate(ids):
        text += decoder.feed(np.array([each]))
        bytes_so_far += MADE.decode([each])
        assert MADE.decode(ids[: number + 1]) == bytes_so_far
        assert bytes_so_far.decode(errors="ignore").startswith(text)
        assert "�" not in text
    assert text + decoder.finish() == TEXT
    for number in range(MADE.vocab_size):
        assert StreamDecoder(MADE).feed([number]) is not None


def test_a_cut_character_ends_as_a_replacement_and_a_wrong_id_changes_nothing() -> None:
    decoder = StreamDecoder(MADE)
    first = MADE.encode("😀")[:1]
    assert decoder.feed(first) == ""
    with pytest.raises(UsageError, match="outside the vocabulary"):
        decoder.feed([MADE.vocab_size])
    assert decoder.finish() == "�"
    with pytest.raises(UsageError, match="finished"):
        decoder.feed(first)
