"""From a served run to weights: train the proxy through our own loader, embed the domains, compute KRLS, keep the
files.

    outcome = proxy_weights("127.0.0.1:7750", "proxy", folder=Path("proxy"), size="tiny")
    outcome.mixture.to_toml()            # weights = { ... } for a RUN.toml

The run should have equal weights: that is what the method was published with. Files in the folder: `proxy.npz`
(checkpoint with the state of the stream), `embeddings.npz`, `mixture.json`.

What holds: killed and started again with the same arguments it goes on from its checkpoint and ends with the same
results (on the same machine and number of threads); the windows embedded are the first ones the run served. What was
given up: held-out windows; a proxy this small does not memorise its training windows in a few hundred steps.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from headrace.client.session import Opened
from headrace.client.torch import Loader
from headrace.mixer.caps import Bounds
from headrace.mixer.embeddings import Embeddings
from headrace.mixer.krls import DEFAULT_LARGEST_SHARE, KrlsSpec, krls
from headrace.mixer.proxy.batch import Rows, rows_of, take
from headrace.mixer.proxy.checkpoint import load, model_digest, save
from headrace.mixer.proxy.config import model_config, train_config
from headrace.mixer.proxy.embed import embed
from headrace.mixer.proxy.job import next_attempt
from headrace.mixer.proxy.train import Objective, StepReport, Trainer, train
from headrace.mixer.result import Mixture, finish
from headrace.proto.errors import ConflictError, UsageError

# The published lambda of 10 belongs to the published proxy; a tenth of the mean square means the same for every proxy.
# With unit length the weights of tiny proxies vary less from seed to seed and from checkpoint to checkpoint.
DEFAULT_KRLS = KrlsSpec(relative_lam=0.1, unit_length=True)

OnStep = Callable[[StepReport], None]


@dataclass(frozen=True, kw_only=True, slots=True)
class ProxyPlan:
    """What to train and embed. steps None: what goes with the size; windows: of each domain; depth None: the middle
    block; connection: keywords of the loader (tls, token_file, job, attempt); save_every: steps between checkpoints."""

    size: str = "tiny"
    steps: int | None = None
    windows: int = 64
    depth: int | None = None
    seed: int = 0
    device: str = "cpu"
    save_every: int = 100
    connection: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.windows < 1 or self.save_every < 1 or (self.steps is not None and self.steps < 1):
            raise UsageError("proxy: windows, steps and save_every must be at least 1")

    @property
    def observing(self) -> dict[str, Any]:
        """Of the connection, what a loader that only looks takes: it belongs to no job."""
        return {name: value for name, value in self.connection.items() if name in ("tls", "token_file", "settings")}


@dataclass(frozen=True, kw_only=True, slots=True)
class Outcome:
    """Weights, embeddings and what they cost: seconds and multiply-adds times two, training and embedding."""

    mixture: Mixture
    embeddings: Embeddings
    seconds: float
    flops: float


def proxy_weights(
    endpoint: str | Sequence[str],
    run: str,
    *,
    folder: Path,
    size: str = "tiny",
    steps: int | None = None,
    windows: int = 64,
    seed: int = 0,
    krls_spec: KrlsSpec | None = None,
    bounds: Bounds | None = None,
    on_step: OnStep | None = None,
    plan: ProxyPlan | None = None,
) -> Outcome:
    """Train, embed, weigh and write. `plan` replaces size, steps, windows and seed when more is to be said."""
    plan = plan or ProxyPlan(size=size, steps=steps, windows=windows, seed=seed)
    trainer, opened = train_proxy(endpoint, run, plan, folder, on_step)
    began = time.monotonic()
    embeddings = embed_run(endpoint, run, plan, trainer)
    embeddings.save(folder / "embeddings.npz")
    config = trainer.model.config
    rows = trainer.step * shape_of(opened).batch
    forward = sum(embeddings.windows.values()) * config.flops_per_token / 3
    flops = config.seq_len * (rows * config.flops_per_token + forward)
    mixture = weigh(embeddings, opened, krls_spec or DEFAULT_KRLS, bounds, flops)
    mixture.save(folder / "mixture.json")
    return Outcome(
        mixture=mixture, embeddings=embeddings, seconds=trainer.seconds + time.monotonic() - began, flops=flops
    )


def shape_of(opened: Opened) -> Any:
    """The one shape that the proxy trains on. Raises ConflictError when the run has no step left or changes seq_len."""
    shapes = [shape for shape in opened.shapes if shape.end is None or shape.end > opened.next_step]
    if not shapes or len({shape.seq_len for shape in shapes}) > 1:
        found = ", ".join(str(shape.seq_len) for shape in shapes) or "no step at all"
        raise ConflictError(f"run `{opened.run}`: a proxy trains at one seq_len, but this run has {found} ahead")
    return shapes[0]


def train_proxy(
    endpoint: str | Sequence[str],
    run: str,
    plan: ProxyPlan,
    folder: Path,
    on_step: OnStep | None = None,
    objective: Objective | None = None,
) -> tuple[Trainer, Opened]:
    """Train through the loader as the run's job, from the checkpoint in the folder when there is one. A run that is not
    there, or that no proxy can train on, is refused before anything is written."""
    if not folder.exists():
        shape_of(look(endpoint, run, plan))
    path, connection = folder / "proxy.npz", next_attempt(folder) | dict(plan.connection)
    with Loader(endpoint, run, rank=0, world=1, **connection) as loader:
        trainer = _resumed(path, loader, plan, objective)
        opened = loader.open()
        trainer = trainer or _fresh(opened, plan, objective)
        while trainer.step < trainer.config.steps:
            count = min(plan.save_every, trainer.config.steps - trainer.step)
            train(trainer, take(loader, count, plan.device), on_step)
            save(path, trainer, {"run_id": opened.run_id, "data": loader.state_dict()})
        return trainer, opened


def look(endpoint: str | Sequence[str], run: str, plan: ProxyPlan) -> Opened:
    """The run as it is now, seen without taking part in it. Raises NotFoundError for a run that is not there."""
    with Loader(endpoint, run, rank=0, world=1, mode="observe", **plan.observing) as loader:
        return loader.open()


def _fresh(opened: Opened, plan: ProxyPlan, objective: Objective | None) -> Trainer:
    """A proxy before its first step. A run that was trained on before serves the same steps again, from the first."""
    changes = {"seed": plan.seed, "device": plan.device} | ({"steps": plan.steps} if plan.steps else {})
    model = model_config(plan.size, vocab_size=opened.vocab_size, seq_len=shape_of(opened).seq_len)
    return Trainer(model, train_config(plan.size, **changes), objective)


def _resumed(path: Path, loader: Loader, plan: ProxyPlan, objective: Objective | None) -> Trainer | None:
    """The trainer of the checkpoint, the loader set to its position; None without one."""
    if not path.exists():
        return None
    saved = load(path, device=plan.device, objective=objective)
    wanted = train_config(plan.size, seed=plan.seed, **({"steps": plan.steps} if plan.steps else {}))
    if (saved.trainer.config.seed, saved.trainer.config.steps) != (wanted.seed, wanted.steps):
        raise ConflictError(
            f"`{path}` was trained with seed {saved.trainer.config.seed} for {saved.trainer.config.steps} steps, asked "
            f"are seed {wanted.seed} and {wanted.steps} steps; use another folder or the same arguments"
        )
    loader.load_state_dict(saved.note["data"])
    return saved.trainer


def embed_run(
    endpoint: str | Sequence[str],
    run: str,
    plan: ProxyPlan,
    trainer: Trainer,
    domains: Sequence[str] | None = None,
) -> Embeddings:
    """Embed windows of a run as an observer, from its first step to the last sealed one: the proxy's own run, or
    another one that serves new domains. Raises UsageError for a domain without windows there."""
    with Loader(endpoint, run, rank=0, world=1, mode="observe", **plan.observing) as loader:
        opened = loader.open()
        if opened.vocab_size != trainer.model.config.vocab_size:
            raise ConflictError(
                f"run `{run}` has a vocabulary of {opened.vocab_size}, the proxy one of "
                f"{trainer.model.config.vocab_size}; embed with a corpus of the proxy's tokenizer"
            )
        meta = {"proxy": model_digest(trainer.model), "tokenizer": opened.tokenizer_digest.hex()}
        return embed(
            trainer.model,
            _sealed(loader, sealed_steps(opened), plan.device),
            windows=plan.windows,
            depth=plan.depth,
            domains=domains,
            meta=meta,
        )


def held_out_rows(
    endpoint: str | Sequence[str], run: str, plan: ProxyPlan, *, tokenizer: bytes, windows: int = 0
) -> Iterator[Rows]:
    """The windows of a held-out run: all sealed steps, or about `windows` rows. Raises ConflictError for a corpus of
    another tokenizer than the proxy's."""
    with Loader(endpoint, run, rank=0, world=1, mode="observe", **plan.observing) as loader:
        held = loader.open()
        if held.tokenizer_digest != tokenizer:
            raise ConflictError(f"run `{run}` has another tokenizer than the proxy's; hold out with the same one")
        steps = sealed_steps(held)
        if windows:
            steps = min(steps, -(-windows // shape_of(held).batch))
        yield from _sealed(loader, steps, plan.device)


def sealed_steps(opened: Opened) -> int:
    """How many steps of a run can be read now."""
    return opened.seal if opened.end_step is None else min(opened.seal, opened.end_step)


def _sealed(loader: Loader, seal: int, device: str) -> Iterator[Rows]:
    """The sealed steps only: an observer that asked for more would wait for a trainer."""
    return (rows_of(batch, device) for batch in itertools.islice(loader, seal))


def weigh(
    embeddings: Embeddings, opened: Opened, spec: KrlsSpec, bounds: Bounds | None = None, flops: float = 0.0
) -> Mixture:
    """KRLS and the pipeline of caps; without bounds no domain of three or more gets over half."""
    result = krls(embeddings.vectors, spec)
    default = Bounds(largest_share=DEFAULT_LARGEST_SHARE if len(embeddings.vectors) > 2 else 1.0)
    details = result.details(spec)
    details["parameters"] |= {"windows": dict(embeddings.windows), "depth": embeddings.meta["depth"]}
    details["diagnostics"] |= {"flops": flops}
    inputs = {
        "corpus": opened.corpus_digest.hex(),
        "embeddings": embeddings.digest,
        "proxy": str(embeddings.meta["proxy"]),
        "run": opened.run_id,
    }
    return finish("krls", result.weights, bounds or default, inputs=inputs, **details)
