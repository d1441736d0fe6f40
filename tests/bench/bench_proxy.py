"""How far one proxy carries: `python tests/bench/bench_proxy.py [--quick] [--json] [--folder FOLDER] [SECTION...]`.

On the demo's text (fourteen languages, code in two halves, documentation: 17 domains), through a real server:

joins      a proxy trained on seven domains weighs an eighth, and all 17, by embedding their windows: cost against
           training anew, and how far its weights are from those of a proxy trained on all of them
stability  KRLS weights of a third of the training against the whole, another seed, and DoReMi's average at both points
tokenizer  KRLS weights of the same text under a parity-aware and a classical tokenizer
published  a training step of the published proxy of 82 million parameters, rows of 512 tokens, on this machine

Distances are half the sum of differences of weights: 0 is equal, 1 is disjoint. With --folder everything is kept there;
stopped, or ended by a limit of time, the bench goes on from its last checkpoint when it is started again.
"""

from __future__ import annotations

import json
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).parents[1] / "mixer"))

from headrace.mixer.embeddings import Embeddings, merge
from headrace.mixer.krls import krls
from headrace.mixer.proxy.batch import Rows
from headrace.mixer.proxy.config import ModelConfig, TrainConfig, model_config
from headrace.mixer.proxy.learned import doremi_weights
from headrace.mixer.proxy.session import DEFAULT_KRLS, ProxyPlan
from headrace.mixer.proxy.train import Trainer
from mixer_rig import serving
from proxy_stage import BATCH, VARIANTS, Stage

SECTIONS = ("joins", "stability", "tokenizer", "published")


def weights_of(embeddings: Embeddings) -> dict[str, float]:
    return krls(embeddings.vectors, DEFAULT_KRLS).weights


def distance(left: Mapping[str, float], right: Mapping[str, float]) -> float:
    return round(sum(abs(left[name] - right[name]) for name in left) / 2, 4)


def bench_joins(stage: Stage) -> dict[str, Any]:
    seven, found = stage.domains[:7], {}
    trainer, trained = stage.trained(seven)
    old, _ = stage.embedded(trainer, seven)
    for label, domains in (("eighth domain", stage.domains[:8]), ("17 domains", stage.domains)):
        new = [name for name in domains if name not in seven]
        more, embedded = stage.embedded(trainer, new)
        carried = weights_of(merge(old, more))
        anew, anew_seconds = stage.trained(domains)
        fresh = weights_of(stage.embedded(anew, domains)[0])
        other = weights_of(stage.embedded(stage.trained(domains, seed=1)[0], domains)[0])
        # A forward pass is a third of a training step; only the new windows are read.
        part = sum(more.windows[name] for name in new) / 3 / (stage.steps * BATCH)
        found[label] = {
            "part of the FLOPs of training anew": round(part, 4),
            "seconds": round(embedded, 2),
            "seconds of training anew": round(anew_seconds, 1),
            "distance from a proxy trained on them": distance(carried, fresh),
            "distance of that one from its own other seed": distance(fresh, other),
            "distance from uniform": distance(fresh, dict.fromkeys(fresh, 1 / len(fresh))),
        }
    return found | {"seconds of training on seven": round(trained, 1)}


def bench_stability(stage: Stage) -> dict[str, Any]:
    seven = stage.domains[:7]
    whole = weights_of(stage.embedded(stage.trained(seven)[0], seven)[0])
    early = weights_of(stage.embedded(stage.early(seven), seven)[0])
    other = weights_of(stage.embedded(stage.trained(seven, seed=1)[0], seven)[0])
    third, folder = stage.steps // 3, stage.folder / "doremi"

    def keep(report: Any) -> None:
        if report.step == third and (folder / "proxy" / "proxy.npz").exists():
            shutil.copy(folder / "proxy" / "proxy.npz", folder / "early.npz")

    plan = ProxyPlan(steps=stage.steps, save_every=third)
    mixture = doremi_weights(
        stage.server.address,
        reference_run=stage.run(seven, seed=21),
        run=stage.run(seven, seed=22),
        folder=folder,
        plan=plan,
        initial={name: float(name in seven) for name in stage.domains},
        on_step=keep,
    )
    final = {name: mixture.raw[name] for name in seven}
    even = dict.fromkeys(seven, 1 / 7)
    return {
        "krls, a third of the steps": distance(early, whole),
        "krls, other seed": distance(other, whole),
        "krls, from uniform": distance(whole, even),
        "doremi, a third of the steps": distance(average_of(folder / "early.npz", seven), final),
        "doremi, from uniform": distance(final, even),
    }


