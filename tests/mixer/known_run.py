"""Trainings through a real server on the corpus whose best weights are known, with or without a mixer beside them."""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from headrace.client import DomainLoss, Loader
from headrace.mixer.config import Guardrails, MixerConfig
from headrace.mixer.journal import Journal
from headrace.mixer.online import OnlineSpec
from headrace.mixer.proxy.batch import rows_of
from headrace.mixer.proxy.config import model_config, train_config
from headrace.mixer.proxy.evaluate import evaluate
from headrace.mixer.proxy.train import Trainer
from headrace.mixer.remote import Remote, create_run
from headrace.mixer.serve import Service
from headrace.server.corpus.manifest import Corpus
from known_corpus import DOCUMENTS, VOCABULARY, build
from mixer_rig import Server, run_toml

UNIFORM = dict.fromkeys(DOCUMENTS, 1.0)
VELOCITY = OnlineSpec(rule="velocity", eta=2.0, smoothing=0.05)
RAILS = Guardrails(largest_change=0.1, floor=0.02)
BATCH, SEQ_LEN, LEARNING_RATE = 10, 64, 2e-3


class Stage:
    """A server, the corpus and a held-out one beside it, and runs made when they are asked for."""

    def __init__(self, folder: Path, server: Server, *, quick: bool = False) -> None:
        self.folder, self.server, self.number, self.quick = folder, server, 0, quick
        for name in ("train", "held"):
            (folder / name).mkdir()
        self.corpus = build(folder / "train")
        opened = Corpus.open(self.corpus)
        self.tokens = {name: float(opened.tokens(name)) for name in opened.domains}
        self.held = build(folder / "held", seed=2, documents=dict.fromkeys(DOCUMENTS, 50))

    def run(self, weights: Mapping[str, float] = UNIFORM, *, name: str = "", held: bool = False, **changes: Any) -> str:
        self.number += 1
        name = name or f"known-{self.number}"
        spec = run_toml(name, self.held if held else self.corpus, weights, **changes)
        create_run(self.server.address, spec, base_dir=self.folder)
        return name

    def held_out(self) -> str:
        """The run of the held-out windows: equal parts of every domain, the same for every training."""
        return self.run(name="held-out", held=True, kind="eval", steps=40, batch=BATCH)


@dataclass(slots=True)
class Watched:
    """What a mixer did to a training. delays: steps from a window's end to the effect of its push; answers: seconds a
    push took; busy: seconds of all looks."""

    weights: list[dict[str, float]] = field(default_factory=list)
    delays: list[int] = field(default_factory=list)
    answers: list[float] = field(default_factory=list)
    busy: float = 0.0
    seconds: float = 0.0


class Timed(Remote):
    """A server whose answers to pushes are timed."""

    def push(self, mixture: Any, **details: Any) -> Any:
        began = time.perf_counter()
        try:
            return super().push(mixture, **details)
        finally:
            self.answers.append(time.perf_counter() - began)

    answers: list[float]


def train_run(stage: Stage, run: str, seed: int, steps: int, rule: OnlineSpec | None) -> tuple[Trainer, Watched]:
    """Train on a run, reporting its losses; with a rule, the mixer looks whenever a window has settled."""
    model = model_config("tiny", vocab_size=VOCABULARY, seq_len=SEQ_LEN)
    trainer = Trainer(model, train_config("tiny", steps=steps, seed=seed, lr=LEARNING_RATE))
    watched, began = Watched(), time.perf_counter()
    with Loader(stage.server.address, run, rank=0, world=1) as loader:
        if rule is None:
            for batch in loader:
                trainer.take(rows_of(batch))
        else:
            _watch(stage, run, loader, trainer, rule, watched)
    watched.seconds = time.perf_counter() - began
    return trainer, watched


def _watch(stage: Stage, run: str, loader: Loader, trainer: Trainer, rule: OnlineSpec, watched: Watched) -> None:
    config = MixerConfig(
        run=run,
        server=stage.server.address,
        folder=stage.folder / run,
        mode="auto",
        method=rule,
        guardrails=RAILS,
    )
    with Timed(config.server, config.run) as remote, Journal(config.folder / "journal.jsonl") as journal:
        remote.answers = watched.answers
        service = Service(config, remote, journal)
        service.tick()
        for batch in loader:
            report = trainer.take(rows_of(batch))
            losses = {n: DomainLoss(loss_sum=x.loss, tokens=x.tokens) for n, x in report.losses.items()}
            loader.report(batch.step, batch.segment, losses)
            if (batch.step + 1) % 100 == 20:
                wait_for(remote, batch.step - 20)
                began = time.perf_counter()
                service.tick()
                watched.busy += time.perf_counter() - began
        entries = list(journal.entries())
    watched.delays = [e["from_step"] - int(e["key"].split("-")[-2]) for e in entries if "from_step" in e]
    watched.weights = [e["weights"] for e in entries if e["kind"] == "decision" and e["weights"]]


def wait_for(remote: Remote, step: int) -> None:
    """Wait until the store knows that `step` steps have settled."""
    deadline = time.monotonic() + 30
    while remote.facts().settled < step and time.monotonic() < deadline:
        time.sleep(0.02)


def held_out_losses(stage: Stage, held_out: str, trainer: Trainer) -> dict[str, float]:
    """Mean held-out loss by domain, nats a token."""
    with Loader(stage.server.address, held_out, rank=0, world=1, mode="observe") as loader:
        measured = evaluate(trainer.model, (rows_of(batch) for batch in loader))
    return {name: loss.mean for name, loss in measured.items()}


def difference(rows: Sequence[Mapping[str, Mapping[str, float]]], kind: str) -> dict[str, list[float]]:
    """Held-out loss of `kind` less uniform's with the same seed: of all domains, of all but noise, of each; the mean
    over seeds and the standard deviation between them."""
    groups = {"all": list(DOCUMENTS), "all but noise": [n for n in DOCUMENTS if n != "noise"]}
    found = {}
    for label, names in (groups | {name: [name] for name in DOCUMENTS}).items():
        less = [statistics.fmean(row[kind][name] - row["uniform"][name] for name in names) for row in rows]
        found[label] = [round(statistics.fmean(less), 4), round(statistics.stdev(less), 4) if len(less) > 1 else 0.0]
    return found
