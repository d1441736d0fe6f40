"""One trial of a sweep: train a proxy on a run, measure it on a held-out run, write the file. Also a process of its
own:

python -m headrace.mixer.proxy.trial '{"endpoint": ..., "run": ..., "held_out": ..., "folder": ..., "name": ...}'
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from headrace.client.settings import Tls
from headrace.mixer.proxy.config import train_config
from headrace.mixer.proxy.evaluate import evaluate
from headrace.mixer.proxy.session import OnStep, ProxyPlan, held_out_rows, look, shape_of, train_proxy
from headrace.mixer.trials import Trial
from headrace.proto.errors import HeadraceError


def setting_of(plan: ProxyPlan, held_out: str) -> dict[str, Any]:
    """What must be equal for two trials to be compared."""
    steps = plan.steps or train_config(plan.size).steps
    return {"size": plan.size, "steps": steps, "seed": plan.seed, "held_out": held_out}


def run_trial(
    endpoint: str | Sequence[str],
    run: str,
    *,
    name: str,
    weights: Mapping[str, float],
    held_out: str,
    plan: ProxyPlan,
    folder: Path,
    windows: int = 0,
    on_step: OnStep | None = None,
) -> Trial:
    """Train on `run`, measure on the steps of `held_out` (all sealed ones, or about `windows` rows), write the file.
    A held-out run that is not there is refused before the training."""
    look(endpoint, held_out, plan)
    trainer, opened = train_proxy(endpoint, run, plan, folder / name, on_step)
    held = held_out_rows(endpoint, held_out, plan, tokenizer=opened.tokenizer_digest, windows=windows)
    losses = evaluate(trainer.model, held, micro_rows=trainer.config.micro_rows)
    config = trainer.model.config
    trial = Trial(
        name=name,
        weights=dict(weights),
        losses={domain: loss.mean for domain, loss in losses.items()},
        setting=setting_of(plan, held_out),
        flops=float(trainer.step * shape_of(opened).batch * config.seq_len * config.flops_per_token),
        seconds=round(trainer.seconds, 3),
    )
    trial.save(folder / f"{name}.trial.json")
    return trial


def connection_of(described: Mapping[str, Any]) -> dict[str, Any]:
    """The loader's `tls` and `token_file` out of their paths as JSON."""
    files, token = described.get("tls"), described.get("token_file")
    tls = Tls(**{name: Path(path) for name, path in files.items() if path}) if files else None
    return {"tls": tls, "token_file": Path(token) if token else None}


def main(argument: str) -> int:
    """Run the trial that a JSON object describes; the exit code."""
    job = json.loads(argument)
    torch.set_num_threads(int(job.get("threads", 1)))
    plan = ProxyPlan(**job["plan"] | {"connection": connection_of(job["plan"].get("connection", {}))})
    try:
        run_trial(
            job["endpoint"],
            job["run"],
            name=job["name"],
            weights=job["weights"],
            held_out=job["held_out"],
            plan=plan,
            folder=Path(job["folder"]),
            windows=job["windows"],
        )
    except HeadraceError as error:
        print(f"error: trial `{job['name']}`: {error}", file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
