"""The trainer equals its plain-Python twin on random small corpora, and keeps its promises on sizes and errors."""

from __future__ import annotations

import random
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
import twin
from headrace.native import split_pieces
from headrace.proto.errors import ConfigError, HeadraceError, UsageError
from headrace.tokenizer.byte_chars import to_chars
from headrace.tokenizer.evaluate import evaluate
from headrace.tokenizer.spec import TrainSpec
from headrace.tokenizer.tokenizer import Tokenizer
from headrace.tokenizer.train import SmallVocabularyError, train
from hypothesis import example, given, settings
from hypothesis import strategies as st

NAMES = ("b", "a", "c")


def strings(tokenizer: Tokenizer) -> list[tuple[str, str]]:
    """The merges as pairs of byte-character strings."""
    return [(to_chars(tokenizer.tokens[left]), to_chars(tokenizer.tokens[right])) for left, right in tokenizer.merges]


def vocabulary(texts: list[str]) -> twin.Vocabulary:
    return twin.vocabulary([piece for text in texts for piece in split_pieces("gpt2m", text)])


lines = st.lists(st.text(alphabet="aab bc\n", max_size=12), min_size=2, max_size=6)


@settings(max_examples=150, deadline=None)
@given(
    texts=st.lists(lines, min_size=3, max_size=3),
    dev=st.lists(st.lists(st.text(alphabet="ab c", max_size=8), min_size=2, max_size=2), min_size=3, max_size=3),
    variant=st.sampled_from(["base", "window", "hybrid", "hybrid+window"]),
    use_ratio=st.booleans(),
    window=st.integers(1, 6),
    least=st.integers(1, 3),
)
def test_equals_its_twin(
    texts: list[list[str]], dev: list[list[str]], variant: str, use_ratio: bool, window: int, least: int
) -> None:
    ratio = {"b": 1.0, "a": 1.3, "c": 0.7} if use_ratio else {}
    if not any("".join(text).strip() for text in texts) or (use_ratio and not all("".join(t) for t in texts)):
        return
    spec = TrainSpec(
        merges=12,
        variant=variant,
        global_merges=4 if "hybrid" in variant else None,
        window=window,
        alpha=1.5,
        ratio=ratio,
        min_frequency=least,
        allow_smaller=True,
    )
    made, report = train(
        spec, dict(zip(NAMES, texts, strict=True)), None if use_ratio else dict(zip(NAMES, dev, strict=True))
    )
    expected = twin.learn(
        [vocabulary(text) for text in texts],
        [] if use_ratio else [vocabulary(text) for text in dev],
        12,
        least=least,
        global_merges=4 if "hybrid" in variant else 0,
        window=(window, 1.5) if "window" in variant else None,
        ratio=list(ratio.values()) or None,
    )
    assert strings(made) == expected
    assert report.merges == len(expected)


@settings(max_examples=100, deadline=None)
@given(
    texts=st.lists(lines, min_size=3, max_size=3),
    dev=st.lists(st.lists(st.text(alphabet="ab c", max_size=8), min_size=2, max_size=2), min_size=3, max_size=3),
    rule=st.sampled_from(["mix", "split", "pnorm"]),
    mix=st.sampled_from([0.0, 0.25, 0.5, 1.0]),
    kappa=st.sampled_from([0.0, 0.5, 1.0]),
)
@example(  # `aa` and two spaces are worth the same
    texts=[["", ""], ["", ""], ["a", "a ", "a ", "a    ", "a     ", "aaa a   a a "]],
    dev=[["", ""], ["", ""], ["aaa   ", "aaaa a a"]],
    rule="pnorm",
    mix=0.5,
    kappa=0.0,
)
def test_mixed_evidence_equals_its_twin(
    texts: list[list[str]], dev: list[list[str]], rule: str, mix: float, kappa: float
) -> None:
    if not any("".join(text).strip() for text in texts):
        return
    parts = [[part[:1] for part in dev], [part[1:] for part in dev]] if rule == "split" else [dev, dev]
    made, _ = train(
        TrainSpec(
            merges=12,
            evidence="mix",
            mix=mix,
            kappa=kappa,
            objective="pnorm" if rule == "pnorm" else "worst",
            power=3,
            split_dev=rule == "split",
            allow_smaller=True,
        ),
        dict(zip(NAMES, texts, strict=True)),
        dict(zip(NAMES, dev, strict=True)),
    )
    expected = twin.learn_mixed(
        [vocabulary(text) for text in texts],
        [vocabulary(part) for part in parts[0]],
        [vocabulary(part) for part in parts[1]],
        12,
        sizes=[(size(text), size(part)) for text, part in zip(texts, parts[0], strict=True)],
        mix=Fraction(mix),
        kappa=Fraction(kappa),
        power=3 if rule == "pnorm" else None,
        rounded=strings(made) if rule == "pnorm" else (),
    )
    assert strings(made) == expected


