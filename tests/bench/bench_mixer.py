"""What the mixer costs and whether it helps: `python tests/bench/bench_mixer.py [--quick] [--json]
[krls|cost|methods|online]`.

krls     time and memory of KRLS at 7, 22, 100 and 1,000 domains of width 768
cost     FLOPs of each method with the published proxy, relative to the run that it serves
methods  on the corpus whose best weights are known: raw weights of each method, and its cost relative to a run of 20
         tokens a parameter
online   held-out loss of a run whose weights follow its own losses, and of one at the best weights, against one that
         stays uniform, same seeds, through a real server: mean over seeds and spread; steps and time until a push holds
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import tempfile
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ["OMP_NUM_THREADS"] = os.environ["OPENBLAS_NUM_THREADS"] = "1"

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).parents[1] / "mixer"))

from headrace.mixer.krls import KrlsSpec, krls
from headrace.mixer.proxy.config import ModelConfig, model_config
from headrace.mixer.proxy.learned import doge_weights, doremi_weights
from headrace.mixer.proxy.session import ProxyPlan, proxy_weights
from known_corpus import BEST, DOCUMENTS, VOCABULARY
from known_run import SEQ_LEN, UNIFORM, VELOCITY, Stage, difference, held_out_losses, train_run
from mixer_rig import serving

KINDS = ("uniform", "online", "best")


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


def bench_methods(stage: Stage, quick: bool) -> dict[str, Any]:
    steps = 60 if quick else 200
    plan = ProxyPlan(steps=steps, windows=32, save_every=steps)
    address, folder = stage.server.address, stage.folder
    natural = {name: float(number) for name, number in DOCUMENTS.items()}
    config = model_config("tiny", vocab_size=VOCABULARY, seq_len=SEQ_LEN)
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


def bench_online(stage: Stage, quick: bool) -> dict[str, Any]:
    steps, seeds = (300, 2) if quick else (1000, 5)
    held_out, rows, all_watched, plain = stage.held_out(), [], [], 0.0
    for seed in range(seeds):
        losses = {}
        for kind in KINDS:
            run = stage.run(BEST if kind == "best" else UNIFORM, steps=steps, seed=100 + seed)
            trainer, watched = train_run(stage, run, seed, steps, VELOCITY if kind == "online" else None)
            losses[kind] = held_out_losses(stage, held_out, trainer)
            if kind == "online":
                all_watched.append(watched)
            if kind == "uniform":
                plain += watched.seconds
        rows.append(losses)
        print(f"seed {seed}: {losses}", file=sys.stderr, flush=True)
    delays = [delay for watched in all_watched for delay in watched.delays]
    answers = [1e3 * answer for watched in all_watched for answer in watched.answers]
    return {
        "steps": steps,
        "less uniform, nats": {kind: difference(rows, kind) for kind in KINDS[1:]},
        "last weights": [{n: round(w, 3) for n, w in watched.weights[-1].items()} for watched in all_watched],
        "steps from the end of a window to the effect": {"median": statistics.median(delays), "most": max(delays)},
        "milliseconds of a push": {"median": round(statistics.median(answers), 1), "most": round(max(answers), 1)},
        "part of the run's time": round(sum(watched.busy for watched in all_watched) / plain, 4),
        "seeds": rows,
    }


def main() -> None:
    quick, as_json = "--quick" in sys.argv, "--json" in sys.argv
    chosen = [word for word in sys.argv[1:] if not word.startswith("-")] or ["krls", "cost", "methods", "online"]
    torch.set_num_threads(1)
    found: dict[str, Any] = {}
    if "krls" in chosen:
        found["krls"] = bench_krls(quick)
    if "cost" in chosen:
        found["cost"] = bench_cost()
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
