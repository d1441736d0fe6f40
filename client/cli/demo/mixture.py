"""From a uniform run to weights: a proxy reads it through our own client, and KRLS judges its embeddings.

The proxy trains a uniform run as an ordinary job (`headrace mixer proxy`); the weights come from the embeddings that it
writes (`headrace mixer compute krls`) and go into the RUN.toml of the run that the trainers get.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from headrace.client.cli.demo.configs import run_toml, uniform, write_config
from headrace.client.cli.demo.console import say
from headrace.client.cli.demo.processes import Children

PROXY_RUN = "proxy"
_STEPS = 250
_BATCH = 8
_WINDOWS = 32


def train_proxy(children: Children, server: str, domains: Sequence[str]) -> None:
    """Train the proxy on a uniform run and write `proxy/embeddings.npz`."""
    spec = run_toml(PROXY_RUN, uniform(domains), steps=_STEPS, batch=_BATCH)
    children.headrace("run", "create", write_config(children.folder, "PROXY.toml", spec), "--server", server)
    options = ["--size", "tiny", "--steps", str(_STEPS), "--windows", str(_WINDOWS), "--out", "proxy"]
    # One thread: the model is too small for more, and waiting threads would take the server's core.
    said = children.headrace("mixer", "proxy", PROXY_RUN, *options, "--server", server, env={"OMP_NUM_THREADS": "1"})
    say(said.splitlines()[-1])


def create_weighted_run(children: Children, server: str, run: str, *, steps: int) -> dict[str, float]:
    """KRLS weights of the embeddings, and the run that has them; the weights."""
    options = ["--embeddings", "proxy/embeddings.npz", "--floor", "0.01", "--out", "weights.json"]
    line = children.headrace("mixer", "compute", "krls", *options, "--toml")
    weights: dict[str, float] = json.loads((children.folder / "weights.json").read_text(encoding="utf-8"))["weights"]
    say(", ".join(f"{name} {weight:.3f}" for name, weight in weights.items()))
    config = write_config(children.folder, "RUN.toml", run_toml(run, line.strip(), steps=steps))
    children.headrace("run", "create", config, "--server", server)
    return weights
