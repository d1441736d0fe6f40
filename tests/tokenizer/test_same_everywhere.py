"""Odd strings give the same ids, or the same error, through every entrance."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from headrace.proto.errors import HeadraceError, UsageError
from headrace.server.corpus.build import build_corpus
from headrace.server.corpus.manifest import Corpus
from headrace.server.corpus.spec import CorpusSpec
from headrace.tokenizer import Tokenizer
from headrace.tokenizer.spec import TrainSpec
from headrace.tokenizer.stream import StreamDecoder
from headrace.tokenizer.train import train

ODD = [
    "",
    "\x00",
    "<|endoftext|>",
    " ",
    "\n",
    "a\u0301",
    "\ufeff",
    "x<|endoftext|>y",
    "\ufffe",
    "\U0010ffff",
    "\u2028",
    "𝟘",
]
LONE = ["\ud83d", "\ud83d\udc4d", "\udc80"]


@pytest.fixture(scope="module")
def made() -> Tokenizer:
    return train(TrainSpec(vocab_size=270, variant="classical"), {"x": ["a text of <|endoftext|> words " * 9]})[0]


def test_odd_strings_give_the_same_ids(made: Tokenizer, tmp_path: Path) -> None:
    expected = [made.encode(text).tolist() for text in ODD]
    for threads in (1, 3):
        ids, ends = made.encode_batch(ODD, threads=threads)
        starts = [0, *ends[:-1].tolist()]
        assert [ids[a:b].tolist() for a, b in zip(starts, ends.tolist(), strict=True)] == expected
    for text, ids in zip(ODD, expected, strict=True):
        assert made.decode(ids) == text.encode()
        stream = StreamDecoder(made)
        assert "".join(stream.feed([i]) for i in ids) + stream.finish() == text
    assert by_command(made, tmp_path) == expected
    assert by_corpus(made, tmp_path) == expected
    arrow = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    from headrace.tokenizer.arrow import encode_arrow

    assert encode_arrow(made, arrow.array(ODD)).to_pylist() == expected


def by_command(made: Tokenizer, folder: Path) -> list[list[int]]:
    made.save(folder / "tokenizer.json")
    files = [folder / f"{number}.txt" for number in range(len(ODD))]
    for file, text in zip(files, ODD, strict=True):
        file.write_bytes(text.encode())
    command = [sys.executable, "-c", "from headrace.client.cli.main import run; run()", "tokenizer", "encode"]
    done = subprocess.run([*command, str(folder / "tokenizer.json"), *map(str, files)], capture_output=True, check=True)
    return [[int(number) for number in line.split()] for line in done.stdout.decode().split("\n")[:-1]]


def by_corpus(made: Tokenizer, folder: Path) -> list[list[int]]:
    """Each text as a document of its own domain, so that its ids can be told apart."""
    entries = ""
    for number, text in enumerate(ODD):
        if not text:  # counted as an empty document, and not a domain
            continue
        (folder / f"{number}.jsonl").write_text(json.dumps({"text": text}) + "\n")
        entries += f'[[domain]]\nname = "d{number}"\nfiles = ["{number}.jsonl"]\ntext = "text"\n'
    head = '[corpus]\nout = "corpus"\ntokenizer = "tokenizer.json"\n'
    build_corpus(CorpusSpec.from_toml(head + entries, root=folder), workers=1)
    corpus = Corpus.open(folder / "corpus" / "manifest.json")
    return [ids_of(corpus, f"d{number}", made) if text else [] for number, text in enumerate(ODD)]


def ids_of(corpus: Corpus, domain: str, made: Tokenizer) -> list[int]:
    """A document's ids; the store puts the end-of-text id behind each."""
    total = corpus.tokens(domain)
    if total == 0:
        return []
    import numpy as np

    rows = corpus.read(total, "concat", [domain], np.zeros(1, np.uint32), np.zeros(1, np.uint64))
    ids = np.frombuffer(rows.ids, np.uint16)[:total].tolist()
    return ids[:-1] if ids[-1] == made.eos_id else ids


@pytest.mark.parametrize("text", LONE)
def test_lone_surrogates_are_refused_alike(made: Tokenizer, text: str, tmp_path: Path) -> None:
    for call in (lambda: made.encode(text), lambda: made.encode_batch(["fine", text]),
                 lambda: made.encode(text, allow_special=True)):  # fmt: skip
        with pytest.raises(UsageError, match="lone surrogate"):
            call()
    with pytest.raises(HeadraceError, match="no Unicode text"):
        train(TrainSpec(vocab_size=270, variant="classical"), {"x": [text]})
