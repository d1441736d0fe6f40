"""DoReMi in the trainer: order of clamp and mean, the paper's normaliser, directions on known domains, resume."""

from __future__ import annotations

from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
torch.set_num_threads(1)

from headrace.mixer.doremi import DoremiSpec  # noqa: E402
from headrace.mixer.proxy.batch import Rows, rows_of, take  # noqa: E402
from headrace.mixer.proxy.checkpoint import load, model_digest, save  # noqa: E402
from headrace.mixer.proxy.config import ModelConfig, TrainConfig  # noqa: E402
from headrace.mixer.proxy.doremi import DoremiObjective  # noqa: E402
from headrace.mixer.proxy.losses import domain_sums, row_weights  # noqa: E402
from headrace.mixer.proxy.model import Proxy  # noqa: E402
from headrace.mixer.proxy.train import Trainer, train  # noqa: E402
from headrace.mixer.static import uniform  # noqa: E402
from headrace.proto.errors import ConfigError, UsageError  # noqa: E402
from packed import SEQ_LEN, VOCAB, batches  # noqa: E402

MODEL = ModelConfig(vocab_size=VOCAB, seq_len=SEQ_LEN, width=32, blocks=2, heads=2, feed_forward=64)
EVEN = {"noise": 3, "other": 3, "plain": 3}


@pytest.fixture(scope="module")
def reference() -> Proxy:
    trainer = Trainer(MODEL, TrainConfig(steps=150, lr=1e-2, warmup=5, seed=7))
    train(trainer, take(batches(EVEN, 70), 150))
    return trainer.model


def proxy(reference: Proxy, mode: str = "paper", spec: DoremiSpec | None = None) -> tuple[Trainer, DoremiObjective]:
    objective = DoremiObjective(reference, uniform(EVEN), spec or DoremiSpec(), mode=mode)  # type: ignore[arg-type]
    return Trainer(MODEL, TrainConfig(steps=80, lr=1e-2, warmup=5), objective), objective


def two_domains(mask: list[list[bool]]) -> Rows:
    shape = torch.zeros((2, 2), dtype=torch.int64)
    return Rows(
        step=0,
        ids=shape,
        labels=shape,
        positions=shape,
        mask=torch.tensor(mask),
        domain=torch.arange(2),
        names=("a", "b"),
    )


def test_the_clamp_comes_before_the_mean() -> None:
    ours = torch.tensor([[2.0, 1.0], [3.0, 1.0]])
    theirs = torch.tensor([[1.0, 2.0], [3.5, 0.5]])
    rows = two_domains([[True, True], [True, True]])
    by_token = domain_sums(rows, (ours - theirs).clamp(min=0))
    assert (by_token[:, 1] / by_token[:, 0]).tolist() == [0.5, 0.25]
    by_domain = domain_sums(rows, ours - theirs)
    assert (by_domain[:, 1] / by_domain[:, 0]).clamp(min=0).tolist() == [0.0, 0.0]  # what clamping the mean would score


def test_the_objective_is_the_sum_of_domain_means(reference: Proxy) -> None:
    _, objective = proxy(reference)
    rows = rows_of(next(batches({"noise": 1, "other": 3, "plain": 1}, 5)))
    model = Proxy(MODEL, seed=1)
    same, weights = objective.prepare(model, rows, 2)
    assert same is rows
    alpha = objective.state.weights
    for index, name in enumerate(rows.names):
        at = rows.domain == index
        tokens = rows.mask[at].sum().item()
        assert weights[at].tolist() == pytest.approx([alpha[name] / tokens] * int(at.sum()))


def test_tokens_of_a_domain_do_not_weigh_it_again() -> None:
    """Equal weights, 30 and 10 tokens, mean losses 2 and 4: the published objective is 3; tokens alike, it were 2.5."""
    mask = torch.arange(30)[None, :] < torch.tensor([30, 10])[:, None]
    ids = torch.zeros((2, 30), dtype=torch.int64)
    rows = Rows(step=0, ids=ids, labels=ids, positions=ids, mask=mask, domain=torch.arange(2), names=("a", "b"))
    tokens, sums = domain_sums(rows, torch.tensor([[2.0], [4.0]]) * mask).T
    weights = row_weights(rows, tokens, {"a": 0.5, "b": 0.5})
    assert float(weights @ sums.float()) == pytest.approx(3.0)
    assert float(sums.sum() / tokens.sum()) == 2.5


def test_the_weights_go_where_the_proxy_lags_and_noise_gets_none_for_being_hard(reference: Proxy) -> None:
    trainer, objective = proxy(reference)
    train(trainer, take(batches(EVEN, 0), 80))
    average = objective.state.average
    assert average["plain"] > average["noise"] + 0.1
    assert average["other"] > average["noise"] + 0.1
    assert sum(average.values()) == pytest.approx(1.0)
    assert objective.state.samples == 80
    assert 0 < objective.state.drift_share < 0.3


def test_the_sampled_mode_draws_rows_from_the_weights(reference: Proxy) -> None:
    _, objective = proxy(reference, "sampled", DoremiSpec(eta=20.0))
    counts = torch.zeros(3)
    for rows in take(batches(EVEN, 1), 30):
        drawn, weights = objective.prepare(Proxy(MODEL, seed=0), rows, 99)
        counts += torch.bincount(drawn.domain, minlength=3)
        assert float(weights[0]) == pytest.approx(1 / drawn.mask.sum().item())
    best = max(objective.state.average, key=objective.state.average.__getitem__)
    assert counts[sorted(EVEN).index(best)] / counts.sum() > 0.6


def test_it_resumes_with_its_weights(reference: Proxy, tmp_path: Path) -> None:
    whole, one = proxy(reference)
    train(whole, take(batches(EVEN, 0), 8))
    half, _ = proxy(reference)
    train(half, take(batches(EVEN, 0), 4))
    save(tmp_path / "doremi.npz", half)
    _, again = proxy(reference)
    saved = load(tmp_path / "doremi.npz", objective=again)
    train(saved.trainer, take(batches(EVEN, 0, start=4), 4))
    assert again.state == one.state
    assert model_digest(saved.trainer.model) == model_digest(whole.model)
    with pytest.raises(ConfigError, match="another objective"):
        load(tmp_path / "doremi.npz")
    with pytest.raises(ConfigError, match="mode paper"):
        load(tmp_path / "doremi.npz", objective=proxy(reference, "sampled")[1])


def test_batches_that_cannot_hold_every_domain_are_refused(reference: Proxy) -> None:
    trainer, _ = proxy(reference)
    rows = rows_of(next(batches(EVEN, 0)))
    with pytest.raises(UsageError, match="batch of 2 rows"):
        trainer.take(rows.select(slice(0, 2)))
    with pytest.raises(UsageError, match="the weights name"):
        train(trainer, take(batches({"noise": 3, "new": 3}, 0), 1))
