"""A corpus under a run, by commands alone: files that end and begin again, and files that come later."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from pathlib import Path

from corpora import write_small_corpus
from headrace.server.corpus.build import build_corpus
from headrace.server.corpus.spec import CorpusSpec
from rig import headrace, write_run
from small_corpus import some_texts, write_jsonl


def test_two_short_files_are_read_again_and_again(cases: Path, tmp_path: Path) -> None:
    """Six documents, and steps for more than five epochs: every step has its rows, and the forecast says how often."""
    shutil.copytree(cases / "ST-19", tmp_path / "raw")
    spec = write_small_corpus(tmp_path)
    toml = '[corpus]\nout = "corpus"\ntokenizer = "tokenizer.json"\n[[domain]]\nname = "d"\nfiles = ["raw/*.parquet"]\n'
    (tmp_path / "CORPUS.toml").write_text(toml)
    assert headrace("corpus", "build", str(tmp_path / "CORPUS.toml")).returncode == 0
    shown = headrace("corpus", "show", "--view", "16", "--json", str(tmp_path / "CORPUS.toml")).stdout
    windows = json.loads(shown)[0]["windows"]
    steps = 5 * windows + 1
    run = write_run(tmp_path, spec.manifest_path, steps=steps, seq_len=16, batch=1)
    run.write_text(run.read_text().replace("{ a = 0.5, b = 0.3, c = 0.2 }", "{ d = 1 }"))
    store = f"sqlite:///{tmp_path}/control.db"
    assert headrace("run", "create", str(run), "--store", store).returncode == 0
    told = json.loads(headrace("run", "forecast", "r", "--json", "--store", store).stdout)
    assert told["end"] == steps
    assert 5 <= told["domains"][0]["epochs"] < 5.5
    digests = headrace("run", "digest", "r", "--steps", f"0:{steps}", "--store", store).stdout.splitlines()
    assert sorted(Counter(line.split()[1] for line in digests).values()) == [5] * (windows - 1) + [6]
    assert [int(line.split()[0]) for line in digests] == list(range(steps))


def test_a_run_takes_the_generation_in(tmp_path: Path) -> None:
    """As a person does it: build, run, more files, `corpus grow`, `run grow`; then the new file is in the rows."""
    build_corpus(write_small_corpus(tmp_path), workers=1)
    store = f"sqlite:///{tmp_path}/control.db"
    run = write_run(tmp_path, tmp_path / "corpus/manifest.json", steps=300)
    assert headrace("run", "create", str(run), "--store", store).returncode == 0
    toml = tmp_path / "CORPUS.toml"
    toml.write_text(toml.read_text().replace('"a.jsonl"', '"a.jsonl", "more.jsonl"'))
    write_jsonl(tmp_path / "more.jsonl", some_texts(9, 100))
    planned = headrace("corpus", "grow", "--dry-run", "--json", str(toml))
    assert json.loads(planned.stdout)["to_build"] == ["more.jsonl"]
    grown = headrace("corpus", "grow", str(toml))
    assert grown.returncode == 0, grown.stderr
    line = next(line for line in grown.stdout.splitlines() if "headrace run grow" in line)
    words = line.split()[1:]
    words[words.index("RUN")] = "r"
    joined = headrace(*words, "--join", "now", "--store", store)
    assert joined.returncode == 0, joined.stderr
    rows = [headrace("run", "explain", "r", "--step", str(step), "--store", store).stdout for step in range(5)]
    assert any("more.jsonl:" in row for row in rows)
    manifest = CorpusSpec.from_file(toml).manifest_path
    before = manifest.read_bytes()
    rebuilt = headrace("corpus", "build", str(toml))
    assert "its generations stay as they are" in rebuilt.stdout
    assert manifest.read_bytes() == before


def test_a_corpus_that_was_built_anew_is_named(tmp_path: Path) -> None:
    """The spec is untouched, so it is not what has to be put back."""
    build_corpus(write_small_corpus(tmp_path), workers=1)
    store = f"sqlite:///{tmp_path}/control.db"
    run = write_run(tmp_path, tmp_path / "corpus/manifest.json", steps=300)
    assert headrace("run", "create", str(run), "--store", store).returncode == 0
    write_jsonl(tmp_path / "a.jsonl", some_texts(9, 100))
    rebuilt = headrace("corpus", "build", str(tmp_path / "CORPUS.toml"))
    assert "runs that were made with that need it back" in rebuilt.stderr
    refused = headrace("run", "create", str(run), "--store", store)
    assert refused.returncode == 1, refused
    assert "its corpus is not the one that it was made with" in refused.stderr
