"""Shards under attack: every flipped bit, cut, swap and change in place is found, and nothing of it is served."""

from __future__ import annotations

import json
import os
import random
import shutil
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from headrace.proto.errors import DataLossError, HeadraceError, NotFoundError, OutOfRangeError, UsageError
from headrace.server.corpus.build import build_corpus
from headrace.server.corpus.manifest import Corpus
from headrace.server.corpus.verify import verify_manifest, verify_sources
from small_corpus import ONE, ids_of, save_byte_tokenizer, some_texts, spec_of, texts_of, tree_hash, write_jsonl

Build = Callable[..., Corpus]
TWO = "".join(f'[[domain]]\nname = "{name}"\nfiles = ["raw/{name}*.jsonl"]\n' for name in "de")


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A corpus of two domains, `d` of two files; copied before it is damaged."""
    root = tmp_path_factory.mktemp("built")
    save_byte_tokenizer(root / "tokenizer.json")
    for number in range(2):
        write_jsonl(root / f"raw/d{number}.jsonl", some_texts(number, 600))
    write_jsonl(root / "raw/e.jsonl", some_texts(7, 600))
    build_corpus(spec_of(root, TWO), workers=1)
    return root


@pytest.fixture
def folder(built: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(built / "corpus", tmp_path / "corpus"))


def shards(folder: Path, domain: str = "d") -> list[Path]:
    return sorted(folder.rglob(f"{domain}.arrow"))


def whole(corpus: Corpus, domain: str = "d") -> bytes:
    return ids_of(corpus, domain, 128).tobytes()


def test_shards_are_arrow_files_that_anyone_can_open(built: Path) -> None:
    with pa.memory_map(str(shards(built)[0])) as mapped:
        table = pa.ipc.open_file(mapped).read_all()
    assert table.column_names == ["ids", "row", "digest"]
    assert table["row"].to_pylist() == list(range(1, 601))


def test_every_flipped_bit_is_found(folder: Path) -> None:
    """500 bits of data and index; at opening, at the first read, or by `verify`, and never served."""
    right = whole(Corpus.open(folder))
    rng = random.Random(12)
    for number in range(500):
        path = rng.choice(shards(folder))
        path = path if number % 4 else path.with_name(path.name + ".index")
        good = path.read_bytes()
        position = rng.randrange(len(good))
        path.write_bytes(good[:position] + bytes([good[position] ^ 1 << rng.randrange(8)]) + good[position + 1 :])
        try:
            corpus = Corpus.open(folder)
        except DataLossError as error:
            found = str(error)
        else:
            assert any(check.problem for check in verify_manifest(folder / "manifest.json")[1]), (path, position)
            try:
                assert whole(corpus) == right  # a part of the file that windows do not need, such as digests
                found = path.name
            except DataLossError as error:
                found = str(error)
        assert path.name.removesuffix(".index") in found
        path.write_bytes(good)
    assert whole(Corpus.open(folder)) == right


def test_torn_shards_are_found_at_opening(folder: Path) -> None:
    first, second = shards(folder)
    index = first.with_name(first.name + ".index")

    def damage() -> Iterator[tuple[str, Callable[[], object]]]:
        data = first.read_bytes()
        yield "cut by one byte", lambda: first.write_bytes(data[:-1])
        yield "one byte more", lambda: first.write_bytes(data + b"\0")
        yield "another shard", lambda: first.write_bytes(second.read_bytes())
        yield "same size, other bytes", lambda: first.write_bytes(bytes(len(data)))
        yield "index cut", lambda: index.write_bytes(index.read_bytes()[:100])
        yield "index of another", lambda: shutil.copy(second.with_name(second.name + ".index"), index)
        yield "index gone", index.unlink
        yield "shard gone", first.unlink

    saved = folder.parent / "saved"
    shutil.copytree(folder, saved)
    for name, act in damage():
        act()
        with pytest.raises(DataLossError, match=r"d\.arrow") as caught:
            Corpus.open(folder)
        assert str(folder) in str(caught.value), name
        shutil.rmtree(folder)
        shutil.copytree(saved, folder)


def test_index_of_an_older_build_is_refused(built: Path, tmp_path: Path) -> None:
    root = Path(shutil.copytree(built, tmp_path / "root"))
    old = (root / "corpus/manifest.json").read_text(encoding="utf-8")
    write_jsonl(root / "raw/e.jsonl", some_texts(8, 600))
    build_corpus(spec_of(root, TWO), workers=1)
    new = json.loads((root / "corpus/manifest.json").read_text(encoding="utf-8"))
    stale = json.loads(old)
    for shard in new["domains"][1]["generations"][0]:
        target = root / "corpus" / stale["domains"][1]["generations"][0][0]["folder"]
        shutil.copy(root / "corpus" / shard["folder"] / shard["file"], target)
    (root / "corpus/manifest.json").write_text(old, encoding="utf-8")
    with pytest.raises(DataLossError, match=r"e\.arrow"):
        Corpus.open(root / "corpus")


@pytest.mark.parametrize("change", ["shorter", "longer", "other bytes", "cut while open"])
def test_change_in_place_is_an_error_and_never_mixed_bytes(folder: Path, change: str) -> None:
    corpus = Corpus.open(folder)
    right = whole(corpus)
    others = whole(corpus, "e")
    path = shards(folder)[0]
    data = path.read_bytes()
    if change == "cut while open":
        os.truncate(path, len(data) // 2)
    else:
        new = {"shorter": data[:-4096], "longer": data + data, "other bytes": bytes(reversed(data))}[change]
        path.write_bytes(new)
    with pytest.raises(DataLossError, match=r"d\.arrow"):
        whole(corpus)
    assert whole(corpus, "e") == others
    path.write_bytes(data)
    assert whole(corpus) == right


@pytest.mark.parametrize("change", ["delete", "rename", "replace", "touch"])
def test_open_corpus_outlives_its_directory_entries(folder: Path, change: str) -> None:
    corpus = Corpus.open(folder)
    right = whole(corpus)
    path = shards(folder)[0]
    if change == "delete":
        path.unlink()
    elif change == "rename":
        path.rename(path.with_name("elsewhere"))
    elif change == "replace":
        (path.parent / "new").write_bytes(b"other")
        (path.parent / "new").rename(path)
    else:
        os.utime(path)
    assert whole(corpus) == right


def test_many_threads_read_the_same(folder: Path) -> None:
    corpus = Corpus.open(folder)
    right = whole(Corpus.open(folder))
    found: list[bytes] = []
    threads = [threading.Thread(target=lambda: found.append(whole(corpus))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [right] * 8


def test_damaged_unit_is_built_again(built: Path, tmp_path: Path) -> None:
    root = Path(shutil.copytree(built, tmp_path / "root"))
    before = tree_hash(root / "corpus")
    spec = spec_of(root, TWO)
    first, second = shards(root / "corpus")
    first.write_bytes(first.read_bytes()[:-1])
    build_corpus(spec, workers=1)
    assert tree_hash(root / "corpus") == before
    data = bytearray(second.read_bytes())
    data[len(data) // 2] ^= 1
    second.write_bytes(data)
    build_corpus(spec, workers=1, check=True)
    assert tree_hash(root / "corpus") == before


def test_sources_that_changed_are_told(built: Path, tmp_path: Path) -> None:
    root = Path(shutil.copytree(built, tmp_path / "root"))
    manifest = Corpus.open(root / "corpus").manifest
    assert not any(check.problem for check in verify_sources(manifest, root))
    for number in range(200):
        path = root / f"raw/d{number % 2}.jsonl"
        good = path.read_bytes()
        position = number * len(good) // 200
        path.write_bytes(good[:position] + bytes([good[position] ^ 1]) + good[position + 1 :])
        assert [check.name for check in verify_sources(manifest, root) if check.problem] == [f"raw/{path.name}"]
        path.write_bytes(good)
    (root / "raw/e.jsonl").unlink()
    assert [check.name for check in verify_sources(manifest, root) if check.problem] == ["raw/e.jsonl"]


def test_disk_full_is_an_error_with_the_path_and_leaves_nothing(root: Path) -> None:
    resource = pytest.importorskip("resource")
    write_jsonl(root / "raw/a.jsonl", some_texts(1, 3000))
    spec = spec_of(root, ONE)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    for limit in (100, 4096, 100_000, 300_000):
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
        try:
            with pytest.raises(HeadraceError, match=r"cannot write below `.*store"):
                build_corpus(spec, workers=1)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        assert not spec.manifest_path.exists()
        assert [path.name for path in spec.out_path.rglob("*") if path.is_file()] == [".building"]
    build_corpus(spec, workers=1)
    first = tree_hash(spec.out_path)
    shutil.rmtree(spec.out_path)
    build_corpus(spec, workers=1)
    assert tree_hash(spec.out_path) == first


def test_questions_that_no_view_answers(folder: Path) -> None:
    corpus = Corpus.open(folder)
    with pytest.raises(NotFoundError, match="no domain is called `D`; the corpus has d, e"):
        corpus.tokens("D")
    count = corpus.view("d", 64, "concat").windows
    with pytest.raises(OutOfRangeError, match=f"window {count} of domain `d`"):
        corpus.read(64, "concat", ["d"], np.zeros(1, np.uint32), np.array([count], np.uint64))
    with pytest.raises(UsageError, match="no packing is called `dense`"):
        corpus.view("d", 64, "dense")
    with pytest.raises(UsageError, match="`seq_len` is from 1"):
        corpus.view("d", 0, "concat")


def test_facts_are_exact(folder: Path) -> None:
    corpus = Corpus.open(folder)
    facts = corpus.facts({(16, "concat"), (1000, "concat")})
    assert facts.tokens == {name: sum(len(text.encode()) + 1 for text in texts_of(corpus, name)) for name in "de"}
    assert facts.views["d", 1000, "concat"].windows == -(-facts.tokens["d"] // 1000)
    assert facts.digest == corpus.digest
