"""The figures of fairness: known values, and the report on text whose figures can be counted by hand."""

from __future__ import annotations

import random

import numpy as np
import pytest
from headrace.proto.errors import UsageError
from headrace.tokenizer import metrics
from headrace.tokenizer.evaluate import evaluate
from headrace.tokenizer.spec import TrainSpec
from headrace.tokenizer.tokenizer import Tokenizer
from headrace.tokenizer.train import train


@pytest.mark.parametrize(
    ("costs", "expected"),
    [
        ((2, 3, 7), 0.277778),
        ((7, 2, 3), 0.277778),
        ((5, 5, 5, 5), 0),
        ((0.01, 0.01, 0.01, 9.97), 0.747),
        ((0, 0, 0, 1), 0.75),
        ((), 0),
    ],
)
def test_gini(costs: tuple[float, ...], expected: float) -> None:
    assert metrics.gini(costs) == pytest.approx(expected, abs=5e-7)


def test_gini_is_the_mean_absolute_difference() -> None:
    rng = random.Random(4)
    for _ in range(50):
        costs = [rng.uniform(0.1, 9) for _ in range(rng.randint(1, 12))]
        mean = sum(costs) / len(costs)
        direct = sum(abs(a - b) for a in costs for b in costs) / (2 * len(costs) ** 2 * mean)
        assert metrics.gini(costs) == pytest.approx(direct, abs=1e-12)


def test_renyi() -> None:
    even = np.array([5, 5, 5, 5, 0])
    for order in (1, 2, 2.5, 3):
        assert metrics.renyi_entropy(even, order) == pytest.approx(2)
    assert metrics.renyi_efficiency(even, 16) == pytest.approx(0.5)


def only_bytes() -> Tokenizer:
    tokens = [b"<|endoftext|>"] + [bytes([byte]) for byte in range(256)]
    return Tokenizer(tokens=tokens, merges=[], special_ids={"<|endoftext|>": 0})


def test_report_by_hand() -> None:
    report = evaluate(only_bytes(), {"x": ["ab", "a b c"], "y": ["中", "é <|endoftext|>"]})
    assert report.languages["x"].tokens_per_line == 3.5
    assert report.languages["y"].tokens_per_line == (3 + 16) / 2
    assert report.gini == pytest.approx(metrics.gini([3.5, 9.5]))
    assert (report.worst, report.best) == ("y", "x")
    assert report.bytes_per_token == 1
    assert report.lines_per_token == 4 / 26
    assert report.lines_per_token_mean == pytest.approx((1 / 2 + 1 / 5 + 1 / 3 + 1 / 16) / 4)
    assert report.languages["x"].fertility == pytest.approx((2 / 1 + 5 / 3) / 2)
    assert report.languages["y"].fertility_pieces == pytest.approx((3 / 1 + 16 / 4) / 2)
    assert report.languages["x"].utilization == 4 / 257
    assert report.special_text == {"<|endoftext|>": 1}


def test_order_of_languages_does_not_matter() -> None:
    lines = {"x": ["ab", "a b c"], "y": ["中", "é"], "z": ["hello", "there"]}
    turned = dict(reversed(lines.items()))
    assert evaluate(only_bytes(), lines).gini == evaluate(only_bytes(), turned).gini


@pytest.mark.parametrize("lines", [{}, {"x": ["a"], "y": ["a", "b"]}, {"x": []}, {"x": [""], "y": ["a"]}])
def test_unaligned_lines_are_refused(lines: dict[str, list[str]]) -> None:
    with pytest.raises(UsageError):
        evaluate(only_bytes(), lines)


def test_trained_on_the_same_is_short() -> None:
    lines = ["hello there"] * 3
    made, _ = train(TrainSpec(vocab_size=260, variant="classical"), {"x": lines * 5})
    assert evaluate(made, {"x": lines}).tokens_per_line < evaluate(only_bytes(), {"x": lines}).tokens_per_line
