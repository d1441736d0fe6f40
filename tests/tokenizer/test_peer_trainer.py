"""Merge lists equal those of Hugging Face's parity trainer, where it is installed."""

from __future__ import annotations

import io
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from headrace.tokenizer.byte_chars import to_chars
from headrace.tokenizer.spec import TrainSpec
from headrace.tokenizer.train import train

SHARED = Path(__file__).resolve().parents[3] / "shared" / "data"
pytestmark = pytest.mark.skipif(not SHARED.is_dir(), reason="the texts lie outside the repository")
peer = pytest.importorskip("tokenizers", minversion="0.23", reason="Hugging Face tokenizers is not installed")

Texts = Mapping[str, list[str]]
CASES = [
    ("base", {}), ("window", {}), ("hybrid", {"global_merges": 200}), ("hybrid+window", {"global_merges": 200}),
    ("base", {"ratio": True}), ("hybrid+window", {"global_merges": 200, "ratio": True}),
]  # fmt: skip


def lines_of(path: Path) -> list[str]:
    """Lines with their ends, as both programs are given them."""
    content = path.read_bytes()
    if path.suffix == ".zst":
        zstandard = pytest.importorskip("zstandard", reason="zstandard is not installed")
        content = zstandard.ZstdDecompressor().stream_reader(io.BytesIO(content)).read()
    return content.decode().replace("\r\n", "\n").splitlines(keepends=True)


def ratios(texts: Texts) -> dict[str, float]:
    return {name: 1 + number / 20 for number, name in enumerate(texts)}


def theirs(texts: Texts, dev: Texts, merges: int, variant: str, settings: dict[str, Any]) -> list[str]:
    tokenizer = peer.Tokenizer(peer.models.BPE())
    tokenizer.pre_tokenizer = peer.pre_tokenizers.ByteLevel(add_prefix_space=False)
    ratio = {"ratio": list(ratios(texts).values())} if settings.get("ratio") else {}
    trainer = peer.trainers.ParityBpeTrainer(
        num_merges=merges, variant="window" if "window" in variant else "base", min_frequency=2, show_progress=False,
        global_merges=settings.get("global_merges", 0), initial_alphabet=peer.pre_tokenizers.ByteLevel.alphabet(),
        **ratio,
    )  # fmt: skip
    parallel = {} if ratio else {"dev_iterators": list(dev.values())}
    trainer.train_from_iterator(tokenizer, train_iterators=list(texts.values()), **parallel)
    return [" ".join(pair) for pair in json.loads(tokenizer.to_str())["model"]["merges"]]


def ours(texts: Texts, dev: Texts, merges: int, variant: str, settings: dict[str, Any]) -> list[str]:
    settings = settings | ({"ratio": ratios(texts)} if settings.get("ratio") else {})
    spec = TrainSpec(pretokenizer="gpt2", merges=merges, variant=variant, **settings)
    tokenizer, _ = train(spec, texts, None if settings.get("ratio") else dev)
    chars = [to_chars(token) for token in tokenizer.tokens]
    return [f"{chars[left]} {chars[right]}" for left, right in tokenizer.merges]


@pytest.mark.parametrize(("variant", "settings"), CASES)
def test_equals_hugging_face(variant: str, settings: dict[str, Any]) -> None:
    names = ("eng", "deu", "hin", "amh", "jpn", "swa")
    texts, dev = (
        {name: lines_of(SHARED / "golden" / "in" / f"{name}.{part}.txt") for name in names} for part in ("train", "dev")
    )
    assert ours(texts, dev, 500, variant, settings) == theirs(texts, dev, 500, variant, settings)


@pytest.mark.skipif(not os.environ.get("HEADRACE_SLOW"), reason="takes a minute and a half; set HEADRACE_SLOW=1")
def test_equals_hugging_face_on_the_small_set() -> None:
    names = sorted(path.stem for path in (SHARED / "parallel_dev").glob("*.txt"))
    dev = {name: lines_of(SHARED / "parallel_dev" / f"{name}.txt") for name in names}
    texts = {name: lines_of(next((SHARED / "train_small").glob(f"{name}.*"))) for name in names}
    assert ours(texts, dev, 7936, "base", {}) == theirs(texts, dev, 7936, "base", {})
