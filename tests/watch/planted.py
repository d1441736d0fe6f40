"""Drifts that are planted in real text, real corpora and real plans: how many intervals until an alarm, and by what.

A language here is 3,000 words of random letters with Zipf frequencies, its documents have log-normal lengths and topics
of their own, so that windows differ from each other as they do in real text. The reference is the profile in the
manifest of the clean corpus; what is served comes from another corpus, made by the real builder.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from headrace.server.corpus.build import build_corpus
from headrace.server.corpus.manifest import Corpus
from headrace.server.corpus.spec import CorpusSpec
from headrace.server.corpus.text_encoder import tables_of
from headrace.server.plan.plan import Plan
from headrace.server.plan.spec import RunSpec
from headrace.server.service.library import Library
from headrace.server.service.loading import make_plan
from headrace.server.watch.drift.rule import Rule
from headrace.server.watch.drift.series import Comparison
from headrace.server.watch.drift_domain import DomainDrift
from headrace.server.watch.drift_sample import choose, observe
from headrace.server.watch.drift_settings import DriftSettings
from headrace.tokenizer.spec import TrainSpec
from headrace.tokenizer.tokenizer import Tokenizer
from headrace.tokenizer.train import train

DOCUMENTS = 1500
STEPS = 8  # of an interval
_LETTERS = {
    "lat": "aäeiouübcdfghklmnprst",
    "lat2": "aäeiouübcdfghklmnprst",
    "pol": "aąeęioóyłbcćdśżknrstz",
    "cyr": "абвгдежзиклмнопрстуяы",
}


class Language:
    """Words of one alphabet."""

    def __init__(self, name: str) -> None:
        rng = random.Random(name)
        letters = _LETTERS[name]
        self.words = ["".join(rng.choice(letters) for _ in range(rng.randint(2, 9))) for _ in range(3000)]
        self.weights = [1 / (rank + 3) for rank in range(len(self.words))]

    def document(self, rng: random.Random) -> str:
        """A text: common words, and a topic's own ones."""
        length = max(8, int(rng.lognormvariate(4.6, 0.8)))
        topic = rng.sample(self.words, 30)
        words = rng.choices(self.words, self.weights, k=length)
        return " ".join(rng.choice(topic) if rng.random() < 0.2 else word for word in words)


def clean(seed: int = 1, documents: int = DOCUMENTS) -> list[str]:
    rng, language = random.Random(seed), Language("lat")
    return [language.document(rng) for _ in range(documents)]


def mixed_in(name: str, part: float) -> list[str]:
    """A part of the documents is of another language."""
    rng, other = random.Random(f"{name}{part}"), Language(name)
    return [other.document(rng) if rng.random() < part else text for text in clean(2)]


