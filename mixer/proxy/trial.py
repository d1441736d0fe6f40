"""One trial of a sweep: train a proxy on a run, measure it on a held-out run, write the file. Also a process of its
own:

python -m headrace.mixer.proxy.trial '{"endpoint": ..., "run": ..., "held_out": ..., "folder": ..., "name": ...}'
"""

from __future__ import annotations

import itertools
import json
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from headrace.client.settings import Tls
from headrace.client.torch import Loader
from headrace.mixer.proxy.batch import Rows, rows_of
from headrace.mixer.proxy.config import train_config
from headrace.mixer.proxy.evaluate import evaluate
from headrace.mixer.proxy.session import OnStep, ProxyPlan, shape_of, train_proxy
from headrace.mixer.trials import Trial
from headrace.proto.errors import ConflictError, HeadraceError


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
    """Train on `run`, measure on the steps of `held_out` (all sealed ones, or about `windows` rows), write the file."""
    began = time.monotonic()
    trainer, opened = train_proxy(endpoint, run, plan, folder / name, on_step)
    with Loader(endpoint, held_out, rank=0, world=1, mode="observe", **plan.observing) as loader:
        held = loader.open()
        if held.tokenizer_digest != opened.tokenizer_digest:
            raise ConflictError(f"run `{held_out}` has another tokenizer than `{run}`; hold out with the same one")
        steps = held.seal if held.end_step is None else min(held.seal, held.end_step)
        if windows:
            steps = min(steps, -(-windows // shape_of(held).batch))
        losses = evaluate(trainer.model, _rows(loader, steps, plan.device), micro_rows=trainer.config.micro_rows)
    config = trainer.model.config
    trial = Trial(
        name=name,
        weights=dict(weights),
        losses={domain: loss.mean for domain, loss in losses.items()},
        setting=setting_of(plan, held_out),
        flops=float(trainer.step * shape_of(opened).batch * config.seq_len * config.flops_per_token),
        seconds=round(time.monotonic() - began, 3),
    )
    trial.save(folder / f"{name}.trial.json")
    return trial


def _rows(loader: Loader, steps: int, device: str) -> Iterator[Rows]:
    return (rows_of(batch, device) for batch in itertools.islice(loader, steps))


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
