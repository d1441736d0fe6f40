"""On a corpus whose best weights are known: where each method moves them, and what an online run gains by its moves.

Minutes of training, so HEADRACE_SLOW=1 runs it; `tests/bench/bench_mixer.py online` measures the gain over five seeds.
"""

from __future__ import annotations

import os
from pathlib import Path
from statistics import fmean

import pytest

torch = pytest.importorskip("torch")
torch.set_num_threads(1)

from headrace.client import Loader  # noqa: E402
from headrace.mixer import online  # noqa: E402
from headrace.mixer.aioli import AioliSpec  # noqa: E402
from headrace.mixer.krls import KrlsSpec, krls  # noqa: E402
from headrace.mixer.loglinear import fit, runs_needed, solve  # noqa: E402
from headrace.mixer.online import OnlineSpec  # noqa: E402
from headrace.mixer.proxy.batch import rows_of  # noqa: E402
from headrace.mixer.proxy.config import model_config, train_config  # noqa: E402
from headrace.mixer.proxy.learned import aioli_weights, doge_weights, doremi_weights  # noqa: E402
from headrace.mixer.proxy.session import ProxyPlan, proxy_weights  # noqa: E402
from headrace.mixer.proxy.train import Trainer  # noqa: E402
from headrace.mixer.proxy.trial import run_trial  # noqa: E402
from headrace.mixer.regmix import RegmixSpec, regmix  # noqa: E402
from headrace.mixer.reports import Measured, Report, add  # noqa: E402
from headrace.mixer.simplex import normalise  # noqa: E402
from headrace.mixer.static import natural, unimax  # noqa: E402
from headrace.mixer.swarm import SwarmSpec, swarm  # noqa: E402
from known_corpus import DOCUMENTS, VOCABULARY, entropy, texts, tokenizer  # noqa: E402
from known_run import LEARNING_RATE, SEQ_LEN, UNIFORM, VELOCITY, Stage, held_out_losses, train_run  # noqa: E402
from mixer_rig import Server  # noqa: E402

Sweep = list[tuple[dict[str, float], dict[str, float]]]
PLAN = ProxyPlan(steps=200, windows=32, save_every=200)


@pytest.fixture(scope="module")
def stage(server: Server, tmp_path_factory: pytest.TempPathFactory) -> Stage:
    return Stage(tmp_path_factory.mktemp("known"), server)


def test_the_corpus_is_what_it_says() -> None:
    assert tokenizer().vocab_size == VOCABULARY
    for name in DOCUMENTS:
        first, other = texts(name, 2, 1), texts(name, 2, 2)
        assert [len(tokenizer().encode(text)) for text in first] == [100, 100]
        assert first != other
    assert texts("plain", 1, 1) != texts("twin", 1, 1)
    assert entropy() == pytest.approx(1.815848, abs=1e-6)


@pytest.fixture(scope="module")
def sweep(stage: Stage) -> Sweep:
    """Mixtures around the even one, and the held-out losses of a proxy trained on each; as many as the law asks for."""
    drawn = swarm(UNIFORM, SwarmSpec(runs=runs_needed(len(DOCUMENTS)) - 1, weakest=1.0))
    held_out, found = stage.held_out(), []
    for number, weights in enumerate([*drawn, normalise(UNIFORM, place="uniform")]):
        where = {"folder": stage.folder / "sweep", "name": str(number), "held_out": held_out, "plan": PLAN}
        trial = run_trial(stage.server.address, stage.run(weights, steps=200), weights=weights, **where)
        found.append((dict(trial.weights), dict(trial.losses)))
    return found


