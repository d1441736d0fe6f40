"""Methods that learn weights while a proxy trains, from served runs to a result: DoReMi, DoGE and Aioli.

    doremi_weights(server, reference_run="natural", run="uniform", folder=Path("doremi"))

The proxy's run is uniform and never changes; the weights live in the trainer and only their average comes out. What
holds: each training goes on from its checkpoint; a run that is not uniform is said in the result's warnings. Cost,
in multiples of one proxy training: DoReMi 1 (reference) + 1 + 2/3 (two more forward passes), DoGE 1 + 1 (a gradient
a domain of its rows), Aioli 1 + a forward pass over the held-out windows for each measuring.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from headrace.client.session import Opened
from headrace.mixer import aioli
from headrace.mixer.aioli import AioliSpec
from headrace.mixer.caps import Bounds
from headrace.mixer.doge import DogeSpec
from headrace.mixer.doremi import DoremiSpec
from headrace.mixer.proxy.aioli import AioliObjective
from headrace.mixer.proxy.checkpoint import model_digest
from headrace.mixer.proxy.config import train_config
from headrace.mixer.proxy.doge import DogeObjective
from headrace.mixer.proxy.doremi import DoremiObjective, Mode
from headrace.mixer.proxy.session import OnStep, ProxyPlan, held_out_rows, look, shape_of, train_proxy
from headrace.mixer.proxy.train import StepReport, Trainer
from headrace.mixer.result import Mixture, finish
from headrace.mixer.static import uniform
from headrace.proto.errors import UsageError

# A run whose shares differ from uniform by more than this (half the sum of differences) is called not uniform.
UNIFORM_WITHIN = 0.05


class Counted:
    """Passes reports on and counts the tokens of each domain."""

    def __init__(self, on_step: OnStep | None) -> None:
        self._on_step, self.tokens = on_step, Counter[str]()

    def __call__(self, report: StepReport) -> None:
        self.tokens.update({name: loss.tokens for name, loss in report.losses.items()})
        if self._on_step:
            self._on_step(report)

    def warnings(self, run: str) -> tuple[str, ...]:
        """What is wrong with the shares that were served, if anything."""
        total, even = sum(self.tokens.values()), 1 / max(1, len(self.tokens))
        off = sum(abs(count / total - even) for count in self.tokens.values()) / 2 if total else 0.0
        if off <= UNIFORM_WITHIN:
            return ()
        return (f"run `{run}` is not uniform (off by {off:.3f}): the method was published for a uniform stream",)


def _cost(trainer: Trainer, opened: Opened) -> float:
    config = trainer.model.config
    return float(trainer.step * shape_of(opened).batch * config.seq_len * config.flops_per_token)


def doremi_weights(
    endpoint: str | Sequence[str],
    *,
    reference_run: str,
    run: str,
    folder: Path,
    plan: ProxyPlan | None = None,
    spec: DoremiSpec | None = None,
    mode: Mode = "paper",
    initial: Mapping[str, float] | None = None,
    bounds: Bounds | None = None,
    on_step: OnStep | None = None,
) -> Mixture:
    """Train the reference on its run, then the proxy with DoReMi on a uniform one; writes `mixture.json`."""
    plan, spec = plan or ProxyPlan(), spec or DoremiSpec()
    start = initial or uniform(look(endpoint, run, plan).domains)
    reference, seen = train_proxy(endpoint, reference_run, plan, folder / "reference", on_step)
    objective = DoremiObjective(reference.model, start, spec, mode=mode, seed=plan.seed)
    counted = Counted(on_step)
    proxy, opened = train_proxy(endpoint, run, plan, folder / "proxy", counted, objective)
    state = objective.state
    mixture = finish(
        "doremi",
        state.average,
        bounds or Bounds(),
        convention=mode,
        parameters=_parameters(plan)
        | {"eta": spec.eta, "smoothing": spec.smoothing, "absent": spec.absent, "count_initial": spec.count_initial},
        inputs=_inputs(proxy, opened) | {"reference": model_digest(reference.model), "reference_run": seen.run_id},
        diagnostics={
            "final": dict(state.weights),
            "excess": dict(state.scores),
            "drift_share": state.drift_share,
            "smoothing_half_life": spec.half_life if spec.smoothing else None,
            "flops": _cost(reference, seen) + _cost(proxy, opened) * 5 / 3,
        },
        warnings=counted.warnings(run) + _drift(state.drift_share),
    )
    return _keep(mixture, folder, reference, proxy)


def _drift(share: float) -> tuple[str, ...]:
    if share <= 0.5:
        return ()
    return (
        f"smoothing made {share:.0%} of all movement: the average is close to uniform by construction, not by loss",
    )


def doge_weights(
    endpoint: str | Sequence[str],
    *,
    run: str,
    folder: Path,
    plan: ProxyPlan | None = None,
    spec: DogeSpec | None = None,
    bounds: Bounds | None = None,
    on_step: OnStep | None = None,
) -> Mixture:
    """Train a proxy with DoGE on a uniform run; writes `mixture.json`."""
    plan = plan or ProxyPlan()
    spec = spec or DogeSpec(lr=train_config(plan.size).lr)
    objective = DogeObjective(uniform(look(endpoint, run, plan).domains), spec)
    counted = Counted(on_step)
    proxy, opened = train_proxy(endpoint, run, plan, folder / "proxy", counted, objective)
    mixture = finish(
        "doge",
        objective.state.average,
        bounds or Bounds(),
        convention="universal" if not spec.targets else "targets",
        parameters=_parameters(plan)
        | {"lr": spec.lr, "mu": spec.mu, "clip": spec.clip, "self_term": spec.self_term, "targets": list(spec.targets)},
        inputs=_inputs(proxy, opened),
        diagnostics={"final": dict(objective.state.weights), "flops": 2 * _cost(proxy, opened)},
        warnings=counted.warnings(run),
    )
    return _keep(mixture, folder, proxy)


def aioli_weights(
    endpoint: str | Sequence[str],
    *,
    run: str,
    held_out: str,
    folder: Path,
    plan: ProxyPlan | None = None,
    spec: AioliSpec | None = None,
    bounds: Bounds | None = None,
    on_step: OnStep | None = None,
) -> Mixture:
    """Train a proxy with Aioli on a uniform run, measuring on `plan.windows` windows a domain (about) of a held-out
    run; writes `mixture.json`. Raises UsageError when the steps end before the weights have moved once."""
    plan, spec = plan or ProxyPlan(), spec or AioliSpec()
    opened = look(endpoint, run, plan)
    domains, steps = opened.domains, plan.steps or train_config(plan.size).steps
    if steps <= spec.measuring(len(domains)):
        raise UsageError(
            f"aioli: one measuring of {len(domains)} domains takes {spec.measuring(len(domains))} steps, the proxy "
            f"trains {steps}; train more steps, or measure for fewer rounds or steps"
        )
    windows = plan.windows * len(domains)
    held = list(held_out_rows(endpoint, held_out, plan, tokenizer=opened.tokenizer_digest, windows=windows))
    objective, counted = AioliObjective(uniform(domains), spec, held), Counted(on_step)
    proxy, opened = train_proxy(endpoint, run, plan, folder / "proxy", counted, objective)
    state, config = objective.state, proxy.model.config
    looks = sum(aioli.due(domains, spec, step) for step in range(proxy.step))
    forward = looks * sum(rows.ids.numel() for rows in held) * config.flops_per_token / 3
    mixture = finish(
        "aioli",
        state.average,
        bounds or Bounds(),
        parameters=_parameters(plan) | asdict(spec) | {"windows": plan.windows},
        inputs=_inputs(proxy, opened) | {"held_out": look(endpoint, held_out, plan).run_id},
        diagnostics={
            "final": dict(state.weights),
            "falls": {name: dict(row) for name, row in state.found.items()},
            "moves": state.samples,
            "flops": _cost(proxy, opened) + forward,
        },
        warnings=counted.warnings(run),
    )
    return _keep(mixture, folder, proxy)


def _parameters(plan: ProxyPlan) -> dict[str, Any]:
    return {"size": plan.size, "steps": plan.steps or train_config(plan.size).steps, "seed": plan.seed}


def _inputs(proxy: Trainer, opened: Opened) -> dict[str, str]:
    return {"proxy": model_digest(proxy.model), "run": opened.run_id, "corpus": opened.corpus_digest.hex()}


def _keep(mixture: Mixture, folder: Path, *trainings: Trainer) -> Mixture:
    """Write the result, and wall time into a file of its own: the result is the same on every machine, time is not."""
    mixture.save(folder / "mixture.json")
    seconds = sum(trainer.seconds for trainer in trainings)
    (folder / "seconds.txt").write_text(f"{seconds:.1f}\n", encoding="utf-8")
    return mixture
