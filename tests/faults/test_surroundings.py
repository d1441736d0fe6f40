"""Row 45: what a run serves does not depend on threads, hash seed, locale, time zone, allocator, Python or machine.

A real server serves a run that has all that a plan can hold (two packings, a schedule, a cap, a swap, a mask); batches
are so large that half of one (a rank's) is filled on several threads. Every digest is held against `surroundings.json`,
kept here: another Python, library or processor that made another stream would show. Texts are made by arithmetic, so
that no library's random numbers matter.

`python tests/faults/test_surroundings.py` writes the file. A change in it is a new plan version or corpus format.
"""

from __future__ import annotations

import json
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any

import pytest
from headrace.client import Loader
from headrace.native import step_digest
from headrace.server.corpus.build import build_corpus
from headrace.server.corpus.spec import CorpusSpec
from headrace.tokenizer import Tokenizer
from rig import Raw, ServerProcess, planned_digests, serving

FILE = Path(__file__).resolve().with_name("surroundings.json")
DOCUMENTS = {"a": 150, "b": 90, "c": 60}
STEPS = 50
RUN = """
[run]
name = "r"
corpus = "corpus/manifest.json"
seed = 45
lead = 64
[[phase]]
name = "first"
steps = 20
seq_len = 256
batch = 1280
schedule = [
  { at = 0, weights = { a = 0.5, b = 0.3, c = 0.2 }, curve = "cosine" },
  { at = 15, weights = { a = 0.2, b = 0.3, c = 0.5 } },
]
[[phase]]
name = "second"
steps = 30
seq_len = 128
batch = 640
packing = "best_fit"
weights = { a = 1, b = 1, c = 1 }
[domain.c]
cap = 24.5
"""
SERVER = """
import headrace.server.control.aio as aio, headrace.server.service.app as app
aio._THREADS = app._THREADS = {threads}
from headrace.client.cli.main import run
run()
"""


def text_of(name: str, number: int) -> str:
    """A document of 20 to 400 numbers in words, with letters of two and three bytes."""
    words = ("the", "mill", "river", "Ströme", "wheel", "水", "turns", "İstanbul", "day", "low", "über", "so")
    length = 20 + (number * number * 37 + len(name) * 11) % 380
    return " ".join(words[(number * 7 + at * at * 3 + at * ord(name[0])) % len(words)] for at in range(length))


def write(folder: Path) -> None:
    """Texts, tokenizer, corpus and RUN.toml."""
    names = list(DOCUMENTS)
    for name in names:
        lines = [json.dumps({"text": text_of(name, number)}) for number in range(DOCUMENTS[name])]
        (folder / f"{name}.jsonl").write_text("\n".join(lines) + "\n")
    specials = {"<|endoftext|>": 0, "<|pad|>": 1}
    tokens = [special.encode() for special in specials] + [bytes([byte]) for byte in range(256)]
    Tokenizer(tokens=tokens, merges=(), special_ids=specials).save(folder / "tokenizer.json")
    entries = "".join(f'[[domain]]\nname = "{name}"\nfiles = ["{name}.jsonl"]\ntext = "text"\n' for name in names)
    text = f'[corpus]\nout = "corpus"\ntokenizer = "tokenizer.json"\n{entries}'
    build_corpus(CorpusSpec.from_toml(text, root=folder), workers=1)
    (folder / "RUN.toml").write_text(RUN)


def change(raw: Raw) -> None:
    """A swap within the first phase, with loss weights, one that reaches into the second, and a mask."""
    weights = {"a": 0.1, "b": 0.8, "c": 0.1}
    raw("SetWeights", run="r", weights=weights, loss_weights={"b": 0.25}, from_step=8, until_step=16)
    raw("SetWeights", run="r", weights={"a": 0.7, "b": 0.0, "c": 0.3}, from_step=14, until_step=36)
    raw("Mask", run="r", mask={"by": "source", "values": ["a.jsonl:3", "c.jsonl:1"]}, from_step=12)


def served(server: ServerProcess, world: int) -> dict[str, Any]:
    """All that the client's ranks receive, side by side."""
    with Raw(server.address) as raw:
        change(raw)
        rows: dict[int, dict[int, bytes]] = {step: {} for step in range(STEPS)}
        errors: list[BaseException] = []

        def read(rank: int) -> None:
            try:
                with Loader(server.address, "r", rank=rank, world=world, job="job", attempt=0) as loader:
                    for batch in loader:
                        rows[batch.step][batch.first_slot] = batch.row_digests.tobytes()
            except BaseException as error:
                errors.append(error)

        ranks = [threading.Thread(target=read, args=(rank,)) for rank in range(world)]
        for rank in ranks:
            rank.start()
        for rank in ranks:
            rank.join(60)
        assert not errors, errors
        run = raw("GetRun", run="r").run
        opened = raw("OpenRun", run="r", mode="OPEN_MODE_OBSERVE")
        steps = [step_digest(b"".join(rows[step][slot] for slot in sorted(rows[step]))).hex() for step in range(STEPS)]
    return {"corpus": opened.corpus_digest.hex(), "spec": run.spec_digest.hex(), "steps": steps}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("surroundings")
    write(folder)
    return folder


SURROUNDINGS = [
    pytest.param(1, {"RAYON_NUM_THREADS": "1", "PYTHONHASHSEED": "1", "LC_ALL": "C"}, id="1-thread"),
    pytest.param(
        2,
        {"RAYON_NUM_THREADS": "2", "PYTHONHASHSEED": "99", "LC_ALL": "tr_TR.UTF-8", "TZ": "Asia/Kathmandu"},
        id="2-threads-Turkish",
    ),
    pytest.param(
        16,
        # glibc fills what is allocated and freed with these bytes: what is read before it is written would show.
        {"RAYON_NUM_THREADS": "16", "PYTHONMALLOC": "malloc", "MALLOC_PERTURB_": "85", "MALLOC_ARENA_MAX": "1"},
        id="16-threads-other-malloc",
    ),
]


@pytest.mark.parametrize(("threads", "environment"), SURROUNDINGS)
def test_a_server_in_other_surroundings_serves_the_golden_digests(
    tmp_path: Path, made: Path, monkeypatch: pytest.MonkeyPatch, threads: int, environment: dict[str, str]
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    program = [sys.executable, "-c", SERVER.format(threads=threads)]
    golden = json.loads(FILE.read_text())
    with serving(tmp_path, [made / "RUN.toml"], program=program) as server:
        assert served(server, world=2) == golden
        planned = planned_digests(server.store, "r", f"0:{STEPS}")
    assert [planned[step].hex() for step in range(STEPS)] == golden["steps"]


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary:
        place = Path(temporary)
        write(place)
        with serving(place, [place / "RUN.toml"]) as started:
            FILE.write_text(json.dumps(served(started, world=1), indent=0) + "\n")