@pytest.mark.slow
@pytest.mark.skipif(not os.environ.get("HEADRACE_SLOW"), reason="set HEADRACE_SLOW=1")
class TestTrainings:
    def test_krls_gives_to_redundant_domains_in_pretraining_and_to_others_in_finetuning(
        self, stage: Stage, tmp_path: Path
    ) -> None:
        """Published: pretrain weighs what others share (1 / S), finetune what is unique (S)."""
        spec = KrlsSpec(convention="paper", relative_lam=0.01)
        outcome = proxy_weights(stage.server.address, stage.run(steps=200), folder=tmp_path, plan=PLAN, krls_spec=spec)
        pretrain = outcome.mixture.raw
        finetune = krls(
            outcome.embeddings.vectors, KrlsSpec(convention="paper", relative_lam=0.01, purpose="finetune")
        ).weights
        redundant, alone = ("plain", "twin"), ("noise", "other", "small")
        assert min(pretrain[name] for name in redundant) > max(pretrain[name] for name in alone)
        assert max(finetune[name] for name in redundant) < min(finetune[name] for name in alone)

    def test_doremi_gives_nothing_for_being_hard(self, stage: Stage, tmp_path: Path) -> None:
        """Excess over a reference: noise, as good as it gets for both, loses; what the reference knew better gains.

        `small` loses too: a reference on token shares has hardly seen it. That is the method, not a fault.
        """
        mixture = doremi_weights(
            stage.server.address,
            reference_run=stage.run(natural({n: float(c) for n, c in DOCUMENTS.items()}), steps=200),
            run=stage.run(steps=200),
            folder=tmp_path,
            plan=PLAN,
        )
        assert mixture.raw["noise"] < 0.1 < 0.2 < min(mixture.raw[name] for name in ("other", "plain", "twin"))
        assert mixture.raw["small"] < 0.2

    def test_doge_gives_to_domains_that_serve_each_other(self, stage: Stage, tmp_path: Path) -> None:
        mixture = doge_weights(stage.server.address, run=stage.run(steps=200), folder=tmp_path, plan=PLAN)
        assert mixture.raw["noise"] == min(mixture.raw.values())
        assert min(mixture.raw["plain"], mixture.raw["twin"]) > mixture.raw["noise"]

    def test_the_mixing_law_finds_what_the_corpus_was_made_for(self, sweep: Sweep) -> None:
        """To the least predicted loss: noise learns nothing from its weight, the pair of one grammar teaches each
        other, the small domain counts as much as the others whatever it holds."""
        mixtures = [weights for weights, _ in sweep]
        laws = [fit(mixtures, [losses[name] for _, losses in sweep]) for name in DOCUMENTS]
        weights = solve(laws, UNIFORM).weights
        print(f"log-linear: {weights}")
        assert weights["noise"] == min(weights.values()) < 0.05
        assert min(weights["other"], weights["small"]) > 0.22
        assert weights["other"] < weights["plain"] + weights["twin"] < 2 * weights["other"]

    def test_regmix_takes_from_noise_and_a_line_alone_goes_into_a_corner(self, sweep: Sweep) -> None:
        """Trees put noise down and give to the unique; a line predicts ever less loss up to one domain alone."""
        mixtures, losses = [weights for weights, _ in sweep], [fmean(losses.values()) for _, losses in sweep]
        forest = regmix(mixtures, losses, UNIFORM, RegmixSpec(regressor="trees"))
        line = regmix(mixtures, losses, UNIFORM, RegmixSpec(regressor="linear"))
        print(f"regmix: {forest}, {line}")
        assert forest.weights["noise"] == min(forest.weights.values()) < 0.05
        assert forest.weights["other"] > 0.22
        assert forest.predicted < losses[-1]  # the even mixture, as measured
        assert line.weights["noise"] < 0.01
        assert max(line.weights.values()) > 0.95

    def test_aioli_takes_from_noise_in_the_mean_of_seeds(self, stage: Stage, tmp_path: Path) -> None:
        """To domains that lower the losses of all. Measured for 16 steps on nearly one domain: in 4, as by default, the
        optimizer's momentum still carries what came before, and at the default eta weights move by a hundredth."""
        held_out, found = stage.held_out(), []
        spec = AioliSpec(rounds=2, steps=16, every=40, eta=5.0, concentration=0.95)
        for seed in range(3):
            plan = ProxyPlan(steps=600, windows=32, save_every=600, seed=seed)
            where = {"folder": tmp_path / str(seed), "held_out": held_out, "plan": plan, "spec": spec}
            found.append(aioli_weights(stage.server.address, run=stage.run(steps=600, seed=7 + seed), **where).raw)
        mean = {name: fmean(weights[name] for weights in found) for name in DOCUMENTS}
        print(f"aioli: mean {mean} of {found}")
        assert mean["noise"] == min(mean.values()) < 0.19
        assert min(mean["plain"], mean["twin"]) > 0.21

    def test_online_rules_follow_their_own_signals(self, stage: Stage) -> None:
        """The same losses under each rule: velocity and ADO leave what no longer falls, ODM goes where loss is high."""
        steps = 400
        trainer = Trainer(
            model_config("tiny", vocab_size=VOCABULARY, seq_len=SEQ_LEN),
            train_config("tiny", steps=steps, lr=LEARNING_RATE),
        )
        reports: list[Report] = []
        with Loader(stage.server.address, stage.run(steps=steps), rank=0, world=1) as loader:
            for batch in loader:
                found = trainer.take(rows_of(batch)).losses
                domains = {name: Measured(loss=loss.loss, tokens=loss.tokens) for name, loss in found.items()}
                reports.append(Report(step=batch.step, domains=domains))
        windows = [add(reports[first : first + 20]) for first in range(0, steps, 20)]
        final = {}
        for name, spec in {
            "velocity": OnlineSpec(rule="velocity", eta=1.0),
            "odm": OnlineSpec(rule="odm"),
            "ado": OnlineSpec(rule="ado", fresh=0.5, ignored=3),
        }.items():
            state = online.start(UNIFORM, spec)
            for window in windows:
                state = online.advance(state, window, spec)
            final[name] = state.weights
        highest = max(windows[-1].domains, key=lambda name: windows[-1].domains[name].mean_loss)
        assert highest == "noise"
        assert final["velocity"]["noise"] == min(final["velocity"].values()) < 0.15
        assert final["ado"]["noise"] == min(final["ado"].values()) < 0.15
        assert final["odm"]["noise"] == max(final["odm"].values()) > 0.2

    def test_static_rules_know_only_sizes(self, stage: Stage) -> None:
        sizes = natural(stage.tokens)
        assert sizes["small"] == min(sizes.values()) < 0.03
        assert unimax(stage.tokens, sum(stage.tokens.values()), 4).weights["small"] > 3 * sizes["small"]

    def test_an_online_run_gains_on_uniform(self, stage: Stage) -> None:
        held_out, steps, losses = stage.held_out(), 1000, {}
        for kind, rule in (("uniform", None), ("online", VELOCITY)):
            trainer, watched = train_run(stage, stage.run(steps=steps, seed=100), 0, steps, rule)
            losses[kind] = held_out_losses(stage, held_out, trainer)
        pushed = watched.weights
        assert len(pushed) >= 6
        assert pushed[-1]["noise"] < 0.08
        assert pushed[-1]["plain"] < 0.2 < min(pushed[-1]["other"], pushed[-1]["small"])
        assert max(watched.delays) <= 20 + 8 + 2  # steps taken before it looked, the lead, and what was under way
        mean = {kind: fmean(found.values()) for kind, found in losses.items()}
        print(f"held-out loss: {mean}, by domain {losses}")
        assert mean["online"] < mean["uniform"] - 0.002
        useful = {kind: fmean(v for n, v in found.items() if n != "noise") for kind, found in losses.items()}
        assert useful["online"] < useful["uniform"] - 0.004
