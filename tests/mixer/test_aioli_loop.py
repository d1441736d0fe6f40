"""Aioli's measuring loop: who is measured when, what a cycle does to the weights, and the trainer's part."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from headrace.mixer import aioli
from headrace.mixer.aioli import AioliSpec
from headrace.proto.errors import UsageError

torch = pytest.importorskip("torch")
torch.set_num_threads(1)

from headrace.mixer.proxy.aioli import AioliObjective  # noqa: E402
from headrace.mixer.proxy.batch import rows_of, take  # noqa: E402
from headrace.mixer.proxy.checkpoint import load, model_digest, save  # noqa: E402
from headrace.mixer.proxy.config import ModelConfig, TrainConfig  # noqa: E402
from headrace.mixer.proxy.train import Trainer, train  # noqa: E402
from packed import SEQ_LEN, VOCAB, batches  # noqa: E402

NAMES = ("a", "b", "c")
SPEC = AioliSpec(rounds=2, steps=3, every=5, concentration=0.8, eta=0.2)
MODEL = ModelConfig(vocab_size=VOCAB, seq_len=SEQ_LEN, width=32, blocks=2, heads=2, feed_forward=64)
EVEN = {"noise": 3, "other": 3, "plain": 3, "twin": 3}
LOOP = AioliSpec(rounds=2, steps=3, every=10, eta=1.0)


def test_every_domain_is_measured_alike_and_backwards_in_every_second_round() -> None:
    assert (SPEC.measuring(3), SPEC.cycle(3)) == (18, 23)
    chosen = [aioli.measured(NAMES, SPEC, step) for step in range(46)]
    assert chosen[:23] == ["a"] * 3 + ["b"] * 3 + ["c"] * 6 + ["b"] * 3 + ["a"] * 3 + [None] * 5
    assert chosen[23:] == chosen[:23]
    assert Counter(chosen[:18]) == {"a": 6, "b": 6, "c": 6}
    assert [step for step in range(23) if aioli.due(NAMES, SPEC, step)] == [0, 3, 6, 9, 12, 15, 18]
    assert aioli.due(NAMES, SPEC, 23)
    state = aioli.start({"a": 1, "b": 1, "c": 2}, SPEC)
    assert aioli.mixture(state, SPEC, 4) == pytest.approx({"a": 0.1, "b": 0.8, "c": 0.1})
    assert aioli.mixture(state, SPEC, 20) == pytest.approx({"a": 0.25, "b": 0.25, "c": 0.5})


def cycle(pure: dict[str, dict[str, float]], speed: float) -> aioli.AioliState:
    """A cycle of losses that fall by `pure[i][j]` a step on j alone, by `speed` as much in each measuring."""
    state = aioli.start(dict.fromkeys(NAMES, 1.0), SPEC)
    losses, factor = dict.fromkeys(NAMES, 9.0), 1.0
    for step in range(SPEC.measuring(3) + 1):
        if aioli.due(NAMES, SPEC, step):
            state = aioli.observe(state, losses, SPEC, step)
            factor *= speed if step else 1.0
        trained = aioli.mixture(state, SPEC, step)
        losses = {i: loss - factor * sum(pure[i][j] * trained[j] for j in NAMES) for i, loss in losses.items()}
    return state


def test_a_cycle_finds_the_falls_of_pure_domains() -> None:
    pure = {"a": {"a": 0.1, "b": 0.02, "c": 0.0}, "b": {"a": 0.01, "b": 0.2, "c": 0.0}, "c": dict.fromkeys(NAMES, 0.03)}
    state = cycle(pure, 1.0)
    found = aioli.unmix(state.found, SPEC.concentration)
    for i in NAMES:
        assert found[i] == pytest.approx({j: 6 * fall for j, fall in pure[i].items()})  # two rounds of three steps
    assert state.weights == pytest.approx(aioli.advance(dict.fromkeys(NAMES, 1.0), pure, eta=0.2))
    assert state.average == state.weights
    assert state.weights["b"] > state.weights["a"] > state.weights["c"]


def test_who_is_measured_first_gains_little_by_it() -> None:
    """Losses fall ever slower; equal domains get nearly equal weights all the same, which one round does not give."""
    state = cycle({i: dict.fromkeys(NAMES, 0.1) for i in NAMES}, 0.9)
    once = {i: {j: 0.9**n for n, j in enumerate(NAMES)} for i in NAMES}
    gained = aioli.advance(dict.fromkeys(NAMES, 1.0), once)["a"] - 1 / 3
    assert abs(state.weights["a"] - 1 / 3) < gained / 3


def test_what_it_refuses() -> None:
    with pytest.raises(UsageError, match="concentration"):
        aioli.start({"a": 1, "b": 1}, AioliSpec(concentration=0.5))
    with pytest.raises(UsageError, match="at least 1"):
        AioliSpec(every=0)
    state = aioli.start(dict.fromkeys(NAMES, 1.0), SPEC)
    for losses in ({"a": 1.0, "b": 1.0}, {"a": 1.0, "b": 1.0, "c": float("nan")}):
        with pytest.raises(UsageError, match="`c` has no finite held-out loss"):
            aioli.observe(state, losses, SPEC, 0)


def trainer() -> tuple[Trainer, AioliObjective]:
    held = [rows_of(next(batches(EVEN, seed))) for seed in (91, 92)]
    objective = AioliObjective(dict.fromkeys(EVEN, 1.0), LOOP, held)
    return Trainer(MODEL, TrainConfig(steps=80, lr=1e-2, warmup=5), objective), objective


def test_domains_that_lower_losses_gain_on_noise() -> None:
    loop, objective = trainer()
    train(loop, take(batches(EVEN, 0), 80))
    assert (objective.state.samples, objective.step) == (2, 80)
    average = objective.state.average
    assert min(average["plain"], average["twin"]) > average["other"] > average["noise"]  # two that share, one alone


def test_it_resumes_in_the_middle_of_a_measuring(tmp_path: Path) -> None:
    whole, one = trainer()
    train(whole, take(batches(EVEN, 0), 28))
    half, _ = trainer()
    train(half, take(batches(EVEN, 0), 7))
    save(tmp_path / "aioli.npz", half)
    _, again = trainer()
    saved = load(tmp_path / "aioli.npz", objective=again)
    train(saved.trainer, take(batches(EVEN, 0, start=7), 21))
    assert (again.state, again.step) == (one.state, one.step)
    assert again.state.samples == 1
    assert model_digest(saved.trainer.model) == model_digest(whole.model)


def test_other_domains_are_refused_and_other_checkpoints() -> None:
    loop, objective = trainer()
    with pytest.raises(UsageError, match="the weights name"):
        train(loop, take(batches({"new": 3}, 0), 1))
    with pytest.raises(ValueError, match="another objective"):
        objective.restore({"doge": {}})
