"""From a served run to weights, with a real server: directions, resume, the files, new domains, a sweep."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
torch.set_num_threads(1)

from click.testing import CliRunner, Result  # noqa: E402
from headrace.client import Loader  # noqa: E402
from headrace.client.cli.mixer import mixer  # noqa: E402
from headrace.mixer.embeddings import load_embeddings  # noqa: E402
from headrace.mixer.krls import KrlsSpec  # noqa: E402
from headrace.mixer.proxy.checkpoint import load, model_digest  # noqa: E402
from headrace.mixer.proxy.job import next_attempt  # noqa: E402
from headrace.mixer.proxy.session import ProxyPlan, embed_run, proxy_weights, train_proxy  # noqa: E402
from headrace.mixer.remote import Remote  # noqa: E402
from headrace.mixer.result import load as load_mixture  # noqa: E402
from headrace.mixer.trials import load_trials  # noqa: E402
from headrace.proto.errors import ConfigError, ConflictError, FencedError, NotFoundError, UsageError  # noqa: E402
from mixer_rig import DOCUMENTS, Server, run_toml  # noqa: E402

slow = pytest.mark.skipif(not os.environ.get("HEADRACE_SLOW"), reason="minutes of training; HEADRACE_SLOW=1 runs it")
PAPER = KrlsSpec(convention="paper", relative_lam=0.01)


def test_redundant_domains_gain_in_pretraining(server: Server, make_run: Callable[..., str], tmp_path: Path) -> None:
    seen: list[int] = []
    outcome = proxy_weights(
        server.address,
        make_run(),
        folder=tmp_path,
        steps=60,
        windows=16,
        krls_spec=PAPER,
        on_step=lambda report: seen.append(report.step),
    )
    assert seen == list(range(60))
    weights = outcome.mixture.raw
    assert set(weights) == set(DOCUMENTS)
    assert min(weights["plain"], weights["twin"]) > max(weights["other"], weights["noise"], weights["small"])
    assert load_mixture(tmp_path / "mixture.json") == outcome.mixture
    assert load_embeddings(tmp_path / "embeddings.npz").digest == outcome.embeddings.digest
    assert outcome.mixture.inputs["proxy"] == model_digest(load(tmp_path / "proxy.npz").trainer.model)
    assert outcome.mixture.diagnostics["flops"] == outcome.flops > 0


def test_a_training_that_was_cut_short_ends_with_the_same_proxy(
    server: Server, make_run: Callable[..., str], tmp_path: Path
) -> None:
    class CutError(Exception):
        pass

    def cut(report: object) -> None:
        if getattr(report, "step", 0) == 17:
            raise CutError

    plan = ProxyPlan(steps=24, save_every=8)
    whole, _ = train_proxy(server.address, make_run(), plan, tmp_path / "whole")
    run = make_run()
    with pytest.raises(CutError):
        train_proxy(server.address, run, plan, tmp_path / "cut", cut)
    assert load(tmp_path / "cut" / "proxy.npz").trainer.step == 16
    again, _ = train_proxy(server.address, run, plan, tmp_path / "cut")
    assert model_digest(again.model) == model_digest(whole.model)
    other, _ = train_proxy(server.address, make_run(seed=8), plan, tmp_path / "other")
    assert model_digest(other.model) != model_digest(whole.model)
    with pytest.raises(ConflictError, match="seed 0 for 24 steps"):
        train_proxy(server.address, run, ProxyPlan(steps=30), tmp_path / "cut")
    anew, _ = train_proxy(server.address, run, plan, tmp_path / "empty")
    assert model_digest(anew.model) == model_digest(whole.model)  # the run serves its past again, exactly


def test_a_killed_training_is_started_again_at_once(
    server: Server, make_run: Callable[..., str], tmp_path: Path
) -> None:
    run, plan = make_run(), ProxyPlan(steps=4)
    killed = Loader(server.address, run, rank=0, world=1, **next_attempt(tmp_path))
    next(iter(killed))  # it holds the lease of the run and will never say that it is gone
    trainer, _ = train_proxy(server.address, run, plan, tmp_path)
    assert trainer.step == 4
    with pytest.raises(FencedError):
        list(killed)
    killed.close()
    (tmp_path / "job.json").write_text("{}")
    with pytest.raises(ConfigError, match=r"job\.json"):
        train_proxy(server.address, run, plan, tmp_path)


def test_a_run_that_is_not_there_leaves_nothing_behind(server: Server, tmp_path: Path) -> None:
    config = tmp_path / "MIXER.toml"
    config.write_text(f'[mixer]\nrun = "nosuch"\nserver = "{server.address}"\n')
    where = ("--server", server.address, "--out", str(tmp_path / "out"))
    for words in (
        ("proxy", "nosuch", *where),
        ("doge", "nosuch", *where),
        ("doremi", "nosuch", "--reference-run", "neither", *where),
        ("serve", str(config), "--once"),
    ):
        done = CliRunner().invoke(mixer, words)
        assert isinstance(done.exception, NotFoundError), done.output
        assert "there is no run `nosuch`" in str(done.exception)
        assert list(tmp_path.iterdir()) == [config]


def test_a_new_domain_is_embedded_by_the_old_proxy(
    server: Server, make_run: Callable[..., str], tmp_path: Path
) -> None:
    plan = ProxyPlan(steps=20, windows=8)
    four = {name: 1.0 for name in DOCUMENTS if name != "twin"} | {"twin": 0.0}
    trainer, _ = train_proxy(server.address, make_run(four), plan, tmp_path)
    before = model_digest(trainer.model)
    newcomer = make_run({name: float(name == "twin") for name in DOCUMENTS}, steps=4)
    train_proxy(server.address, newcomer, ProxyPlan(steps=2), tmp_path / "seal")  # seals steps that can be observed
    found = embed_run(server.address, newcomer, plan, trainer, domains=["twin"])
    assert set(found.vectors) == {"twin"}
    assert model_digest(trainer.model) == before == found.meta["proxy"]
    # By the command, from held-out windows: the weights are those of embedding all five at once.
    where = ("--proxy", tmp_path / "proxy.npz", "--server", server.address, "--windows", "8")
    held = make_run(kind="eval", steps=8)
    names = [word for name, weight in four.items() if weight for word in ("--domain", name)]
    headrace("embed", held, *names, "--out", tmp_path / "four.npz", *where)
    alone = make_run({name: float(name == "twin") for name in DOCUMENTS}, kind="eval", steps=2)
    done = headrace("embed", alone, "--domain", "twin", "--out", tmp_path / "twin.npz", *where)
    assert "windows: twin 8" in done.stdout
    headrace("embed", held, "--out", tmp_path / "five.npz", *where)
    files = ("--embeddings", tmp_path / "four.npz", "--embeddings", tmp_path / "twin.npz")
    joined = json.loads(headrace("compute", "krls", *files, "--json").stdout)
    whole = json.loads(headrace("compute", "krls", "--embeddings", tmp_path / "five.npz", "--json").stdout)
    assert (joined["weights"], joined["inputs"]) == (whole["weights"], whole["inputs"])
    assert len(joined["weights"]) == 5


def headrace(*arguments: str | Path) -> Result:
    done = CliRunner().invoke(mixer, [str(word) for word in arguments], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done


def sweep(
    server: Server, make_run: Callable[..., str], corpus: Path, folder: Path, *files: str
) -> tuple[str | Path, ...]:
    """Arguments of a sweep over some of the files `noisy` and `clean`, and a grid of one."""
    held_out = make_run(kind="eval", steps=5, seed=99)
    template = folder / "RUN.toml"
    template.write_text(run_toml("template", corpus, dict.fromkeys(DOCUMENTS, 1.0), steps=30))
    for name, weights in (("noisy", {"noise": 1.0}), ("clean", {"plain": 1.0, "other": 1.0})):
        parts = [word for d in DOCUMENTS for word in ("--weight", f"{d}={weights.get(d, 0.0)}")]
        headrace("compute", "manual", *parts, "--out", folder / f"{name}.json")
    return (
        *("ablate", template, "--server", server.address, "--held-out", held_out, "--out", folder / "sweep"),
        *(word for name in files for word in ("--candidate", folder / f"{name}.json")),
        *("--grid", "noise=0.8", "--corpus", corpus),
        *("--target", "plain=1", "--target", "other=1", "--steps", "15"),
    )


def test_a_sweep_by_the_command(server: Server, make_run: Callable[..., str], corpus: Path, tmp_path: Path) -> None:
    arguments = sweep(server, make_run, corpus, tmp_path, "clean")
    assert "clean (missing)" in headrace(*arguments, "--dry-run").stdout
    assert "best measured: clean" in headrace(*arguments).stdout
    losses = {trial.name: trial.losses["plain"] for trial in load_trials(tmp_path / "sweep")}
    assert losses["clean"] < losses["noise-0.8"]
    again = headrace(*arguments, "--json")
    assert "2 of 2 trials are there" in again.stderr
    assert [entry["name"] for entry in json.loads(again.stdout)["trials"]] == ["clean", "noise-0.8"]


@slow
def test_a_sweep_goes_on_run_by_run_and_is_checked_at_another_size(
    server: Server, make_run: Callable[..., str], corpus: Path, tmp_path: Path
) -> None:
    arguments = sweep(server, make_run, corpus, tmp_path, "noisy", "clean")
    headrace(*arguments)
    first = load_trials(tmp_path / "sweep")
    (tmp_path / "sweep" / "noisy.trial.json").unlink()
    again = headrace(*arguments, "--json", "--check-size", "tiny", "--check-steps", "15")
    assert "2 of 3 trials are there, 1 to make" in again.stderr
    assert "0 of 3 trials are there, 3 to make" in again.stderr  # those of the check
    assert json.loads(again.stdout)["agreement"] == [1.0, 3]  # the same size again ranks the same
    assert {t.name: t.losses for t in load_trials(tmp_path / "sweep")} == {t.name: t.losses for t in first}
    plain = {trial.name: trial.losses["plain"] for trial in first}
    assert plain["clean"] < plain["noise-0.8"] < plain["noisy"]


@slow
def test_a_sweep_that_was_killed_goes_on(
    server: Server, make_run: Callable[..., str], corpus: Path, tmp_path: Path
) -> None:
    """The command and its trials, killed while two trials train, end with the same files as a sweep left alone."""
    arguments = sweep(server, make_run, corpus, tmp_path, "noisy", "clean")
    headrace(*arguments)
    losses = {trial.name: trial.losses for trial in load_trials(tmp_path / "sweep")}
    again = [tmp_path / "killed" if word == tmp_path / "sweep" else word for word in arguments]
    command = [sys.executable, "-c", "from headrace.client.cli.main import run; run()", "mixer", *map(str, again)]
    killed = subprocess.Popen(command, start_new_session=True, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    deadline = time.monotonic() + 60
    while len(list((tmp_path / "killed").glob("*/job.json"))) < 2 and time.monotonic() < deadline:
        time.sleep(0.01)
    os.killpg(killed.pid, signal.SIGKILL)
    killed.wait(timeout=30)
    assert len(list((tmp_path / "killed").glob("*.trial.json"))) < 3
    assert "best measured: clean" in headrace(*again).stdout
    assert {trial.name: trial.losses for trial in load_trials(tmp_path / "killed")} == losses


def test_doremi_doge_and_aioli_from_served_runs(server: Server, make_run: Callable[..., str], tmp_path: Path) -> None:
    natural = {name: float(number) for name, number in DOCUMENTS.items()}
    reference, uniform = make_run(natural), make_run(seed=11)
    where = ("--server", server.address, "--steps", "25", "--json")
    arguments = ("doremi", uniform, "--reference-run", reference, "--out", tmp_path / "doremi", *where)
    assert "would train" in headrace(*arguments, "--dry-run").stdout
    found = json.loads(headrace(*arguments).stdout)
    assert found["convention"] == "paper"
    assert found["raw"]["noise"] < 0.2  # hard to learn is not the same as worth more weight
    assert 0 < found["diagnostics"]["drift_share"] < 1
    assert found["warnings"] == []
    assert json.loads(headrace(*arguments).stdout) == found  # from the checkpoints
    doge = json.loads(headrace("doge", make_run(seed=12), "--out", tmp_path / "doge", *where).stdout)
    assert set(doge["weights"]) == set(DOCUMENTS)
    assert doge["diagnostics"]["flops"] > 0
    held = make_run(kind="eval", steps=5, seed=99)
    loop = ("aioli", make_run(seed=14), "--held-out", held, "--out", tmp_path / "aioli", *where, "--windows", "4")
    measured = json.loads(headrace(*loop, "--rounds", "1", "--measure", "2", "--every", "4").stdout)
    assert (measured["diagnostics"]["moves"], set(measured["weights"])) == (2, set(DOCUMENTS))
    assert float((tmp_path / "aioli" / "seconds.txt").read_text()) > 0
    with pytest.raises(UsageError, match="takes 80 steps, the proxy trains 25"):
        headrace(*loop)
    skewed = headrace("doge", make_run(natural, seed=13), "--out", tmp_path / "skewed", *where)
    assert "not uniform" in skewed.stdout


def test_doremi_in_rounds(server: Server, make_run: Callable[..., str], corpus: Path, tmp_path: Path) -> None:
    template = tmp_path / "RUN.toml"
    template.write_text(run_toml("template", corpus, dict.fromkeys(DOCUMENTS, 1.0), steps=20))
    where = ("--server", server.address, "--steps", "12", "--json", "--out", tmp_path / "rounds", "--rounds", "3")
    arguments = ("doremi", make_run(seed=11), "--reference-run", make_run(), "--template", template, *where)
    found = json.loads(headrace(*arguments, "--tolerance", "0").stdout)
    rounds = found["diagnostics"]["rounds"]
    assert (len(rounds), rounds[-1], found["parameters"]["rounds"]) == (3, found["raw"], 3)
    assert rounds[0] != rounds[1] != rounds[2]
    with Remote(server.address, "rounds-reference-1") as remote:
        assert remote.facts().weights == pytest.approx(rounds[0], abs=1e-6)
    assert "a weight still moved" in found["warnings"][-1]
    one = json.loads((tmp_path / "rounds" / "round-0" / "mixture.json").read_text())
    assert found["diagnostics"]["flops"] == pytest.approx(3 * one["diagnostics"]["flops"])
    early = json.loads(headrace(*arguments, "--tolerance", "1").stdout)  # from the checkpoints
    assert early["diagnostics"]["rounds"] == rounds[:2]
    assert early["warnings"] == one["warnings"]
