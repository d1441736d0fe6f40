"""Other programs' files: ids survive every direction, and the sidecar tells how a tokenizer was learned."""

from __future__ import annotations

import base64
import json
from functools import cache
from pathlib import Path

import pytest
from headrace.proto.errors import ConfigError, UsageError
from headrace.tokenizer import Tokenizer, interchange, sidecar
from headrace.tokenizer.spec import TrainSpec
from headrace.tokenizer.train import train

TEXT = "the cat sat on the mat; die Katze saß; बिल्ली चटाई पर\n" * 30
SPEC = TrainSpec(vocab_size=290, pretokenizer="cl100k")


@cache
def made() -> Tokenizer:
    return train(SPEC, {"x": [TEXT]}, {"x": ["the cat", "पर"]})[0]


def test_gpt2_folder(tmp_path: Path) -> None:
    interchange.write_gpt2(made(), tmp_path / "gpt2")
    again = interchange.read_gpt2(tmp_path / "gpt2", pretokenizer="cl100k", specials=list(made().special_ids))
    assert again.digest == made().digest
    with pytest.raises(UsageError, match="no token `<s>`"):
        interchange.read_gpt2(tmp_path / "gpt2", pretokenizer="gpt2", specials=["<s>"])


def test_tiktoken_ranks(tmp_path: Path) -> None:
    path = tmp_path / "x.tiktoken"
    interchange.write_tiktoken(made(), path)
    again = interchange.read_tiktoken(path, pretokenizer="cl100k", special_ids=made().special_ids)
    assert again.digest == made().digest
    with pytest.raises(ConfigError, match="gap"):
        interchange.read_tiktoken(path, pretokenizer="cl100k", special_ids={})
    path.write_text("no ranks here\n")
    with pytest.raises(ConfigError, match="line 1"):
        interchange.read_tiktoken(path, pretokenizer="cl100k", special_ids={})


def test_tiktoken_ids_that_are_no_ranks_are_refused(tmp_path: Path) -> None:
    tokens = [*(bytes([byte]) for byte in range(256)), b"ab", b"cd"]
    turned = Tokenizer(tokens=tokens, merges=[(99, 100), (97, 98)], special_ids={})
    with pytest.raises(UsageError, match="not in the order"):
        interchange.write_tiktoken(turned, tmp_path / "x")
    lonely = [f"{base64.b64encode(token).decode()} {i}" for i, token in enumerate([*tokens[:256], b"abc"])]
    (tmp_path / "x").write_text("\n".join(lonely))
    with pytest.raises(ConfigError, match="not made of two"):
        interchange.read_tiktoken(tmp_path / "x", pretokenizer="gpt2", special_ids={})


def test_merge_list() -> None:
    lines = interchange.merges_text(made()).splitlines()
    assert lines[0] == "#version: 0.2"
    assert len(lines) == 1 + len(made().merges)


def test_sidecar_is_the_same_for_equal_runs(tmp_path: Path) -> None:
    dev = {"x": ["the cat", "पर"]}
    (tmp_path / "x.txt").write_text(TEXT, encoding="utf-8")
    contents = []
    for threads in (1, 2):
        spec = TrainSpec(vocab_size=300, threads=threads)
        tokenizer, report = train(spec, {"x": [tmp_path / "x.txt"]}, dev)
        sidecar.save(tmp_path / "t.json", spec, tokenizer, report)
        contents.append((tmp_path / "t.training.json").read_text())
    assert contents[0] == contents[1]
    told = json.loads(contents[0])
    assert told["tokenizer_digest"] == tokenizer.digest.hex()
    assert len(told["trace"]["language"]) == told["merges"] == 42
    start, end = told["tokens_before"]["x"], told["tokens_after"]["x"]
    assert sum(told["trace"]["saved"]) == start - end
    _, other = train(spec, {"x": [TEXT + "more"]}, dev)
    assert other.inputs["x"] != report.inputs["x"]
    assert other.inputs["x development 1"] == report.inputs["x development 1"]
