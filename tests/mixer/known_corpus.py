"""A corpus made so that one knows where weight belongs, for measuring whether a method finds it.

Text is syllables, each one token. After each of a grammar's 105 syllables one of 8 follows, by Zipf: 840 facts a
grammar, learned the better the more it is read, down to an entropy of 1.816 nats. `plain` and `twin` share a grammar
(redundant), `other` has one of its own (unique), `small` too with a tenth of the text, `noise` is one of 26 syllables
at random: after a few steps nothing of it can be learned. When every domain counts alike, a good mixture gives noise
next to nothing, plain and twin a share each that together is about other's, and small far more than its part of the
text.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from headrace.server.corpus.build import build_corpus
from headrace.server.corpus.spec import CorpusSpec
from headrace.tokenizer import Tokenizer

DOCUMENTS = {"noise": 1500, "other": 1500, "plain": 1500, "small": 150, "twin": 1500}
# By hand, from the above; not searched for.
BEST = {"noise": 0.02, "other": 0.32, "plain": 0.18, "small": 0.30, "twin": 0.18}
VOCABULARY, LENGTH = 678, 100
_CONSONANTS, _VOWELS, _FOLLOWERS, _NOISES = "bcdfghjklmnpqrstvwxyz", "aeiou", 8, 26
_GRAMMAR = {"plain": 0, "twin": 0, "other": 1, "small": 2, "noise": 3}


def syllables(grammar: int) -> list[str]:
    """The 105 syllables of a grammar: its own by case."""
    consonants = _CONSONANTS.upper() if grammar in (2, 3) else _CONSONANTS
    vowels = _VOWELS.upper() if grammar in (1, 3) else _VOWELS
    return [c + v for c in consonants for v in vowels]


def tokenizer() -> Tokenizer:
    """Bytes, and a merge for each syllable."""
    specials = {"<|endoftext|>": 0, "<|pad|>": 1}
    known = [text.encode() for grammar in range(4) for text in syllables(grammar)]
    tokens = [name.encode() for name in specials] + [bytes([byte]) for byte in range(256)] + known
    return Tokenizer(tokens=tokens, merges=[(2 + text[0], 2 + text[1]) for text in known], special_ids=specials)


def chain(grammar: int) -> np.ndarray:
    """(105, 105) cumulative probabilities of what follows each syllable."""
    rng, size = np.random.default_rng(grammar), len(_CONSONANTS) * len(_VOWELS)
    table, zipf = np.zeros((size, size)), 1 / np.arange(1, _FOLLOWERS + 1)
    for row in table:
        row[rng.choice(size, _FOLLOWERS, replace=False)] = zipf / zipf.sum()
    return table.cumsum(axis=1)


def entropy() -> float:
    """Nats a token that no model can be better than, of every domain but noise."""
    zipf = 1 / np.arange(1, _FOLLOWERS + 1)
    part = zipf / zipf.sum()
    return float(-(part * np.log(part)).sum())


def texts(domain: str, number: int, seed: int) -> list[str]:
    """Documents of a domain."""
    grammar, rng = _GRAMMAR[domain], np.random.default_rng([seed, *domain.encode()])
    names = np.array(syllables(grammar))
    if domain == "noise":
        return ["".join(row) for row in names[rng.integers(_NOISES, size=(number, LENGTH))]]
    table, ids = chain(grammar), np.empty((number, LENGTH), dtype=np.int64)
    ids[:, 0] = rng.integers(len(names), size=number)
    for t in range(1, LENGTH):
        ids[:, t] = (rng.random((number, 1)) > table[ids[:, t - 1]]).sum(axis=1).clip(max=len(names) - 1)
    return ["".join(row) for row in names[ids]]


def build(folder: Path, *, seed: int = 1, documents: Mapping[str, int] = DOCUMENTS) -> Path:
    """The manifest of the corpus, built by the real builder."""
    for name, number in documents.items():
        lines = "".join(json.dumps({"text": text}) + "\n" for text in texts(name, number, seed))
        (folder / f"{name}.jsonl").write_text(lines)
    tokenizer().save(folder / "tokenizer.json")
    entries = "".join(f'[[domain]]\nname = "{name}"\nfiles = ["{name}.jsonl"]\ntext = "text"\n' for name in documents)
    text = f'[corpus]\nout = "corpus"\ntokenizer = "tokenizer.json"\n{entries}'
    build_corpus(CorpusSpec.from_toml(text, root=folder), workers=1)
    return folder / "corpus" / "manifest.json"
