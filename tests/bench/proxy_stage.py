"""Where `bench_proxy.py` trains: the demo's text in 17 domains under two tokenizers, a server, proxies by name.

Everything lies in one folder and is made once: killed at any moment and started again on the same folder, a bench goes
on from the checkpoint of the proxy that it was training.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Any

from headrace.client.cli.demo.languages import LANGUAGES
from headrace.client.cli.demo.text import write_text
from headrace.mixer.embeddings import Embeddings
from headrace.mixer.proxy.checkpoint import load
from headrace.mixer.proxy.session import ProxyPlan, embed_run, train_proxy
from headrace.mixer.proxy.train import Trainer
from headrace.mixer.remote import create_run
from headrace.server.corpus.build import build_corpus
from headrace.server.corpus.spec import CorpusSpec
from mixer_rig import Server, run_toml

VARIANTS = ("base", "classical")
BATCH, SEQ_LEN, WINDOWS = 34, 64, 64
_COMMAND = [sys.executable, "-c", "from headrace.client.cli.main import run; run()"]


def domain_files(folder: Path) -> dict[str, list[str]]:
    """The files of each domain: a language each, documentation, and code in two halves."""
    halves = sorted((folder / "raw/code").iterdir())
    found = {language.name: [f"raw/{language.name}/*"] for language in LANGUAGES} | {"docs": ["raw/docs/*"]}
    for number, name in enumerate(("code-a", "code-b")):
        found[name] = [str(path.relative_to(folder)) for path in halves[number::2]]
    return found


class Stage:
    """The text, corpora of it, a server, and what was trained and embedded already."""

    def __init__(self, folder: Path, server: Server, quick: bool) -> None:
        self.folder, self.server, self.steps = folder, server, 45 if quick else 300
        if not (folder / "text.done").exists():
            write_text(folder)
            (folder / "text.done").touch()
        self.files = domain_files(folder)
        self.domains = tuple(sorted(self.files, key=str.encode))

    def corpus(self, variant: str) -> Path:
        """The manifest of the text under a tokenizer."""
        manifest = self.folder / f"corpus-{variant}" / "manifest.json"
        if manifest.exists():
            return manifest
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
        return manifest

    def run(self, domains: Sequence[str], *, variant: str = "base", **changes: Any) -> str:
        """A run with equal weights of some domains, 0 for the others; its name says what it is, so that it is made
        once."""
        weights = {name: float(name in domains) for name in self.domains}
        changes = {"steps": self.steps, "batch": BATCH, "seq_len": SEQ_LEN} | changes
        name = "proxy-" + _name(variant, *domains, json.dumps(changes, sort_keys=True))
        spec = run_toml(name, self.corpus(variant), weights, **changes)
        create_run(self.server.address, spec, base_dir=self.folder)
        return name

    def trained(self, domains: Sequence[str], *, variant: str = "base", seed: int = 0) -> tuple[Trainer, float]:
        """A proxy trained on some domains and the seconds it took; beside it `early.npz`, of a third of the steps."""
        folder, third = self._place(domains, variant, seed), self.steps // 3
        plan, clock = ProxyPlan(steps=self.steps, seed=seed, save_every=third), Clock(folder / "seconds")

        def keep(report: Any) -> None:
            clock.tick()
            if report.step == third:
                shutil.copy(folder / "proxy.npz", folder / "early.npz")

        run = self.run(domains, variant=variant, seed=7 + seed)
        trainer, _ = train_proxy(self.server.address, run, plan, folder, keep)
        return trainer, clock.seconds()

    def early(self, domains: Sequence[str]) -> Trainer:
        """The same proxy after a third of its steps."""
        self.trained(domains)
        return load(self._place(domains, "base", 0) / "early.npz").trainer

    def embedded(self, trainer: Trainer, domains: Sequence[str], *, variant: str = "base") -> tuple[Embeddings, float]:
        """Embeddings of windows of some domains by a proxy, and the seconds they took."""
        run = self.run(domains, variant=variant, kind="eval", steps=-(-WINDOWS * len(domains) // BATCH) + 2)
        began, plan = time.monotonic(), ProxyPlan(windows=WINDOWS)
        return embed_run(self.server.address, run, plan, trainer, domains=domains), time.monotonic() - began

    def _place(self, domains: Sequence[str], variant: str, seed: int) -> Path:
        return self.folder / f"trained-{_name(variant, str(seed), *domains)}"


def _name(*parts: str) -> str:
    return blake2b("\0".join(parts).encode(), digest_size=6).hexdigest()


class Clock:
    """Seconds of a training, in a file: what passed before each step since the one before, summed over its starts."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._path, self._last = path, time.monotonic()

    def tick(self) -> None:
        now = time.monotonic()
        self._path.write_text(f"{self.seconds() + now - self._last:.4f}")
        self._last = now

    def seconds(self) -> float:
        return float(self._path.read_text()) if self._path.exists() else 0.0
