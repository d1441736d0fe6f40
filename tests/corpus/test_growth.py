"""New files become a generation: the first manifest stays what it is, and a run that goes on takes them in."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from headrace.proto.errors import ConfigError, NotFoundError, UsageError
from headrace.server.corpus.build import build_corpus, plan_build, within_generations
from headrace.server.corpus.grow import grow_corpus, plan_growth
from headrace.server.corpus.manifest import Corpus
from headrace.server.corpus.records import Manifest
from headrace.server.corpus.verify import verify_manifest
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


@pytest.mark.parametrize("policy", ["keep", "drop"])
def test_a_corpus_that_has_grown_is_mended_and_keeps_its_manifests(root: Path, policy: str) -> None:
    spec = spec_of(root, f'{ONE}duplicates = "{policy}"\n')
    write_jsonl(root / "raw/a.jsonl", ["one", "two", "one", "three"])
    build_corpus(spec, workers=1)
    write_jsonl(root / "raw/b.jsonl", ["four", "two", "five", "four"])
    second, _ = grow_corpus(spec, workers=1)
    paths = (spec.manifest_path, second)
    before = [path.read_bytes() for path in paths]
    write_jsonl(root / "raw/c.jsonl", ["six"])
    for path in paths:
        damage(path, lambda shard: shard.write_bytes(flipped(shard.read_bytes())))
    assert len(within_generations(plan_build(spec)).files) == 2
    build_corpus(spec, workers=1, check=True)
    assert not [check for path in paths for check in verify_manifest(path)[1] if check.problem]
    for path in paths:
        damage(path, Path.unlink)
        assert [check.problem for check in verify_manifest(path)[1] if check.problem] == ["it is not there"]
    build_corpus(spec, workers=1)
    assert not [check for path in paths for check in verify_manifest(path)[1] if check.problem]
    assert [path.read_bytes() for path in paths] == before
    assert [file.name for file in plan_growth(spec).plan.files] == ["raw/c.jsonl"]
    write_jsonl(root / "raw/a.jsonl", ["another", "text"])
    with pytest.raises(ConfigError, match=r"has grown, and runs hold on to `manifest.json`.*put that back"):
        build_corpus(spec, workers=1)
    assert [path.read_bytes() for path in paths] == before
    spec.manifest_path.unlink()
    with pytest.raises(ConfigError, match=r"manifest.json` is gone, but `generation-2.json`.*restore it"):
        build_corpus(spec, workers=1)
    assert not spec.manifest_path.exists()


def flipped(data: bytes) -> bytes:
    at = len(data) // 2
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


def damage(manifest: Path, how: Callable[[Path], object]) -> None:
    (record,) = (record for domain in Manifest.load(manifest).domains for record in domain.generations[0])
    how(manifest.parent / record.folder / record.shard.file)


def test_bytes_of_texts_are_known_where_duplicates_are_dropped(root: Path) -> None:
    texts = [*some_texts(1, 20), "größer \U0001f30a"]
    write_jsonl(root / "raw/a.jsonl", [*texts, texts[3], texts[5]])
    manifest = build_corpus(spec_of(root, f'{ONE}duplicates = "drop"\n'), workers=1)
    assert manifest.domains[0].total("text_bytes") == sum(len(text.encode()) for text in texts)
