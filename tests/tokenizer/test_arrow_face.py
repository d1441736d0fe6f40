"""Arrow arrays of strings become arrays of lists of ids, equal to encoding each string."""

from __future__ import annotations

import pytest
from headrace.proto.errors import UsageError
from headrace.tokenizer import Tokenizer
from headrace.tokenizer.arrow import encode_arrow
from headrace.tokenizer.spec import TrainSpec
from headrace.tokenizer.train import train

pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed")

TEXTS = ["the cat sat", "", None, "中文 और é", "the <|pad|> cat", None, "\x00"]


@pytest.fixture(scope="module")
def made() -> Tokenizer:
    return train(TrainSpec(vocab_size=272, variant="classical"), {"x": ["the cat sat on the mat 中文 " * 20]})[0]


def expected(made: Tokenizer, texts: list[str | None]) -> list[list[int] | None]:
    return [None if text is None else made.encode(text).tolist() for text in texts]


@pytest.mark.parametrize(
    "kind", [pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int32(), pa.string())]
)
def test_every_kind_of_string(made: Tokenizer, kind: pa.DataType) -> None:
    array = pa.array(TEXTS, pa.string()).cast(kind)
    found = encode_arrow(made, array)
    assert found.type == pa.large_list(pa.uint32())
    assert found.to_pylist() == expected(made, TEXTS)


def test_slices_chunks_and_empty_arrays(made: Tokenizer) -> None:
    array = pa.array(TEXTS)
    assert encode_arrow(made, array[3:5]).to_pylist() == expected(made, TEXTS[3:5])
    assert encode_arrow(made, array[7:]).to_pylist() == []
    chunked = pa.chunked_array([array, array[:0], array[1:]])
    found = encode_arrow(made, chunked)
    assert found.num_chunks == 3
    assert found.to_pylist() == expected(made, TEXTS + TEXTS[1:])


def test_nulls_may_hide_bytes(made: Tokenizer) -> None:
    array = pa.array(["the", "cat", "mat"])
    validity = pa.py_buffer(bytes([0b101]))
    hidden = pa.StringArray.from_buffers(3, array.buffers()[1], array.buffers()[2], validity)
    assert encode_arrow(made, hidden).to_pylist() == expected(made, ["the", None, "mat"])


def test_special_text_is_text_here_too(made: Tokenizer) -> None:
    pad = made.special_ids["<|pad|>"]
    assert pad not in encode_arrow(made, pa.array(["<|pad|>"])).to_pylist()[0]
    assert encode_arrow(made, pa.array(["<|pad|>"]), allow_special=True).to_pylist() == [[pad]]


def test_mistakes_are_named(made: Tokenizer) -> None:
    with pytest.raises(UsageError, match="not of int64"):
        encode_arrow(made, pa.array([1, 2]))
    with pytest.raises(UsageError, match="not list"):
        encode_arrow(made, ["text"])
    broken = pa.StringArray.from_buffers(1, pa.py_buffer(bytes([0, 0, 0, 0, 2, 0, 0, 0])), pa.py_buffer(b"a\xff"))
    with pytest.raises(UsageError, match="text 0 is no UTF-8 at byte 1"):
        encode_arrow(made, broken)
