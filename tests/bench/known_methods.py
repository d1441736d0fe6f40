"""What each method finds on the corpus whose best weights are known, through a real server and as a user would.

    found = weights_by("doge", stage, folder, seed=0)      # weights by domain after the pipeline

Proxies are tiny, 200 steps of the uniform run (of the natural one for a reference). The laws are fitted to 18 proxies,
what the log-linear law wants for five domains, of as many steps as the runs that the mixtures are for, or of 200
(`short`). A sweep goes on from the trials that are in its folder.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from click.testing import CliRunner
from headrace.client.cli.mixer import mixer
from headrace.mixer.aioli import AioliSpec
from headrace.mixer.loglinear import runs_needed
from headrace.mixer.online import OnlineSpec
from headrace.mixer.proxy.learned import aioli_weights, doge_weights, doremi_weights
from headrace.mixer.proxy.session import ProxyPlan, proxy_weights
from headrace.mixer.proxy.trial import run_trial
from headrace.mixer.result import Mixture, from_document
from headrace.mixer.static import natural, uniform
from headrace.mixer.swarm import SwarmSpec, swarm
from known_corpus import DOCUMENTS
from known_run import VELOCITY, Stage

STEPS, SWEEP_STEPS, QUICK_STEPS = 200, 1000, 45
ONLINE = {
    "velocity": VELOCITY,
    "ado": OnlineSpec(rule="ado"),
    "ado, sooner": OnlineSpec(rule="ado", fresh=0.5, least_points=3),
    "odm": OnlineSpec(rule="odm"),
}
STATIC = ("natural", "unimax")
TRAINED = ("krls", "doremi", "doremi sampled", "doge", "aioli")
SWEPT = ("loglinear", "loglinear, short", "regmix")


def plan_of(stage: Stage, seed: int) -> ProxyPlan:
    """The proxy of a seed."""
    steps = QUICK_STEPS if stage.quick else STEPS
    return ProxyPlan(steps=steps, windows=32, save_every=steps, seed=seed)


def trained(kind: str, stage: Stage, folder: Path, seed: int) -> Mixture:
    """The mixture of a method that trains a proxy of its own."""
    address, plan = stage.server.address, plan_of(stage, seed)
    where: dict[str, Any] = {"folder": folder / f"{kind}-{seed}", "plan": plan}
    even = {"steps": plan.steps, "seed": 7 + seed}
    if kind == "krls":
        return proxy_weights(address, stage.run(**even), **where).mixture
    if kind == "aioli":
        spec = AioliSpec(rounds=2, every=20)
        return aioli_weights(address, run=stage.run(**even), held_out=stage.held_out(), spec=spec, **where)
    if kind == "doge":
        return doge_weights(address, run=stage.run(**even), **where)
    mode: Any = "sampled" if kind == "doremi sampled" else "paper"
    reference = stage.run(natural({name: float(count) for name, count in DOCUMENTS.items()}), **even)
    return doremi_weights(address, reference_run=reference, run=stage.run(**even), mode=mode, **where)


def swept(kind: str, stage: Stage, folder: Path) -> Mixture:
    """The mixture of a method that predicts from a sweep, by the command."""
    kind, _, short = kind.partition(", ")
    steps = QUICK_STEPS if stage.quick else STEPS if short else SWEEP_STEPS
    trials = sweep(stage, folder / f"sweep-{steps}", steps)
    tokens = [word for name, count in stage.tokens.items() for word in ("--tokens", f"{name}={count}")]
    words = ["compute", kind, "--trials", str(trials), *tokens, "--json"]
    done = CliRunner().invoke(mixer, words, catch_exceptions=False)
    return from_document(json.loads(done.stdout), place=kind)


def sweep(stage: Stage, folder: Path, steps: int) -> Path:
    """The folder of the trials; those that are missing are made."""
    drawn = swarm(stage.tokens, SwarmSpec(runs=runs_needed(len(DOCUMENTS)) - 2))
    candidates = {f"swarm-{number}": weights for number, weights in enumerate(drawn)}
    candidates |= {"natural": natural(stage.tokens), "uniform": uniform(stage.tokens)}
    plan, held_out = replace(plan_of(stage, 0), steps=steps, save_every=steps), stage.held_out()
    for name, weights in candidates.items():
        if not (folder / f"{name}.trial.json").exists():
            run = stage.run(weights, steps=plan.steps)
            found: Mapping[str, Any] = {"name": name, "weights": weights, "held_out": held_out, "plan": plan}
            run_trial(stage.server.address, run, folder=folder, **found)
    return folder


def static(kind: str, stage: Stage) -> Mixture:
    """The mixture of a rule of sizes, for a run of one reading of the corpus, by the command."""
    tokens = [word for name, count in stage.tokens.items() for word in ("--tokens", f"{name}={count}")]
    words = ["compute", kind, *tokens, "--budget", str(sum(stage.tokens.values())), "--json"]
    done = CliRunner().invoke(mixer, words, catch_exceptions=False)
    return from_document(json.loads(done.stdout), place=kind)


def mixture_by(kind: str, stage: Stage, folder: Path, seed: int) -> Mixture:
    """What a method finds; sweeps, whose trials are kept in the folder, and rules do not depend on the seed."""
    makers: dict[str, Callable[[], Mixture]] = dict.fromkeys(
        TRAINED, lambda: trained(kind, stage, stage.folder / "trained", seed)
    )
    makers |= dict.fromkeys(SWEPT, lambda: swept(kind, stage, folder))
    makers |= dict.fromkeys(STATIC, lambda: static(kind, stage))
    return makers[kind]()


class Kept:
    """Results in a JSON file, made once: `get("doge 3", make)`."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.values: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}

    def get(self, name: str, make: Callable[[], Any]) -> Any:
        if name not in self.values:
            self.values[name] = make()
            beside = self._path.with_suffix(".new")
            beside.write_text(json.dumps(self.values, indent=1))
            beside.replace(self._path)
        return self.values[name]
