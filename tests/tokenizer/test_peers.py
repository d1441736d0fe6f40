"""Ids equal those of other encoders that read our files. Runs where those are installed."""

from __future__ import annotations

from pathlib import Path

import pytest
from headrace.tokenizer import interchange
from headrace.tokenizer.pretokenizer import LOSSY, NAMES
from headrace.tokenizer.spec import TrainSpec
from headrace.tokenizer.train import train

LINE = (
    "The cat isn't here; DON'T\tstop  123456 half½!\r\n\n  中文字典 और हिन्दी की किताब été 😀👍🏽 مرحبا"
    "\u200bx\u0301 /path//to\n"
)
TEXT = LINE * 20
HOSTILE = ["", " ", "\n", "\x00", "a" * 3000, "_" * 3000, "  \n \t\r\n  x", "'S'Re 'ſ", "é" * 500, TEXT[::-1]]


@pytest.mark.parametrize("name", [name for name in NAMES if name not in LOSSY])
def test_hugging_face_tokenizers(name: str, tmp_path: Path) -> None:
    peer = pytest.importorskip("tokenizers", reason="Hugging Face tokenizers is not installed")
    made, _ = train(TrainSpec(vocab_size=310, variant="classical", pretokenizer=name), {"x": [TEXT]})
    made.save(tmp_path / "tokenizer.json")
    theirs = peer.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    for text in [TEXT, *HOSTILE]:
        encoding = theirs.encode(text, add_special_tokens=False)
        assert made.encode(text).tolist() == encoding.ids
        assert theirs.decode(encoding.ids) == text
    special = "a<|endoftext|>b"
    assert made.encode(special, allow_special=True).tolist() == theirs.encode(special).ids


def test_tiktoken(tmp_path: Path) -> None:
    peer = pytest.importorskip("tiktoken", reason="tiktoken is not installed")
    load = pytest.importorskip("tiktoken.load")
    made, _ = train(TrainSpec(vocab_size=310, variant="classical", pretokenizer="cl100k"), {"x": [TEXT]})
    interchange.write_tiktoken(made, tmp_path / "x.tiktoken")
    ranks = load.load_tiktoken_bpe(str(tmp_path / "x.tiktoken"))
    pattern = (
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
        r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    )
    theirs = peer.Encoding("x", pat_str=pattern, mergeable_ranks=ranks, special_tokens=made.special_ids)
    for text in [TEXT, *HOSTILE]:
        assert made.encode(text).tolist() == theirs.encode_ordinary(text)
