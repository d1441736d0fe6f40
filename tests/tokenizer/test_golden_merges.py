"""The merge lists of the parity-aware reference implementation, byte for byte."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from headrace.tokenizer.byte_chars import to_chars
from headrace.tokenizer.spec import TrainSpec
from headrace.tokenizer.train import train

GOLDEN = Path(__file__).resolve().parents[3] / "shared" / "data" / "golden"
pytestmark = pytest.mark.skipif(not GOLDEN.is_dir(), reason="the golden merge lists lie outside the repository")

THREE = ("eng", "hin", "amh")
SIX = ("eng", "deu", "hin", "amh", "jpn", "swa")
RATIO = dict(zip(SIX, (1.0, 1.12, 2.55, 1.65, 1.35, 1.05), strict=True))


@pytest.mark.parametrize(
    ("name", "languages", "settings"),
    [
        ("base_3", THREE, {"merges": 400}),
        ("base_6", SIX, {"merges": 600}),
        ("window_6", SIX, {"merges": 600, "variant": "window"}),
        ("hybrid_6", SIX, {"merges": 600, "variant": "hybrid", "global_merges": 300}),
        ("hybridwindow_6", SIX, {"merges": 600, "variant": "hybrid+window", "global_merges": 300}),
        ("ratio_6", SIX, {"merges": 600, "ratio": RATIO}),
        ("minfreq_3", THREE, {"merges": 400, "min_frequency": 60}),
        ("bytelevel_only_3", THREE, {"merges": 300, "pretokenizer": "line"}),
        ("opt_base_6_mf1", SIX, {"merges": 600, "least_word_count": 1}),
        ("opt_base_6_mf2", SIX, {"merges": 600, "least_word_count": 2}),
    ],
)
def test_equals_the_reference(name: str, languages: tuple[str, ...], settings: dict[str, Any]) -> None:
    texts = {language: [GOLDEN / "in" / f"{language}.train.txt"] for language in languages}
    dev = {language: [GOLDEN / "in" / f"{language}.dev.txt"] for language in languages}
    assert learned(texts, dev, settings) == (GOLDEN / f"{name}.merges.txt").read_text(encoding="utf-8")


def test_classical_equals_the_reference() -> None:
    settings = {"merges": 600, "variant": "classical"}
    made = learned({"all": [GOLDEN / "in" / "concat6.txt"]}, None, settings)
    assert made == (GOLDEN / "classical_6.merges.txt").read_text(encoding="utf-8")


def learned(texts: Any, dev: Any, settings: dict[str, Any]) -> str:
    spec = TrainSpec(**{"compat": "reference", "pretokenizer": "paper", **settings})
    tokenizer, _ = train(spec, texts, dev)
    chars = [to_chars(token) for token in tokenizer.tokens]
    return "#version: 0.2\n" + "".join(f"{chars[left]} {chars[right]}\n" for left, right in tokenizer.merges)