def average_of(path: Path, names: Sequence[str]) -> dict[str, float]:
    """DoReMi's average in a checkpoint."""
    with np.load(path, allow_pickle=False) as archive:
        state = json.loads(archive["__note__"].tobytes())["objective"]["doremi"]
    return {name: state["total"][name] / state["samples"] for name in names}


def bench_tokenizer(stage: Stage) -> dict[str, Any]:
    seven, found = stage.domains[:7], {}
    for label, domains in (("seven domains", seven), ("17 domains", stage.domains)):
        by = {
            (variant, seed): weights_of(
                stage.embedded(stage.trained(domains, variant=variant, seed=seed)[0], domains, variant=variant)[0]
            )
            for variant in VARIANTS
            for seed in (0, 1)
        }
        base, classical = ({name: (by[v, 0][name] + by[v, 1][name]) / 2 for name in domains} for v in VARIANTS)
        moved = {name: round(classical[name] - base[name], 4) for name in domains}
        found[label] = {
            "distance between tokenizers": [distance(by["base", seed], by["classical", seed]) for seed in (0, 1)],
            "distance between seeds": [distance(by[variant, 0], by[variant, 1]) for variant in VARIANTS],
            "distance from uniform": distance(base, dict.fromkeys(base, 1 / len(base))),
            "distance between tokenizers, mean of two seeds": distance(base, classical),
            "moved most": dict(sorted(moved.items(), key=lambda item: -abs(item[1]))[:4]),
        }
    return found


def bench_published(quick: bool) -> dict[str, Any]:
    rows, steps = (1, 2) if quick else (2, 5)
    config = model_config("chameleon-82m", vocab_size=50_257, seq_len=512)
    return {"parameters": config.parameters, "rows": rows} | train_steps(config, rows, steps)


def train_steps(config: ModelConfig, rows: int, steps: int) -> dict[str, Any]:
    """Take steps on one batch of random tokens: losses, seconds a step and the arithmetic rate."""
    trainer = Trainer(config, TrainConfig(steps=steps, warmup=1, lr=3e-4))
    ids = torch.randint(config.vocab_size, (rows, config.seq_len + 1), generator=torch.Generator().manual_seed(0))
    batch = Rows(
        step=0,
        ids=ids[:, :-1],
        labels=ids[:, 1:],
        mask=torch.ones((rows, config.seq_len), dtype=torch.bool),
        positions=torch.arange(config.seq_len).expand(rows, -1),
        domain=torch.zeros(rows, dtype=torch.int64),
        names=("any",),
    )
    losses, times = [], []
    for _ in range(steps):
        began = time.perf_counter()
        losses.append(trainer.take(batch).loss)
        times.append(time.perf_counter() - began)
    seconds = sorted(times)[len(times) // 2]
    rate = config.flops_per_token * rows * config.seq_len / seconds
    return {
        "first loss": round(losses[0], 3),
        "last loss": round(losses[-1], 3),
        "seconds a step": round(seconds, 2),
        "GFLOP/s": round(rate / 1e9, 1),
    }


def main() -> None:
    words, folder = sys.argv[1:], None
    if "--folder" in words:
        place = words.index("--folder")
        folder = Path(words.pop(place + 1)).resolve()
        words.pop(place)
    quick, as_json = "--quick" in words, "--json" in words
    chosen = [word for word in words if not word.startswith("-")] or list(SECTIONS)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(75))  # so that the server and the lease of the run go too
    torch.set_num_threads(1)
    found: dict[str, Any] = {}
    if "published" in chosen:
        found["published"] = bench_published(quick)
    if set(chosen) & set(SECTIONS[:3]):
        with ExitStack() as stack:
            where = folder or Path(stack.enter_context(tempfile.TemporaryDirectory()))
            where.mkdir(parents=True, exist_ok=True)
            stage = Stage(where, stack.enter_context(serving(where)), quick)
            for section in [section for section in SECTIONS[:3] if section in chosen]:
                found[section] = globals()[f"bench_{section}"](stage)
                print(f"{section}: {found[section]}", file=sys.stderr, flush=True)
    print(json.dumps(found, indent=None if as_json else 2))


if __name__ == "__main__":
    main()
