"""What the mixer costs and whether it helps: `python tests/bench/bench_mixer.py [--quick] [--json] [--folder FOLDER]
[--seeds N] [krls|cost|methods|online|offline]`.

krls     time and memory of KRLS at 7, 22, 100 and 1,000 domains of width 768
cost     FLOPs of each method with the published proxy, relative to the run that it serves
methods  on the corpus whose best weights are known: raw weights of each method, and its seconds and FLOPs as parts of
         those of a run of 20 tokens a parameter of a model of the size `small`, as this machine takes its steps
online   held-out loss of runs whose weights follow their own losses, by each rule, and of runs at the best weights,
         less that of runs that stay uniform, same seeds, through a real server: mean over seeds and spread; steps and
         time until a push holds
offline  the same of runs at the weights that each other method found

With --folder the runs of `online` and `offline` are kept there; ended by a limit of time, the bench goes on after the
last whole run when it is started again. --quick leaves `offline` out unless it is named.
"""

from __future__ import annotations

import json
import os
import signal
import statistics
import sys
import tempfile
import time
import tracemalloc
from dataclasses import asdict
from pathlib import Path
from typing import Any

os.environ["OMP_NUM_THREADS"] = os.environ["OPENBLAS_NUM_THREADS"] = "1"

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).parents[1] / "mixer"))

from headrace.client import Loader
from headrace.mixer.krls import KrlsSpec, krls
from headrace.mixer.proxy.batch import rows_of
from headrace.mixer.proxy.config import ModelConfig, model_config, train_config
from headrace.mixer.proxy.train import Trainer
from known_corpus import BEST, VOCABULARY
from known_methods import ONLINE, STATIC, SWEPT, TRAINED, Kept, mixture_by
from known_run import BATCH, SEQ_LEN, UNIFORM, Stage, difference, held_out_losses, train_run
from mixer_rig import serving

SECTIONS = ("krls", "cost", "methods", "online", "offline")


def bench_krls(quick: bool) -> dict[str, Any]:
    found = {}
    for k in (7, 22, 100) if quick else (7, 22, 100, 1000):
        rng = np.random.default_rng(k)
        rows = {f"d{i}": rng.normal(size=768) for i in range(k)}
        spec = KrlsSpec(relative_lam=0.1)
        krls(rows, spec)
        times = []
        for _ in range(5):
            began = time.process_time()  # one thread: processor time, so that other work on the machine does not count
            krls(rows, spec)
            times.append(time.process_time() - began)
        tracemalloc.start()
        krls(rows, spec)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        found[str(k)] = {"milliseconds": round(min(times) * 1e3, 2), "megabytes": round(peak / 1e6, 2)}
    return found


def bench_cost() -> dict[str, Any]:
    """FLOPs of each method with the published proxy, as a part of a 684M model's run of 20 tokens a parameter."""
    proxy = model_config("chameleon-82m", vocab_size=50_257, seq_len=512)
    served = ModelConfig(vocab_size=50_257, seq_len=512, width=1200, blocks=36, heads=24, feed_forward=4800)
    run = 20.0 * served.parameters * served.flops_per_token
    step = 128 * proxy.seq_len * proxy.flops_per_token  # 128 rows, as published
    windows = 7 * 4000 * proxy.seq_len * proxy.flops_per_token / 3  # a forward pass is a third of a training step
    flops = {
        "krls, 2,000 steps and 4,000 windows of 7 domains": 2_000 * step + windows,
        "krls, one domain that joins": windows / 7,
        "doge, 10,000 steps, a gradient a domain": 2 * 10_000 * step,
        "doremi, one round of 10,000 steps": (1 + 5 / 3) * 10_000 * step,
        "a sweep for the log-linear law, 24 runs of 2,000 steps": 24 * 2_000 * step,
    }
    parts = {
        name: {"flops": float(f"{cost:.3g}"), "part of the run": round(cost / run, 6)} for name, cost in flops.items()
    }
    return {"served": {"parameters": served.parameters, "flops": float(f"{run:.3g}")}} | parts


def bench_methods(stage: Stage, folder: Path) -> dict[str, Any]:
    """Wall seconds of each method and of the run that it serves: 20 tokens a parameter of the next larger size."""
    run_seconds, run_flops = served_run(stage)
    found: dict[str, Any] = {"seconds of the run that is served": round(run_seconds)}
    for kind in (*STATIC, *TRAINED, "loglinear, short"):
        began = time.perf_counter()
        mixture = mixture_by(kind, stage, folder, 0)
        seconds, flops = time.perf_counter() - began, float(mixture.diagnostics.get("flops", 0.0))
        found[kind] = {
            "weights": {domain: round(weight, 4) for domain, weight in mixture.raw.items()},
            "seconds": round(seconds, 2),
            "part of the run's seconds": round(seconds / run_seconds, 5),
            "part of the run's FLOPs": round(flops / run_flops, 5),
        }
    return found


