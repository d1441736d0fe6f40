"""A corpus whose best weights are known, and a real server that serves runs on it.

Five domains of words: `plain` and `twin` are drawn from one grammar (redundant), `other` from another one, `small`
from a third with little text, `noise` is letters at random: nothing to learn, whatever its weight.
"""

from __future__ import annotations

import json
import random
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from headrace.server.corpus.build import build_corpus
from headrace.server.corpus.spec import CorpusSpec
from headrace.tokenizer import Tokenizer

DOCUMENTS = {"noise": 150, "other": 150, "plain": 150, "small": 12, "twin": 150}
_GRAMMAR = {"plain": "p", "twin": "p", "other": "o", "small": "s"}


def words_of(grammar: str) -> dict[str, list[str]]:
    """A grammar: after each word one of three others follows."""
    rng = random.Random(grammar)
    letters = {"p": "abcdefghij", "o": "klmnopqrst", "s": "0123456789"}[grammar]
    words = ["".join(rng.choice(letters) for _ in range(4)) for _ in range(20)]
    return {word: rng.sample(words, 3) for word in words}


def document(domain: str, rng: random.Random) -> str:
    """One text of a domain."""
    if domain == "noise":
        return "".join(rng.choice("abcdefghijklmnopqrstuvwxyz ") for _ in range(300))
    grammar = words_of(_GRAMMAR[domain])
    found = [rng.choice(sorted(grammar))]
    while len(found) < 60:
        found.append(rng.choice(grammar[found[-1]]))
    return " ".join(found)


def build(folder: Path, *, seed: int = 1, documents: Mapping[str, int] = DOCUMENTS) -> Path:
    """The manifest of the corpus, built by the real builder with a byte-level tokenizer."""
    rng = random.Random(seed)
    for name, number in documents.items():
        lines = [json.dumps({"text": document(name, rng)}) for _ in range(number)]
        (folder / f"{name}.jsonl").write_text("\n".join(lines) + "\n")
    specials = {"<|endoftext|>": 0, "<|pad|>": 1}
    tokens = [name.encode() for name in specials] + [bytes([byte]) for byte in range(256)]
    Tokenizer(tokens=tokens, merges=(), special_ids=specials).save(folder / "tokenizer.json")
    entries = "".join(f'[[domain]]\nname = "{name}"\nfiles = ["{name}.jsonl"]\ntext = "text"\n' for name in documents)
    text = f'[corpus]\nout = "corpus"\ntokenizer = "tokenizer.json"\n{entries}'
    build_corpus(CorpusSpec.from_toml(text, root=folder), workers=1)
    return folder / "corpus" / "manifest.json"


def run_toml(name: str, corpus: Path, weights: Mapping[str, float], **changes: Any) -> str:
    """The text of a RUN.toml."""
    values = {"seed": 7, "lead": 8, "steps": 400, "seq_len": 64, "batch": 10} | changes
    table = ", ".join(f"{domain} = {weight}" for domain, weight in weights.items())
    kind = f'kind = "{values["kind"]}"\n' if "kind" in values else ""
    return (
        f'[run]\nname = "{name}"\ncorpus = "{corpus}"\nseed = {values["seed"]}\nlead = {values["lead"]}\n{kind}'
        f'[[phase]]\nname = "all"\nsteps = {values["steps"]}\nseq_len = {values["seq_len"]}\n'
        f"batch = {values['batch']}\nweights = {{ {table} }}\n"
    )


class Server:
    """`headrace serve` in its own process, on a free port that it keeps over restarts."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.port, self.process = folder, 0, None
        self.start()

    def start(self) -> None:
        config = self.folder / "SERVER.toml"
        config.write_text(
            f'[server]\nlisten = "127.0.0.1:{self.port}"\nmetrics = "127.0.0.1:0"\n'
            f'store = "sqlite:///{self.folder}/control.db"\nruns = []\n'
        )
        command = [sys.executable, "-c", "from headrace.client.cli.main import run; run()", "serve", str(config)]
        with (self.folder / "server.log").open("a") as log:
            self.process: Any = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
        for line in self.process.stdout:
            if match := re.search(r"serves on .*:(\d+),", line):
                self.port = int(match[1])
            if "metrics on" in line:
                return
        raise AssertionError(f"no server: {(self.folder / 'server.log').read_text()[-2000:]}")

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def kill(self) -> None:
        self.process.kill()
        self.process.stdout.close()
        self.process.wait(timeout=30)

    def stop(self) -> None:
        self.process.terminate()
        self.process.stdout.close()
        self.process.wait(timeout=30)


@contextmanager
def serving(folder: Path) -> Iterator[Server]:
    """A server for the length of a block."""
    server = Server(folder)
    try:
        yield server
    finally:
        server.stop()