def size(texts: list[str]) -> int:
    return max(1, len("".join(texts).encode()))


def corpus(seed: int, size: int = 400) -> dict[str, list[str]]:
    rng = random.Random(seed)
    alphabets = {"eng": "abcdefg", "hin": "कखगघ", "zho": "中文字典"}
    return {
        name: [" ".join("".join(rng.choices(chars, k=rng.randint(1, 6))) for _ in range(8)) for _ in range(size)]
        for name, chars in alphabets.items()
    }


@pytest.mark.parametrize("variant", ["classical", "base", "window", "hybrid", "hybrid+window"])
def test_size_is_exact_and_threads_do_not_matter(variant: str) -> None:
    texts, dev = corpus(1, 3000), corpus(2, 50)
    made = [train(TrainSpec(vocab_size=500, variant=variant, threads=threads), texts, dev)[0] for threads in (1, 2, 5)]
    assert {tokenizer.vocab_size for tokenizer in made} == {500}
    assert len(set(made[0].tokens)) == 500
    assert len({tokenizer.digest for tokenizer in made}) == 1
    other = train(TrainSpec(vocab_size=500, variant=variant), corpus(3, 3000), dev)[0]
    assert other.digest != made[0].digest


def test_parity_is_fairer_than_classical() -> None:
    rng = random.Random(6)
    words = {name: ["".join(rng.choices("abcdefgh", k=7)) + name for _ in range(120)] for name in "xyz"}
    sizes = {"x": 4000, "y": 400, "z": 40}

    def lines(name: str, count: int) -> list[str]:
        return [" ".join(rng.choices(words[name], k=6)) for _ in range(count)]

    texts = {name: lines(name, count) for name, count in sizes.items()}
    dev, test = ({name: lines(name, 50) for name in words} for _ in range(2))
    made = {name: train(TrainSpec(vocab_size=500, variant=name), texts, dev)[0] for name in ("classical", "base")}
    assert evaluate(made["base"], test).gini < 0.3 * evaluate(made["classical"], test).gini


def test_every_merge_makes_a_new_string() -> None:
    for seed in range(40):
        rng = random.Random(seed)
        text = ["".join(rng.choices("ab", k=rng.randint(2, 30))) + " " for _ in range(20)]
        spec = TrainSpec(merges=60, variant="classical", min_frequency=1, allow_smaller=True)
        made, _ = train(spec, {"x": text})
        assert strings(made) == twin.learn([vocabulary(text)], [], 60, least=1), f"seed {seed}"
        assert len(set(made.tokens)) == made.vocab_size, f"seed {seed}"


def test_exhausted_language_is_passed_over_and_reported() -> None:
    texts = {"poor": ["ab"], "rich": corpus(1)["eng"]}
    dev = {"poor": ["xyz xyz xyz xyz xyz xyz"] * 9, "rich": ["a"] * 9}
    made, report = train(TrainSpec(vocab_size=300), texts, dev)
    assert made.vocab_size == 300
    assert report.exhausted == {"poor": 0}
    assert any("poor" in warning for warning in report.warnings)