def served_run(stage: Stage) -> tuple[float, float]:
    """Seconds and FLOPs of the run that the mixtures are for, from the median of its first steps on this machine."""
    config = model_config("small", vocab_size=VOCABULARY, seq_len=SEQ_LEN)
    trainer, times = Trainer(config, train_config("small", steps=40)), []
    with Loader(stage.server.address, stage.run(steps=40), rank=0, world=1) as loader:
        began = time.perf_counter()
        for batch in loader:
            trainer.take(rows_of(batch))
            times.append(time.perf_counter() - began)
            began = time.perf_counter()
    tokens = 20.0 * config.parameters
    return tokens / (BATCH * SEQ_LEN) * statistics.median(times), tokens * config.flops_per_token


def bench_gains(stage: Stage, folder: Path, kinds: tuple[str, ...], seeds: int) -> dict[str, Any]:
    """Held-out loss of runs of each kind less that of uniform runs with the same seeds, and what the mixer did."""
    steps = 300 if stage.quick else 1000
    held_out, kept = stage.held_out(), Kept(folder / "runs.json")
    rows: list[dict[str, Any]] = [{} for _ in range(seeds)]
    for seed, row in enumerate(rows):
        for kind in ("uniform", *kinds):

            def make(seed: int = seed, kind: str = kind) -> dict[str, Any]:
                weights, rule = UNIFORM, ONLINE.get(kind)
                if kind == "by hand":
                    weights = BEST
                elif kind != "uniform" and rule is None:
                    weights = mixture_by(kind, stage, folder, seed).weights
                run = stage.run(weights, steps=steps, seed=100 + seed)
                trainer, watched = train_run(stage, run, seed, steps, rule)
                losses = held_out_losses(stage, held_out, trainer)
                return {"losses": losses, "watched": asdict(watched), "weights": dict(weights)}

            row[kind] = kept.get(f"{kind} {seed}", make)
            print(f"seed {seed}, {kind}: {row[kind]['losses']}", file=sys.stderr, flush=True)
    losses = [{kind: row[kind]["losses"] for kind in row} for row in rows]
    found: dict[str, Any] = {"steps": steps, "less uniform, nats": {kind: difference(losses, kind) for kind in kinds}}
    for kind in kinds:
        last = [(row[kind]["watched"]["weights"] or [row[kind]["weights"]])[-1] for row in rows]
        found[f"last weights, {kind}"] = {n: round(statistics.fmean(w[n] for w in last), 3) for n in sorted(last[0])}
        if kind in ONLINE:
            found[f"pushes, {kind}"] = pushes([row[kind]["watched"] for row in rows], [row["uniform"] for row in rows])
    return found


def pushes(watched: list[dict[str, Any]], uniform: list[dict[str, Any]]) -> dict[str, Any]:
    """How many, how late, and what they cost."""
    delays = [delay for each in watched for delay in each["delays"]]
    if not delays:
        return {"number": 0}
    answers = [1e3 * answer for each in watched for answer in each["answers"]]
    plain = sum(each["watched"]["seconds"] for each in uniform)
    return {
        "number": len(delays),
        "steps from the end of a window to the effect": {"median": statistics.median(delays), "most": max(delays)},
        "milliseconds of a push": {"median": round(statistics.median(answers), 1), "most": round(max(answers), 1)},
        "part of the run's time": round(sum(each["busy"] for each in watched) / plain, 4),
    }


def option(words: list[str], name: str) -> str | None:
    """The value of an option, taken out of the words; None when it is not given."""
    if name not in words:
        return None
    place = words.index(name)
    words.pop(place)
    return words.pop(place)


def main() -> None:
    words = sys.argv[1:]
    place, number = option(words, "--folder"), option(words, "--seeds")
    kept = Path(place).resolve() if place else None
    quick, as_json = "--quick" in words, "--json" in words
    seeds = int(number) if number else 2 if quick else 5
    chosen = [word for word in words if not word.startswith("-")] or list(SECTIONS[:-1] if quick else SECTIONS)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(75))  # so that the server goes too
    torch.set_num_threads(1)
    found: dict[str, Any] = {}
    if "krls" in chosen:
        found["krls"] = bench_krls(quick)
    if "cost" in chosen:
        found["cost"] = bench_cost()
    if set(chosen) & {"methods", "online", "offline"}:
        with tempfile.TemporaryDirectory() as name, serving(Path(name)) as server:
            stage, folder = Stage(Path(name), server, quick=quick), kept or Path(name) / "kept"
            folder.mkdir(parents=True, exist_ok=True)
            if "methods" in chosen:
                found["methods"] = bench_methods(stage, Path(name) / "methods")
            if "online" in chosen:
                found["online"] = bench_gains(stage, folder, (*ONLINE, "by hand"), seeds)
            if "offline" in chosen:
                found["offline"] = bench_gains(stage, folder, (*STATIC, *TRAINED, *SWEPT), seeds)
    print(json.dumps(found, indent=None if as_json else 2))


if __name__ == "__main__":
    main()