def duplicated(copies: int) -> list[str]:
    """One shard's documents in `copies` copies, as when a file list names it again and again."""
    texts = clean(3)
    return texts[: DOCUMENTS // copies] * copies


def near_duplicated(copies: int) -> list[str]:
    """The same with one word of each copy changed."""
    rng = random.Random(4)
    texts = []
    for text in duplicated(copies):
        words = text.split(" ")
        words[rng.randrange(len(words))] = "x"
        texts.append(" ".join(words))
    return texts


def truncated(words: int) -> list[str]:
    return [" ".join(text.split(" ")[:words]) for text in clean(5)]


def encoded_twice(part: float) -> list[str]:
    """UTF-8 that was read as Latin-1."""
    rng = random.Random(6)
    return [text.encode().decode("latin-1") if rng.random() < part else text for text in clean(7)]


@dataclass(frozen=True)
class Drift:
    """A planted drift: its texts, and whether the tokenizer is another one."""

    texts: Callable[[], list[str]]
    other_tokenizer: bool = False


DRIFTS: dict[str, Drift] = {
    "10 % of another language, same script": Drift(lambda: mixed_in("pol", 0.10)),
    "25 % of another language, same script": Drift(lambda: mixed_in("pol", 0.25)),
    "10 % of another language, same letters": Drift(lambda: mixed_in("lat2", 0.10)),
    "5 % of another language and script": Drift(lambda: mixed_in("cyr", 0.05)),
    "one shard ten times": Drift(lambda: duplicated(10)),
    "one shard ten times, a word of each copy changed": Drift(lambda: near_duplicated(10)),
    "documents cut to 64 words": Drift(lambda: truncated(64)),
    "documents cut to 16 words": Drift(lambda: truncated(16)),
    "5 % of documents encoded twice": Drift(lambda: encoded_twice(0.05)),
    "all documents encoded twice": Drift(lambda: encoded_twice(1.0)),
    "another tokenizer": Drift(clean, other_tokenizer=True),
}


def planned(corpus: Corpus, *, seed: int) -> tuple[Plan, Library]:
    """The plan of a long run on a corpus of the one domain `d`."""
    text = (
        f'[run]\nname = "r"\ncorpus = "c"\nseed = {seed}\n'
        '[[phase]]\nname = "p"\nsteps = 100_000\nseq_len = 256\nbatch = 32\nweights = { d = 1.0 }\n'
    )
    library = Library(corpus)
    return make_plan(RunSpec.from_toml(text, place="RUN.toml"), library), library


class Bench:
    """The clean corpus with its tokenizer, and corpora with drift beside it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        own, other = clean(8, 300), mixed_in("pol", 1.0)[:300]
        self.tokenizer, _ = train(TrainSpec(vocab_size=1500, variant="classical"), {"lat": own})
        self._other, _ = train(TrainSpec(vocab_size=1500, variant="classical"), {"pol": other})
        self.corpus = self._build("clean", clean(), self.tokenizer)

    def _build(self, name: str, texts: list[str], tokenizer: Tokenizer) -> Corpus:
        folder = self._folder / name
        folder.mkdir()
        lines = [json.dumps({"text": text}) for text in texts]
        (folder / "d.jsonl").write_text("\n".join(lines) + "\n")
        tokenizer.save(folder / "tokenizer.json")
        text = (
            '[corpus]\nout = "corpus"\ntokenizer = "tokenizer.json"\n'
            '[[domain]]\nname = "d"\nfiles = ["d.jsonl"]\ntext = "text"\n'
        )
        build_corpus(CorpusSpec.from_toml(text, root=folder), workers=1)
        return Corpus.open(folder / "corpus")

    def built(self, name: str, texts: list[str], *, other_tokenizer: bool = False) -> Corpus:
        """A corpus of these texts."""
        return self._build(name, texts, self._other if other_tokenizer else self.tokenizer)

    def drifted(self, name: str) -> Corpus:
        """The corpus of a planted drift."""
        drift = DRIFTS[name]
        return self.built(f"drift-{list(DRIFTS).index(name)}", drift.texts(), other_tokenizer=drift.other_tokenizer)

    def intervals(self, corpus: Corpus, *, seed: int = 1) -> Iterator[list[Comparison]]:
        """The figures of each interval of a run on `corpus`, against the clean one's profile."""
        (record,) = self.corpus.manifest.domains
        drift = DomainDrift(
            record.profile, documents=record.total("documents"), duplicates=record.duplicates, rule=Rule()
        )
        tables = tables_of(self.tokenizer)
        plan, library = planned(corpus, seed=seed)
        for first in range(0, 100_000, STEPS):
            interval = choose(plan, library, first, first + STEPS, DriftSettings(one_in=1))
            yield drift.add(observe(interval, "d", tables), interval.from_step, interval.to_step)


def caught(bench: Bench, corpus: Corpus, *, most: int = 20, seed: int = 1) -> tuple[int, tuple[str, ...]]:
    """The number of the first interval with an alarm (0: none of `most`), and the features that raised it."""
    for number, figures in enumerate(bench.intervals(corpus, seed=seed), 1):
        features = tuple(sorted({figure.feature for figure in figures if figure.alarm}))
        if features or number == most:
            return (number if features else 0), features
    raise AssertionError("a run ended")
