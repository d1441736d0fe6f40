"""DoGE in the trainer: inner products of real gradients, the direction of the weights, resume."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")
torch.set_num_threads(1)

from headrace.mixer.doge import DogeSpec  # noqa: E402
from headrace.mixer.proxy.batch import rows_of, take  # noqa: E402
from headrace.mixer.proxy.checkpoint import load, model_digest, save  # noqa: E402
from headrace.mixer.proxy.config import ModelConfig, TrainConfig  # noqa: E402
from headrace.mixer.proxy.doge import DogeObjective  # noqa: E402
from headrace.mixer.proxy.model import Proxy  # noqa: E402
from headrace.mixer.proxy.train import Trainer, losses_of, train  # noqa: E402
from headrace.mixer.static import uniform  # noqa: E402
from headrace.proto.errors import UsageError  # noqa: E402
from packed import SEQ_LEN, VOCAB, batches  # noqa: E402

MODEL = ModelConfig(vocab_size=VOCAB, seq_len=SEQ_LEN, width=32, blocks=2, heads=2, feed_forward=64)
EVEN = {"noise": 3, "other": 3, "plain": 3, "twin": 3}


def trainer(spec: DogeSpec) -> tuple[Trainer, DogeObjective]:
    objective = DogeObjective(uniform(EVEN), spec)
    return Trainer(MODEL, TrainConfig(steps=60, lr=1e-2, warmup=5), objective), objective


def test_the_gradient_is_that_of_the_domain_mean_and_clipped() -> None:
    model, rows = Proxy(MODEL, seed=3), rows_of(next(batches(EVEN, 0)))
    mine = rows.select(rows.domain == 1)
    _, objective = trainer(DogeSpec())
    found = objective._gradient(model, mine, 2)
    losses_of(model, mine)[mine.mask].mean().backward()
    whole = torch.cat([p.grad.flatten() for p in model.parameters()])
    assert torch.allclose(found, whole, atol=1e-6)
    objective.largest_norm = float(whole.norm()) / 2
    assert float(objective._gradient(model, mine, 99).norm()) == pytest.approx(objective.largest_norm, rel=1e-5)


def test_domains_that_help_each_other_gain_on_noise() -> None:
    loop, objective = trainer(DogeSpec(lr=1e-2, mu=0.5))
    train(loop, take(batches(EVEN, 0), 60))
    average = objective.state.average
    assert min(average["plain"], average["twin"]) > average["noise"]
    assert np.isfinite(list(average.values())).all()
    assert sum(average.values()) == pytest.approx(1.0)


def test_it_resumes(tmp_path: Path) -> None:
    whole, one = trainer(DogeSpec())
    train(whole, take(batches(EVEN, 0), 6))
    half, _ = trainer(DogeSpec())
    train(half, take(batches(EVEN, 0), 3))
    save(tmp_path / "doge.npz", half)
    _, again = trainer(DogeSpec())
    saved = load(tmp_path / "doge.npz", objective=again)
    train(saved.trainer, take(batches(EVEN, 0, start=3), 3))
    assert again.state == one.state
    assert model_digest(saved.trainer.model) == model_digest(whole.model)


def test_other_domains_are_refused() -> None:
    loop, _ = trainer(DogeSpec())
    with pytest.raises(UsageError, match="the weights name"):
        train(loop, take(batches({"new": 3}, 0), 1))