@pytest.mark.parametrize("size", [255, 256, 257])
def test_too_small_a_vocabulary_is_refused(size: int) -> None:
    with pytest.raises(UsageError, match="ask for at least 258"):
        TrainSpec(vocab_size=size, variant="classical")


def test_too_little_text_says_what_it_gives() -> None:
    with pytest.raises(SmallVocabularyError, match=r"(?s)259 of the 100000.*--allow-smaller"):
        train(TrainSpec(vocab_size=100_000, variant="classical"), {"x": ["abab"]})
    made, _ = train(TrainSpec(vocab_size=100_000, variant="classical", allow_smaller=True), {"x": ["abab"]})
    assert made.vocab_size == 259


def test_files_and_documents_give_the_same(tmp_path: Path) -> None:
    text = "def f():\n\n\n    return 1\n\n\na\n\nb    x\r\n" * 60
    (tmp_path / "docs.txt").write_bytes(text.encode())
    spec = TrainSpec(vocab_size=275, variant="classical")
    from_file, _ = train(spec, {"code": [tmp_path / "docs.txt"]})
    from_memory, _ = train(spec, {"code": [text]})
    assert from_file.digest == from_memory.digest
    assert any(b"\n\n" in token for token in from_file.tokens), "merges over line ends are learned"


@pytest.mark.parametrize(
    ("texts", "dev", "settings", "message"),
    [
        ({}, None, {}, "no text to train on"),
        ({"x": []}, {"x": ["a"]}, {}, "empty"),
        ({"x": ["", ""]}, {"x": ["a"]}, {}, "empty"),
        ({"x": ["a b"]}, None, {}, "needs development text"),
        ({"x": ["a b"]}, {"y": ["a"]}, {}, r"has `x`, but the development text has not; give .*--dev.*--ratio"),
        ({"x": ["a b"]}, {"x": ["a"], "y": ["a"]}, {}, r"development text has `y`, .*--train LANG=FILE"),
        ({"x": ["a b"], "y": ["c"]}, {"x": ["a"]}, {"ratio": {"y": 1.0}}, r"`x`, but the ratio has not; .*--ratio"),
        ({"x": ["a b"], "y": ["c d"]}, {"x": ["a"], "y": ["a", "b"]}, {}, "aligned.*`y` has 2 .* have 1"),
        ({"x": ["a b"]}, {"x": []}, {}, "development text has no line"),
        ({"x": [Path("/nowhere/text.txt")]}, {"x": ["a"]}, {}, "/nowhere/text.txt"),
        ({"x": [Path("/")]}, {"x": ["a"]}, {}, "folder"),
        ({"x": ["\ud83d"]}, {"x": ["a"]}, {}, "no Unicode text"),
        ({"x": ["a"]}, {"x": ["a"]}, {"pretokenizer": "paper"}, "loses white space"),
        ({"x": ["a"]}, {"x": ["a"]}, {"variant": "nope"}, "unknown variant"),
        ({"x": ["a"]}, {"x": ["a"]}, {"alpha": float("nan")}, "positive"),
    ],
)
def test_mistakes_are_named(texts: Any, dev: Any, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(HeadraceError, match=message) as caught:
        train(TrainSpec(vocab_size=300, **settings), texts, dev)
    assert caught.value.exit_code == 2


def test_broken_utf8_names_file_and_place(tmp_path: Path) -> None:
    (tmp_path / "bad.txt").write_bytes(b"good text\n" * 3 + b"\xff bad")
    with pytest.raises(ConfigError, match=r"bad\.txt` is no UTF-8 at byte 30"):
        train(TrainSpec(vocab_size=300, variant="classical"), {"x": [tmp_path / "bad.txt"]})
