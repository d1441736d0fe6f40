"""The trainer sees data that cannot work, and says so with figures and a remedy."""

from __future__ import annotations

import random

from headrace.tokenizer import diagnose
from headrace.tokenizer.spec import TrainSpec
from headrace.tokenizer.train import Progress, train


def words(alphabet: str, seed: int, count: int = 300) -> list[str]:
    rng = random.Random(seed)
    return [" ".join("".join(rng.choices(alphabet, k=5)) for _ in range(5)) for _ in range(count)]


def test_another_encoding_is_seen_before_merging() -> None:
    stages: list[Progress] = []
    texts = {"good": words("abcdef", 1), "bad": words("ghijkl", 2)}
    dev = {"good": words("abcdef", 3), "bad": words("ghmnop", 4)}
    _, report = train(TrainSpec(vocab_size=300), texts, dev, progress=stages.append)
    about = [warning for warning in report.warnings if "never occur" in warning]
    assert len(about) == 1
    assert "`bad`" in about[0]
    assert "convert" in about[0]
    order = [stage.stage for stage in stages]
    assert order.index("warning") < order.index("merge")


def test_one_sided_character_is_named() -> None:
    texts = {"x": [line.replace(" ", "\u200b") for line in words("abcdef", 1)]}
    _, report = train(TrainSpec(vocab_size=300), texts, {"x": words("abcdef", 2)})
    assert any("U+200B ZERO WIDTH SPACE" in warning for warning in report.warnings)


def test_stuck_language_is_reported() -> None:
    texts = {"x": words("abcdefghij", 1), "y": words("klmnopqrst", 2, 900)}
    dev = {"x": words("abcdefghij", 3), "y": words("uvwxyz", 4)}
    _, report = train(TrainSpec(vocab_size=400), texts, dev)
    assert any("`y` is stuck" in warning for warning in report.warnings)
    _, report = train(TrainSpec(vocab_size=400, evidence="mix"), texts, dev)
    assert not any("is stuck" in warning for warning in report.warnings)


def test_clean_data_gives_no_warning() -> None:
    texts = {"x": words("abcdef", 1, 2000), "y": words("ghijkl", 2, 2000)}
    _, report = train(TrainSpec(vocab_size=300), texts, {"x": words("abcdef", 3), "y": words("ghijkl", 4)})
    assert report.warnings == ()


def test_small_development_text() -> None:
    assert "40 lines" in diagnose.small_development(40)[0]
    assert diagnose.small_development(997) == []
