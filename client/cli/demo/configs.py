"""The configuration files that the demo writes, of the kinds that a user writes: CORPUS.toml, RUN.toml, SERVER.toml.

They lie in `configs/` of the output folder, from which every command of the demo runs, so each can be repeated there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

SEQ_LEN = 128
BATCH = 16
SEED = 20_001
STORE = "sqlite:///store/headrace.db"


@dataclass(frozen=True, kw_only=True, slots=True)
class Addresses:
    """Where the demo's server listens; the same before and after its crash."""

    server: str
    metrics: str


def corpus_toml(domains: Sequence[str]) -> str:
    """For the files that `headrace.client.cli.demo.text` writes."""
    head = '[corpus]\nout = "../corpus"\ntokenizer = "../tokenizers/parity.json"\n'
    return head + "".join(
        f'\n[[domain]]\nname = "{name}"\nfiles = ["../raw/{name}/*"]\n'
        + ('document = "file"\n' if name == "docs" else 'text = "text"\n')
        for name in domains
    )


def run_toml(name: str, weights: str, *, steps: int, batch: int = BATCH) -> str:
    """One phase of `steps` steps; `weights` is the line `weights = { ... }`."""
    return (
        f'[run]\nname = "{name}"\ncorpus = "../corpus/manifest.json"\nseed = {SEED}\n\n'
        f'[[phase]]\nname = "all"\nsteps = {steps}\nseq_len = {SEQ_LEN}\nbatch = {batch}\n{weights}\n'
    )


def uniform(domains: Sequence[str]) -> str:
    """The line `weights = { ... }` with the same part for every domain."""
    return f"weights = {{ {', '.join(f'{name} = 1' for name in domains)} }}"


def server_toml(addresses: Addresses) -> str:
    """A server without runs in its file: the demo makes them by command."""
    return f'[server]\nlisten = "{addresses.server}"\nmetrics = "{addresses.metrics}"\nstore = "sqlite:///../store/headrace.db"\n'


def write_config(folder: Path, name: str, text: str) -> str:
    """Write `configs/<name>` and return its path from the output folder."""
    path = folder / "configs" / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return f"configs/{name}"
