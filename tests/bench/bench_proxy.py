"""How far one proxy carries: `python tests/bench/bench_proxy.py [--quick] [--json] [SECTION...]`.

On the demo's text (fourteen languages, code in two halves, documentation: 17 domains), through a real server:

joins      a proxy trained on seven domains weighs an eighth, and all 17, by embedding their windows: cost against
           training anew, and how far its weights are from those of a proxy trained on all of them
stability  KRLS weights of a third of the training against the whole, another seed, and DoReMi's average at both points
tokenizer  KRLS weights of the same text under a parity-aware and a classical tokenizer
published  a training step of the published proxy of 82 million parameters, rows of 512 tokens, on this machine

Distances are half the sum of differences of weights: 0 is equal, 1 is disjoint.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).parents[1] / "mixer"))

from headrace.client.cli.demo.languages import LANGUAGES
from headrace.client.cli.demo.text import write_text
from headrace.mixer.embeddings import Embeddings, merge
from headrace.mixer.krls import krls
from headrace.mixer.proxy.batch import Rows
from headrace.mixer.proxy.checkpoint import load
from headrace.mixer.proxy.config import ModelConfig, TrainConfig, model_config
from headrace.mixer.proxy.learned import doremi_weights
from headrace.mixer.proxy.session import DEFAULT_KRLS, ProxyPlan, embed_run, train_proxy
from headrace.mixer.proxy.train import Trainer
from headrace.mixer.remote import create_run
from headrace.server.corpus.build import build_corpus
from headrace.server.corpus.spec import CorpusSpec
from mixer_rig import Server, run_toml, serving

SECTIONS = ("joins", "stability", "tokenizer", "published")
BATCH, SEQ_LEN = 34, 64
_COMMAND = [sys.executable, "-c", "from headrace.client.cli.main import run; run()"]


class Stage:
    """The text, corpora of it, a server, and proxies that were trained already by what they were trained on."""

    def __init__(self, folder: Path, server: Server, quick: bool) -> None:
        self.folder, self.server, self.steps = folder, server, 45 if quick else 300
        self.number, self.proxies = 0, dict[tuple[str, ...], tuple[Trainer, float]]()
        write_text(folder)
        halves = sorted((folder / "raw/code").iterdir())
        self.files = {language.name: [f"raw/{language.name}/*"] for language in LANGUAGES} | {"docs": ["raw/docs/*"]}
        for number, name in enumerate(("code-a", "code-b")):
            self.files[name] = [str(path.relative_to(folder)) for path in halves[number::2]]
        self.domains = tuple(sorted(self.files, key=str.encode))
        self.corpora = {variant: self._corpus(variant) for variant in ("base", "classical")}

    def _corpus(self, variant: str) -> Path:
        words = ["tokenizer", "train", "--vocab-size", "2048", "--variant", variant, "--out", f"{variant}.json"]
        for language in LANGUAGES:
            paths = sorted((self.folder / "raw" / language.name).iterdir())
            words += [word for path in paths for word in ("--lang", f"{language.name}={path}")]
            if variant != "classical":
                words += ["--dev", f"{language.name}=aligned/dev/{language.name}.txt"]
        subprocess.run([*_COMMAND, *words], cwd=self.folder, check=True, capture_output=True)
        text = f'[corpus]\nout = "corpus-{variant}"\ntokenizer = "{variant}.json"\n'
        for name, files in self.files.items():
            kind = 'document = "file"' if name == "docs" else 'text = "text"'
            text += f'[[domain]]\nname = "{name}"\nfiles = {json.dumps(files)}\n{kind}\n'
        build_corpus(CorpusSpec.from_toml(text, root=self.folder), workers=1)
        return self.folder / f"corpus-{variant}" / "manifest.json"

    def run(self, domains: Sequence[str], *, variant: str = "base", **changes: Any) -> str:
        """Make a run with equal weights of some domains, 0 for the others; its name."""
        self.number += 1
        weights = {name: float(name in domains) for name in self.domains}
        changes = {"steps": self.steps, "batch": BATCH, "seq_len": SEQ_LEN} | changes
        spec = run_toml(f"proxy-{self.number}", self.corpora[variant], weights, **changes)
        create_run(self.server.address, spec, base_dir=self.folder)
        return f"proxy-{self.number}"

    def trained(self, domains: Sequence[str], *, variant: str = "base", seed: int = 0) -> tuple[Trainer, float]:
        """A proxy trained on some domains and the seconds it took; beside it `early.npz`, of a third of the steps."""
        key = (variant, str(seed), *domains)
        if key not in self.proxies:
            folder, third, began = self.folder / f"trained-{len(self.proxies)}", self.steps // 3, time.monotonic()
            plan = ProxyPlan(steps=self.steps, seed=seed, save_every=third)

            def keep(report: Any) -> None:
                if report.step == third:
                    shutil.copy(folder / "proxy.npz", folder / "early.npz")

            run = self.run(domains, variant=variant, seed=7 + seed)
            trainer, _ = train_proxy(self.server.address, run, plan, folder, keep)
            self.proxies[key] = trainer, time.monotonic() - began
        return self.proxies[key]

    def early(self, domains: Sequence[str]) -> Trainer:
        """The same proxy after a third of its steps."""
        self.trained(domains)
        place = list(self.proxies).index(("base", "0", *domains))
        return load(self.folder / f"trained-{place}" / "early.npz").trainer

    def embedded(self, trainer: Trainer, domains: Sequence[str], *, variant: str = "base") -> tuple[Embeddings, float]:
        """Embeddings of 64 windows a domain by a proxy, and the seconds they took."""
        began = time.monotonic()
        run = self.run(domains, variant=variant, kind="eval", steps=-(-64 * len(domains) // BATCH) + 2)
        plan = ProxyPlan(windows=64)
        return embed_run(self.server.address, run, plan, trainer, domains=domains), time.monotonic() - began


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
    third, averages = stage.steps // 3, list[dict[str, float]]()
    folder = stage.folder / "doremi"

    def keep(report: Any) -> None:
        if report.step == third and (folder / "proxy" / "proxy.npz").exists():
            averages.append(average_of(folder / "proxy" / "proxy.npz", seven))

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
        "doremi, a third of the steps": distance(averages[-1], final),
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
        by = {}
        for variant in stage.corpora:
            trainer, _ = stage.trained(domains, variant=variant)
            by[variant] = weights_of(stage.embedded(trainer, domains, variant=variant)[0])
        other = weights_of(stage.embedded(stage.trained(domains, seed=1)[0], domains)[0])
        moved = {name: round(by["classical"][name] - by["base"][name], 4) for name in domains}
        found[label] = {
            "distance between tokenizers": distance(by["base"], by["classical"]),
            "distance between seeds": distance(by["base"], other),
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
    quick, as_json = "--quick" in sys.argv, "--json" in sys.argv
    chosen = [word for word in sys.argv[1:] if not word.startswith("-")] or list(SECTIONS)
    torch.set_num_threads(1)
    found: dict[str, Any] = {}
    if "published" in chosen:
        found["published"] = bench_published(quick)
    if set(chosen) & set(SECTIONS[:3]):
        with tempfile.TemporaryDirectory() as name, serving(Path(name)) as server:
            stage = Stage(Path(name), server, quick)
            for section in [section for section in SECTIONS[:3] if section in chosen]:
                found[section] = globals()[f"bench_{section}"](stage)
                print(f"{section}: {found[section]}", file=sys.stderr, flush=True)
    print(json.dumps(found, indent=None if as_json else 2))


if __name__ == "__main__":
    main()
