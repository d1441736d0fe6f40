"""What the mixer costs and whether it helps: `python tests/bench/bench_mixer.py [--quick] [--json]
[krls|methods|online]`.

krls     time and memory of KRLS at 7, 22, 100 and 1,000 domains of width 768
methods  on a corpus whose structure is known (two redundant domains, one unique, one small, one of noise): raw
weights of
         each method, and its cost relative to a run of 20 tokens a parameter
online   held-out loss of a run whose weights follow its own losses against one that stays uniform, same seeds,
through a
         real server; the mean over seeds and its spread, and how many steps a push takes to hold
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
import time
import tracemalloc
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).parents[1] / "mixer"))

from headrace.client import DomainLoss, Loader
from headrace.mixer import serve
from headrace.mixer.config import Guardrails, MixerConfig
from headrace.mixer.journal import Journal
from headrace.mixer.krls import KrlsSpec, krls
from headrace.mixer.online import OnlineSpec
from headrace.mixer.proxy.batch import rows_of
from headrace.mixer.proxy.config import model_config, train_config
from headrace.mixer.proxy.evaluate import evaluate
from headrace.mixer.proxy.learned import doge_weights, doremi_weights
from headrace.mixer.proxy.session import ProxyPlan, proxy_weights
from headrace.mixer.proxy.train import Trainer
from headrace.mixer.remote import Remote, create_run
from headrace.server.corpus.manifest import Corpus
from mixer_rig import DOCUMENTS, Server, build, run_toml, serving

KINDS = ("uniform", "online", "capped")
UNIFORM = dict.fromkeys(DOCUMENTS, 1.0)


def bench_krls(quick: bool) -> dict[str, Any]:
    found = {}
    for k in (7, 22, 100) if quick else (7, 22, 100, 1000):
        rng = np.random.default_rng(k)
        rows = {f"d{i}": rng.normal(size=768) for i in range(k)}
        spec = KrlsSpec(relative_lam=0.1)
        krls(rows, spec)
        times = []
        for _ in range(5):
            began = time.perf_counter()
            krls(rows, spec)
            times.append(time.perf_counter() - began)
        tracemalloc.start()
        krls(rows, spec)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        found[str(k)] = {"milliseconds": round(statistics.median(times) * 1e3, 3), "megabytes": round(peak / 1e6, 2)}
    return found


class Stage:
    """A server on the corpus of known structure, a held-out corpus beside it, and runs made when they are asked for."""

    def __init__(self, folder: Path, server: Server) -> None:
        self.folder, self.server, self.number = folder, server, 0
        for name in ("train", "held"):
            (folder / name).mkdir()
        self.corpus = build(folder / "train")
        opened = Corpus.open(self.corpus)
        self.tokens = {name: float(opened.tokens(name)) for name in opened.domains}
        self.held = build(folder / "held", seed=2, documents=dict.fromkeys(DOCUMENTS, 30))

    def run(self, weights: Mapping[str, float] = UNIFORM, *, held: bool = False, **changes: Any) -> str:
        self.number += 1
        name = f"bench-{self.number}"
        spec = run_toml(name, self.held if held else self.corpus, weights, **changes)
        create_run(self.server.address, spec, base_dir=self.folder)
        return name


def bench_methods(stage: Stage, quick: bool) -> dict[str, Any]:
    steps = 60 if quick else 200
    plan = ProxyPlan(steps=steps, windows=32, save_every=steps)
    address, folder = stage.server.address, stage.folder
    natural = {name: float(number) for name, number in DOCUMENTS.items()}
    config = model_config("tiny", vocab_size=258, seq_len=64)
    run_flops = 20.0 * config.parameters * config.flops_per_token
    makers: dict[str, Callable[[], Any]] = {
        "krls": lambda: proxy_weights(address, stage.run(), folder=folder / "krls", plan=plan).mixture,
        "doremi": lambda: doremi_weights(
            address, reference_run=stage.run(natural), run=stage.run(), folder=folder / "doremi", plan=plan
        ),
        "doremi sampled": lambda: doremi_weights(
            address,
            reference_run=stage.run(natural),
            run=stage.run(),
            folder=folder / "sampled",
            plan=plan,
            mode="sampled",
        ),
        "doge": lambda: doge_weights(address, run=stage.run(), folder=folder / "doge", plan=plan),
    }
    found = {}
    for name, make in makers.items():
        began = time.perf_counter()
        mixture = make()
        flops = float(mixture.diagnostics["flops"])
        found[name] = {
            "weights": {domain: round(weight, 4) for domain, weight in mixture.raw.items()},
            "seconds": round(time.perf_counter() - began, 1),
            "flops": flops,
            "of a run of 20 tokens a parameter": round(flops / run_flops, 4),
        }
    return found


def train_run(stage: Stage, run: str, seed: int, steps: int, kind: str) -> tuple[Trainer, list[int]]:
    """Train on a run, reporting losses; unless the kind is `uniform`, the mixer looks whenever a window has settled."""
    capped = kind == "capped"
    model = model_config("tiny", vocab_size=258, seq_len=64)
    trainer = Trainer(model, train_config("tiny", steps=steps, seed=seed))
    config = MixerConfig(
        run=run,
        server=stage.server.address,
        folder=stage.folder / run,
        mode="auto",
        method=OnlineSpec(rule="velocity", eta=2.0, smoothing=0.05),
        guardrails=Guardrails(
            largest_change=0.05,
            floor=0.02,
            max_epochs=8.0 if capped else None,
            budget=float(steps * 10 * 64) if capped else None,
        ),
        tokens=stage.tokens,
    )
    delays: list[int] = []
    with (
        Loader(stage.server.address, run, rank=0, world=1) as loader,
        Remote(config.server, run) as remote,
        Journal(config.folder / "journal.jsonl") as journal,
    ):
        service = serve.Service(config, remote, journal)
        service.tick()
        for batch in loader:
            report = trainer.take(rows_of(batch))
            losses = {n: DomainLoss(loss_sum=x.loss, tokens=x.tokens) for n, x in report.losses.items()}
            loader.report(batch.step, batch.segment, losses)
            if kind != "uniform" and (batch.step + 1) % 100 == 20:
                wait_for(remote, batch.step - 20)
                service.tick()
        delays += [e["from_step"] - int(e["key"].split("-")[-2]) for e in journal.entries() if "from_step" in e]
    return trainer, delays


def wait_for(remote: Remote, step: int) -> None:
    deadline = time.monotonic() + 10
    while remote.facts().settled < step and time.monotonic() < deadline:
        time.sleep(0.02)


def bench_online(stage: Stage, quick: bool) -> dict[str, Any]:
    steps, seeds = (350, 2) if quick else (800, 5)
    held_out = stage.run(held=True, kind="eval", steps=40, batch=10)
    delays, rows = [], []
    for seed in range(seeds):
        losses = {}
        for kind in KINDS:
            trainer, waited = train_run(stage, stage.run(steps=steps, seed=100 + seed), seed, steps, kind)
            delays += waited
            with Loader(stage.server.address, held_out, rank=0, world=1, mode="observe") as loader:
                measured = evaluate(trainer.model, (rows_of(batch) for batch in loader))
            losses[kind] = {name: loss.mean for name, loss in measured.items()}
        rows.append({"seed": seed, **losses})
    return {
        "steps": steps,
        "less uniform, nats": {kind: less_uniform(rows, kind) for kind in KINDS[1:]},
        "seeds": rows,
        "steps from the end of a window to the effect": {"median": statistics.median(delays), "most": max(delays)},
    }


def less_uniform(rows: list[dict[str, Any]], kind: str) -> dict[str, Any]:
    """Mean over domains (all, and all but noise) and each domain: mean over seeds, standard deviation between them."""
    found = {}
    groups = {"all": list(DOCUMENTS), "all but noise": [n for n in DOCUMENTS if n != "noise"]}
    for label, names in (groups | {name: [name] for name in DOCUMENTS}).items():
        less = [statistics.fmean(row[kind][name] - row["uniform"][name] for name in names) for row in rows]
        found[label] = [round(statistics.fmean(less), 4), round(statistics.stdev(less), 4) if len(less) > 1 else 0.0]
    return found


def main() -> None:
    quick, as_json = "--quick" in sys.argv, "--json" in sys.argv
    chosen = [word for word in sys.argv[1:] if not word.startswith("-")] or ["krls", "methods", "online"]
    torch.set_num_threads(1)
    found: dict[str, Any] = {}
    if "krls" in chosen:
        found["krls"] = bench_krls(quick)
    if set(chosen) & {"methods", "online"}:
        with tempfile.TemporaryDirectory() as name, serving(Path(name)) as server:
            stage = Stage(Path(name), server)
            if "methods" in chosen:
                found["methods"] = bench_methods(stage, quick)
            if "online" in chosen:
                found["online"] = bench_online(stage, quick)
    print(json.dumps(found, indent=None if as_json else 2))


if __name__ == "__main__":
    main()
