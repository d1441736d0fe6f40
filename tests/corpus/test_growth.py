"""New files become a generation: the first manifest stays what it is, and a run that goes on takes them in."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from corpora import write_small_corpus
from headrace.proto.errors import ConfigError, NotFoundError, UsageError
from headrace.server.corpus.build import build_corpus
from headrace.server.corpus.grow import grow_corpus, plan_growth
from headrace.server.corpus.manifest import Corpus
from headrace.server.corpus.spec import CorpusSpec
from headrace.server.corpus.verify import verify_manifest
from rig import headrace, write_run
from small_corpus import ONE, save_byte_tokenizer, some_texts, spec_of, texts_of, write_jsonl


def test_new_files_are_a_manifest_of_their_own(root: Path) -> None:
    write_jsonl(root / "raw/b.jsonl", some_texts(1, 40))
    spec = spec_of(root, ONE)
    with pytest.raises(NotFoundError, match="no corpus at"):
        grow_corpus(spec)
    build_corpus(spec, workers=1)
    first = spec.manifest_path.read_bytes()
    with pytest.raises(UsageError, match="all 1 files are in this corpus already"):
        grow_corpus(spec)
    write_jsonl(root / "raw/a.jsonl", some_texts(2, 30))
    write_jsonl(root / "raw/c.jsonl", some_texts(3, 20))
    path, manifest = grow_corpus(spec, workers=1)
    assert path == root / "corpus/generation-2.json"
    assert [source.path for source in manifest.sources] == ["raw/a.jsonl", "raw/c.jsonl"]
    assert texts_of(Corpus.open(path), "d") == [*some_texts(2, 30), *some_texts(3, 20)]
    write_jsonl(root / "raw/d.jsonl", some_texts(4, 10))
    assert [file.name for file in plan_growth(spec).plan.files] == ["raw/d.jsonl"]
    assert grow_corpus(spec, workers=1)[0].name == "generation-3.json"
    assert spec.manifest_path.read_bytes() == first
    assert texts_of(Corpus.open(spec.manifest_path), "d") == some_texts(1, 40)
    assert not [check for check in verify_manifest(path)[1] if check.problem]


@pytest.mark.parametrize(("policy", "documents", "left"), [("keep", 4, 4), ("drop", 4, 2)])
def test_texts_of_earlier_generations_are_duplicates(root: Path, policy: str, documents: int, left: int) -> None:
    spec = spec_of(root, f'{ONE}duplicates = "{policy}"\n')
    write_jsonl(root / "raw/a.jsonl", ["one", "two", "three"])
    build_corpus(spec, workers=1)
    write_jsonl(root / "raw/b.jsonl", ["four", "two", "five", "four"])
    path, manifest = grow_corpus(spec, workers=1)
    assert manifest.domains[0].duplicates == 2
    assert manifest.sources[0].read == documents
    assert manifest.sources[0].packed == left
    assert len(texts_of(Corpus.open(path), "d")) == left


def test_what_does_not_fit_the_first_generation_is_refused(root: Path) -> None:
    spec = spec_of(root, ONE)
    write_jsonl(root / "raw/a.jsonl", ["one", "two"])
    build_corpus(spec, workers=1)
    write_jsonl(root / "raw/b.jsonl", ["three"])
    with pytest.raises(ConfigError, match="`tail` is drop, but the corpus was built with pad"):
        plan_growth(spec_of(root, ONE, 'tail = "drop"\n'))
    write_jsonl(root / "raw/a.jsonl", ["one", "two", "more"])
    with pytest.raises(ConfigError, match=r"`raw/a.jsonl` has 49 bytes and had 32 when it was built"):
        plan_growth(spec)
    write_jsonl(root / "raw/a.jsonl", ["one", "two"])
    save_byte_tokenizer(root / "tokenizer.json", ("<|end|>",))
    with pytest.raises(ConfigError, match="`tokenizer` is"):
        plan_growth(spec)


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
    rebuilt = headrace("corpus", "build", str(toml))
    assert "headrace corpus grow" in rebuilt.stderr
    assert CorpusSpec.from_file(toml).manifest_path.exists()
