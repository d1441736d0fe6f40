"""Merges across words at the end of training: exact, late, and read alike by Hugging Face."""

from __future__ import annotations

from pathlib import Path

import pytest
import twin
from headrace.native import split_pieces
from headrace.proto.errors import UsageError
from headrace.tokenizer.byte_chars import to_chars
from headrace.tokenizer.spec import TrainSpec
from headrace.tokenizer.tokenizer import Tokenizer
from headrace.tokenizer.train import train

TEXT = "of the cat, and of the dog, and of the cat again; it's in the house of the cat.\n  in the end\n" * 40


def crosses(token: bytes) -> bool:
    return b" " in token.strip()


def test_words_join_only_at_the_end() -> None:
    made, report = train(TrainSpec(merges=28, variant="classical", superword_merges=8), {"x": [TEXT]})
    crossing = [crosses(made.tokens[left] + made.tokens[right]) for left, right in made.merges]
    assert not any(crossing[:20])
    assert any(crossing[20:])
    assert made.pretokenizer == "clause"
    plain, before = train(TrainSpec(merges=28, variant="classical"), {"x": [TEXT]})
    assert made.merges[:20] == plain.merges[:20], "until then nothing differs"
    assert report.tokens_after["all"] < before.tokens_after["all"]
    assert len(made.encode(TEXT)) == report.tokens_after["all"]
    assert made.decode(made.encode(TEXT)) == TEXT.encode()


def test_words_join_sooner_when_nothing_else_is_left() -> None:
    made, _ = train(TrainSpec(merges=40, variant="classical", superword_merges=2), {"x": [TEXT]})
    crossing = [crosses(made.tokens[left] + made.tokens[right]) for left, right in made.merges]
    assert 2 < sum(crossing) < 20


@pytest.mark.parametrize("late", [5, 12, 20])
def test_equals_the_twin(late: int) -> None:
    made, _ = train(TrainSpec(merges=40, variant="classical", superword_merges=late), {"x": [TEXT]})
    words = twin.vocabulary(split_pieces("clause", TEXT))
    learned: list[tuple[str, str]] = []
    while len(learned) < 40:
        counts = twin.pair_counts(words)
        is_late = len(learned) >= 40 - late
        crossing = {p for p in counts if p[1][0] == "Ġ" and p[0][-1] not in "ĠĊ"}
        allowed = [(n, p) for p, n in counts.items() if n > 1 and (is_late or p not in crossing)]
        allowed = allowed or [(n, p) for p, n in counts.items() if n > 1]
        learned.append(max(allowed)[1])
        words = twin.merge_all(words, learned[-1])
    chars = [to_chars(token) for token in made.tokens]
    assert [(chars[left], chars[right]) for left, right in made.merges] == learned
    text = "the end of the house, in  the cat's end of"
    expected = [token for piece in split_pieces("clause", text) for token in twin.encode(piece, learned)]
    assert [chars[i] for i in made.encode(text)] == expected


def test_other_encoders_give_the_same_ids(tmp_path: Path) -> None:
    peer = pytest.importorskip("tokenizers", reason="Hugging Face tokenizers is not installed")
    made, _ = train(TrainSpec(merges=40, variant="classical", superword_merges=15), {"x": [TEXT]})
    made.save(tmp_path / "t.json")
    assert Tokenizer.load(tmp_path / "t.json").digest == made.digest
    theirs = peer.Tokenizer.from_file(str(tmp_path / "t.json"))
    for text in (TEXT, "the  end\tof the\u00a0cat of the cat 1 of 2 of the ", " of", "x" * 300 + " of the" * 300):
        assert made.encode(text).tolist() == theirs.encode(text).ids


def test_settings_that_do_not_fit_are_refused() -> None:
    with pytest.raises(UsageError, match="go with the pre-tokenizer"):
        TrainSpec(merges=50, superword_merges=5, pretokenizer="gpt2")
    with pytest.raises(UsageError, match="0 to 50"):
        TrainSpec(merges=50, superword_merges=51)
