"""A small corpus of three domains, built by the real builder from real text of this file's own making."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from pathlib import Path

from headrace.server.corpus.build import build_corpus
from headrace.server.corpus.spec import CorpusSpec
from headrace.tokenizer import Tokenizer

_DOCUMENTS = {"a": 120, "b": 60, "c": 25}


def write_small_corpus(
    folder: Path, *, seed: int = 1, documents: Mapping[str, int] = _DOCUMENTS, extra_tokens: int = 0
) -> CorpusSpec:
    """Texts, tokenizer and CORPUS.toml of a corpus whose domains differ in size; another seed gives other texts.

    `extra_tokens`, which no text uses, make the vocabulary as large as is wanted.
    """
    words = random.Random(seed)
    for name, number in documents.items():
        lines = [
            json.dumps({"text": " ".join(words.choice(_WORDS) for _ in range(words.randrange(3, 80)))})
            for _ in range(number)
        ]
        (folder / f"{name}.jsonl").write_text("\n".join(lines) + "\n")
    specials = {"<|endoftext|>": 0, "<|pad|>": 1}
    tokens = [name.encode() for name in specials] + [bytes([byte]) for byte in range(256)]
    specials |= {f"<|extra{number}|>": len(tokens) + number for number in range(extra_tokens)}
    tokens += [f"<|extra{number}|>".encode() for number in range(extra_tokens)]
    Tokenizer(tokens=tokens, merges=(), special_ids=specials).save(folder / "tokenizer.json")
    entries = "".join(f'[[domain]]\nname = "{name}"\nfiles = ["{name}.jsonl"]\ntext = "text"\n' for name in documents)
    text = f'[corpus]\nout = "corpus"\ntokenizer = "tokenizer.json"\n{entries}'
    (folder / "CORPUS.toml").write_text(text)
    return CorpusSpec.from_toml(text, root=folder)


def build_small_corpus(
    folder: Path, *, seed: int = 1, documents: Mapping[str, int] = _DOCUMENTS, extra_tokens: int = 0
) -> Path:
    """The manifest of the corpus of `write_small_corpus`."""
    spec = write_small_corpus(folder, seed=seed, documents=documents, extra_tokens=extra_tokens)
    build_corpus(spec, workers=1)
    return folder / "corpus" / "manifest.json"


_WORDS = [
    "the",
    "river",
    "carries",
    "water",
    "to",
    "a",
    "wheel",
    "that",
    "turns",
    "all",
    "day",
    "while",
    "millers",
    "sleep",
]
