"""Builds: the stream is the documents in order, the books balance, and the bytes never depend on who built them."""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from headrace.proto.errors import ConfigError, HeadraceError, NotFoundError
from headrace.server.corpus.build import Advance, build_corpus, build_share, plan_build
from headrace.server.corpus.manifest import Corpus
from headrace.server.corpus.progress import Pace
from headrace.server.corpus.ready import make_ready, missing_spec
from headrace.server.corpus.records import Manifest
from small_corpus import (
    EOS,
    FIRST,
    ONE,
    PAD,
    save_byte_tokenizer,
    some_texts,
    spec_of,
    stream,
    texts_of,
    tokens_of,
    tree_hash,
    write_jsonl,
)

Build = Callable[..., Corpus]


@pytest.mark.parametrize("seq_len", [1, 16, 100, 4096])
def test_windows_cut_the_stream(root: Path, build: Build, seq_len: int) -> None:
    texts = [some_texts(seed, 300) for seed in range(3)]
    for number, part in enumerate(texts):
        write_jsonl(root / f"raw/{number}.jsonl", part)
    corpus = build(ONE)
    whole = stream([text for part in texts for text in part])
    starts = set(np.cumsum([len(text.encode()) + 1 for part in texts for text in part]).tolist())
    view = corpus.view("d", seq_len, "concat")
    assert (view.windows, view.real_tokens) == (-(-len(whole) // seq_len), len(whole))
    chosen = np.array(random.Random(seq_len).sample(range(view.windows), min(view.windows, 200)), np.uint64)
    rows = corpus.read(seq_len, "concat", ["x", "d"], np.ones(len(chosen), np.uint32), chosen)
    ids = np.frombuffer(rows.ids, np.uint16).reshape(len(chosen), seq_len + 1)
    begin = 0
    for row, window in enumerate(chosen.tolist()):
        real = whole[window * seq_len : window * seq_len + seq_len + 1]
        assert ids[row].tolist() == real + [PAD] * (seq_len + 1 - len(real))
        assert rows.real_ids[row] == len(real)
        end = int(rows.edge_ends[row])
        inside = [at - window * seq_len for at in sorted(starts) if 0 < at - window * seq_len < len(real)]
        assert rows.edges[begin:end].tolist() == inside
        begin = end


def test_one_store_serves_windows_of_any_length(root: Path, build: Build) -> None:
    """From 16 tokens to a Mi: nothing is written anew, and every token is in each view once."""
    texts = ["w" * 1_500_000, *some_texts(1, 300), "x" * 700_000]
    write_jsonl(root / "raw/a.jsonl", texts)
    corpus = build(ONE)
    store = tree_hash(root / "corpus/store")
    whole = np.array(stream(texts))
    for seq_len in (16, 4096, 1 << 17, 1 << 20):
        for packing in ("concat", "best_fit"):
            view = corpus.view("d", seq_len, packing)
            assert view.real_tokens == len(whole)
            windows = np.arange(view.windows, dtype=np.uint64)
            rows = corpus.read(seq_len, packing, ["d"], np.zeros(len(windows), np.uint32), windows)
            ids = np.frombuffer(rows.ids, np.uint16).reshape(len(windows), seq_len + 1)
            inputs = [row[: min(int(real), seq_len)] for row, real in zip(ids, rows.real_ids, strict=True)]
            if packing == "concat":
                assert (np.concatenate(inputs) == whole).all()
            else:
                assert (np.bincount(np.concatenate(inputs)) == np.bincount(whole)).all()
    assert tree_hash(root / "corpus/store") == store


def test_progress_tells_bytes_documents_and_tokens_to_the_last(root: Path) -> None:
    for number in range(3):
        write_jsonl(root / f"raw/{number}.jsonl", some_texts(number, 2000))
    for workers in (1, 2):
        seen: list[Advance] = []
        spec = spec_of(root, ONE)
        manifest = build_corpus(spec, workers=workers, progress=seen.append)
        last = seen[-1]
        assert last.source_bytes == last.total_bytes == sum(source.size for source in manifest.sources)
        assert (last.documents, last.tokens) == tuple(
            manifest.domains[0].total(what) for what in ("documents", "tokens")
        )
        assert [each.tokens for each in seen] == sorted(each.tokens for each in seen)
        shutil.rmtree(root / "corpus")
    words = Pace().words(Advance(50_000_000, 1000, 2_000_000, 100_000_000))
    assert re.fullmatch(r"50 of 100 MB  [\d,.]+ MB/s  1,000 documents  2,000,000 tokens  \d+ s left", words)


def test_sources_name_the_documents_of_a_window(root: Path, build: Build) -> None:
    write_jsonl(root / "raw/a.jsonl", ["aaaa", "bb"])
    write_jsonl(root / "raw/b.jsonl", ["cccccc"])
    corpus = build(ONE)
    assert corpus.sources("d", 6, "concat", 0) == [("raw/a.jsonl", 1, 0, 5), ("raw/a.jsonl", 2, 0, 2)]
    assert corpus.sources("d", 6, "concat", 1) == [("raw/a.jsonl", 2, 1, 3), ("raw/b.jsonl", 1, 0, 5)]


def test_workers_order_and_place_change_no_byte(tmp_path: Path) -> None:
    """Files made in another order, under another root, by other numbers of workers."""
    names = ["a1", "a10", "a2", "B1", "\u00e9", "e\u0301"] + [f"f{number}" for number in range(6)]
    manifests, trees = [], []
    for number, (workers, order) in enumerate([(1, names), (2, names[::-1]), (3, sorted(names))]):
        root = tmp_path / f"root{number}"
        root.mkdir()
        save_byte_tokenizer(root / "tokenizer.json")
        for name in order:
            write_jsonl(root / f"raw/{name}.jsonl", [f"{name} {text}" for text in some_texts(len(name), 40)])
        manifests.append(build_corpus(spec_of(root, ONE), workers=workers))
        trees.append(tree_hash(root / "corpus"))
    assert len(set(trees)) == 1
    paths = [source.path for source in manifests[0].sources]
    assert paths == sorted(paths, key=str.encode)
    other = some_texts(99, 40)
    write_jsonl(tmp_path / "root0/raw/a1.jsonl", other)
    assert build_corpus(spec_of(tmp_path / "root0", ONE), workers=1).digest != manifests[0].digest


def test_digest_leaves_out_paths(root: Path) -> None:
    write_jsonl(root / "raw/a.jsonl", ["one", "two"])
    first = build_corpus(spec_of(root, ONE))
    (root / "raw/a.jsonl").rename(root / "raw/b.jsonl")
    assert build_corpus(spec_of(root, ONE)).digest == first.digest
    save_byte_tokenizer(root / "tokenizer.json", specials=("<|endoftext|>", "<|pad|>", "<|more|>"))
    assert build_corpus(spec_of(root, ONE)).digest != first.digest


def test_killed_build_leaves_nothing_half_and_goes_on(tmp_path: Path) -> None:
    def make(root: Path) -> Path:
        root.mkdir()
        save_byte_tokenizer(root / "tokenizer.json")
        for number in range(6):
            write_jsonl(root / f"raw/{number}.jsonl", some_texts(number, 400))
        toml = f'[corpus]\nout = "corpus"\n{ONE}'
        (root / "CORPUS.toml").write_text(toml, encoding="utf-8")
        return root

    whole = make(tmp_path / "whole")
    build_corpus(spec_of(whole, ONE), workers=1)
    root = make(tmp_path / "killed")
    command = [sys.executable, "-m", "headrace.client.cli.main", "corpus", "build", str(root / "CORPUS.toml")]
    program = "from headrace.client.cli.main import run; run()"
    command = [sys.executable, "-c", program, *command[3:], "--workers", "2"]
    for attempt in range(3):
        process = subprocess.Popen(command, start_new_session=True, stdout=subprocess.DEVNULL)
        time.sleep(0.5 + 0.25 * attempt)
        with_group = process.poll() is None
        if with_group:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        for marker in (root / "corpus").glob("store/*/[0-9]*"):
            assert (marker / "unit.json").is_file()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    assert tree_hash(root / "corpus") == tree_hash(whole / "corpus")
    assert not list((root / "corpus").rglob(".tmp-*"))


def test_second_build_takes_what_is_there(root: Path, build: Build) -> None:
    for number in range(3):
        write_jsonl(root / f"raw/{number}.jsonl", some_texts(number, 20))
    build(ONE)
    units = {path: path.stat().st_mtime_ns for path in (root / "corpus/store").rglob("*.arrow")}
    write_jsonl(root / "raw/1.jsonl", some_texts(77, 20))
    assert [task.name for task in plan_build(spec_of(root, ONE)).missing()] == ["raw/1.jsonl"]
    build(ONE)
    assert all(path.stat().st_mtime_ns == when for path, when in units.items())


def test_shares_of_an_array_job_add_up(root: Path) -> None:
    for number in range(5):
        write_jsonl(root / f"raw/{number}.jsonl", some_texts(number, 20))
    spec = spec_of(root, ONE)
    assert [build_share(spec, share=share, shares=3, workers=1) for share in range(3)] == [2, 2, 1]
    assert not spec.manifest_path.exists()
    assert plan_build(spec).missing() == []
    shares = tree_hash(root / "corpus/store")
    shutil.rmtree(root / "corpus")
    build_corpus(spec, workers=1)
    assert tree_hash(root / "corpus/store") == shares


def test_build_from_a_thread_twice_changes_no_global(root: Path) -> None:
    for number in range(3):
        write_jsonl(root / f"raw/{number}.jsonl", some_texts(number, 20))
    digests: list[str] = []
    before = dict(os.environ)
    for _ in range(2):
        thread = threading.Thread(target=lambda: digests.append(build_corpus(spec_of(root, ONE), workers=2).digest))
        thread.start()
        thread.join()
    assert len(digests) == 2
    assert len(set(digests)) == 1
    assert dict(os.environ) == before


def test_name_from_fields_and_exact_match(root: Path, build: Build) -> None:
    records = [{"text": f"{s} {n} {i}", "meta": {"source": s}, "lang": n} for i in range(9) for s in "ab" for n in "xy"]
    write_jsonl(root / "raw/m.jsonl", records)
    corpus = build('[[domain]]\nname = "{meta.source}-{lang}"\nfiles = ["raw/m.jsonl"]\n')
    assert corpus.domains == ("a-x", "a-y", "b-x", "b-y")
    assert texts_of(corpus, "b-x") == [f"b x {i}" for i in range(9)]


def test_domains_of_a_tree_match_exactly(cases: Path, root: Path, build: Build) -> None:
    shutil.copytree(cases / "MX-17" / "tree", root / "tree")
    names = ["code", "code_py", "co", "CODE"]
    corpus = build("".join(f'[[domain]]\nname = "{name}"\nfiles = ["tree/{name}/*.jsonl"]\n' for name in names))
    assert {name: corpus.documents(name) for name in names} == {"code": 3, "code_py": 5, "co": 7, "CODE": 2}
    with pytest.raises(ConfigError, match="`code ` cannot be a `name`"):
        spec_of(root, '[[domain]]\nname = "code "\nfiles = ["tree/code /*.jsonl"]\n')


def test_files_of_other_kinds_in_a_domain_are_refused_with_what_to_do(root: Path, build: Build) -> None:
    write_jsonl(root / "raw/m.jsonl", [{"text": "a", "license": "mit"}])
    (root / "raw/m.txt").write_text("a\n")
    (root / "raw/m.py").write_text("a\n")
    with pytest.raises(ConfigError, match=r"`raw/m.txt`: no row has the field `license`.*a domain of their own"):
        build('[[domain]]\nname = "m"\nfiles = ["raw/m.jsonl", "raw/m.txt"]\nkeep = ["license"]\n')
    with pytest.raises(ConfigError, match=r'no format is known for `raw/m.py`.*`format = "text"`'):
        build('[[domain]]\nname = "m"\nfiles = ["raw/m.*"]\n')


def test_where_filters_on_fields_and_tokens(root: Path, build: Build) -> None:
    records = [{"text": "x" * n, "q": n / 10, "lang": "de" if n % 2 else None} for n in range(1, 41)]
    write_jsonl(root / "raw/a.jsonl", records)
    files = 'files = ["raw/a.jsonl"]'
    corpus = build(
        f'[[domain]]\nname = "short"\n{files}\nwhere = "tokens < 20 and lang == \'de\'"\n'
        f'[[domain]]\nname = "long"\n{files}\nwhere = "tokens >= 20"\n'
    )
    assert [len(text) for text in texts_of(corpus, "short")] == [n for n in range(1, 20) if n % 2]
    assert [len(text) for text in texts_of(corpus, "long")] == list(range(20, 41))
    assert [source.rejected for source in corpus.manifest.sources] == [{"where": 30}, {"where": 19}]


def test_one_file_in_two_domains_is_refused_unless_both_filter(root: Path, build: Build) -> None:
    write_jsonl(root / "raw/a.jsonl", ["one"])
    with pytest.raises(ConfigError, match="named twice"):
        build(ONE + '[[domain]]\nname = "e"\nfiles = ["raw/a.jsonl"]\n')


def test_holdout_goes_by_text_and_stays_when_the_corpus_grows(root: Path, build: Build) -> None:
    texts = some_texts(5, 2000, longest=12)
    write_jsonl(root / "raw/a.jsonl", texts)
    toml = ONE + "holdout = 0.05\n"
    corpus = build(toml)
    held = texts_of(corpus.for_kind("eval"), "d")
    source = corpus.manifest.sources[0]
    assert source.read == source.packed + source.held_out == 2000
    assert 50 < len(held) == source.held_out < 150
    assert not set(held) & set(texts_of(corpus, "d"))
    assert sorted(held + texts_of(corpus, "d")) == sorted(texts)
    assert corpus.digest != corpus.for_kind("eval").digest
    write_jsonl(root / "raw/b.jsonl", some_texts(6, 500, longest=12))
    assert texts_of(build(toml).for_kind("eval"), "d")[: len(held)] == held


def test_duplicates_are_counted_and_dropped_when_asked(root: Path, build: Build) -> None:
    write_jsonl(root / "raw/a.jsonl", ["one", "two", "one"])
    write_jsonl(root / "raw/b.jsonl", ["two", "three", "two", "four"])
    write_jsonl(root / "raw/c.jsonl", ["one", "two"])
    kept = build(ONE)
    assert kept.documents("d") == 9
    assert kept.manifest.domains[0].duplicates == 5
    assert kept.manifest.sources[0].rejected == {}
    dropped = build(ONE + 'duplicates = "drop"\n')
    assert texts_of(dropped, "d") == ["one", "two", "three", "four"]
    assert [source.rejected for source in dropped.manifest.sources] == [{"duplicate": n} for n in (1, 2, 2)]
    assert dropped.sources("d", 64, "concat", 0)[2] == ("raw/b.jsonl", 2, 0, 6)


def test_special_text_stays_text(cases: Path, root: Path, build: Build) -> None:
    (root / "raw").mkdir()
    shutil.copy(cases / "PK-10" / "specials.jsonl", root / "raw")
    texts = [json.loads(line)["text"] for line in (root / "raw/specials.jsonl").read_text().splitlines()]
    corpus = build(ONE, corpus="eos = false")
    tokens = tokens_of(corpus, "d")
    assert min(tokens) >= FIRST
    assert bytes(each - FIRST for each in tokens).decode() == "".join(texts)
    assert corpus.manifest.sources[0].notes["special_text"] > 0


def test_real_ids_tell_padding_not_the_id(cases: Path, root: Path, build: Build) -> None:
    (root / "raw").mkdir()
    shutil.copy(cases / "PK-05" / "zeros.jsonl", root / "raw")
    texts = [json.loads(line)["text"] for line in (root / "raw/zeros.jsonl").read_text().splitlines()]
    for specials in (("<|pad|>", "<|endoftext|>"), (*(f"<|{n}|>" for n in range(7)), "<|pad|>")):
        save_byte_tokenizer(root / "tokenizer.json", specials=specials)
        corpus = build(ONE, corpus="eos = false")
        assert corpus.pad_id == specials.index("<|pad|>")
        raw = bytes(each - len(specials) for each in tokens_of(corpus, "d"))
        assert raw.decode() == "".join(texts)


@pytest.mark.parametrize(("size", "wide"), [(65_535, 2), (65_536, 2), (65_537, 4), (100_000, 4)])
def test_width_follows_the_largest_id(root: Path, build: Build, size: int, wide: int) -> None:
    extra = min(size - 258, 60_000)
    specials = ("<|endoftext|>", "<|pad|>", *(f"<|{n}|>" for n in range(size - 258 - extra)))
    save_byte_tokenizer(root / "tokenizer.json", specials=specials, extra=extra)
    write_jsonl(root / "raw/a.jsonl", ["zz", "azz"])
    corpus = build(ONE)
    assert tokens_of(corpus, "d")[:2] == [size - 1, EOS]
    assert corpus.vocab_size == size
    assert corpus.id_bytes == wide
    if wide == 4:
        with pytest.raises(ConfigError, match=f"cannot hold id {size - 1}"):
            build(ONE, corpus="id_bytes = 2")
    else:
        assert build(ONE, corpus="id_bytes = 4").id_bytes == 4


def test_tiny_domain_is_padded_and_harms_no_other(cases: Path, root: Path, build: Build) -> None:
    shutil.copytree(cases / "MX-10", root / "raw")
    corpus = build("".join(f'[[domain]]\nname = "{name}"\nfiles = ["raw/{name}/*"]\n' for name in ("tiny", "big")))
    view = corpus.view("tiny", 2048, "concat")
    assert view.windows == 1
    rows = corpus.read(2048, "concat", ["tiny"], np.zeros(1, np.uint32), np.zeros(1, np.uint64))
    assert int(rows.real_ids[0]) == corpus.tokens("tiny") == view.real_tokens
    dropped = build(
        "".join(f'[[domain]]\nname = "{name}"\nfiles = ["raw/{name}/*"]\n' for name in ("tiny", "big")),
        corpus='tail = "drop"',
    )
    assert dropped.view("tiny", 2048, "concat").windows == 0
    assert dropped.view("big", 64, "concat").windows == dropped.tokens("big") // 64
    assert dropped.digest != corpus.digest


def test_no_window_is_padding_alone(root: Path, build: Build) -> None:
    for texts in (["x" * 9] * 3, ["x" * 15, "", "x" * 15]):
        write_jsonl(root / "raw/a.jsonl", texts)
        corpus = build(ONE)
        count = corpus.view("d", 16, "concat").windows
        rows = corpus.read(16, "concat", ["d"], np.zeros(count, np.uint32), np.arange(count, dtype=np.uint64))
        assert rows.real_ids.min() > 0


def test_document_longer_than_a_batch_is_whole(cases: Path, root: Path, build: Build) -> None:
    shutil.copytree(cases / "PK-07", root / "raw")
    texts = [json.loads(line)["text"] for line in (root / "raw/docs.jsonl").read_text().splitlines()]
    write_jsonl(root / "raw/long.jsonl", ["y" * 700_000, "z"])
    assert texts_of(build(ONE), "d") == [*texts, "y" * 700_000, "z"]
    assert len(list((root / "corpus/store").rglob("*.arrow"))) == 2


def test_books_balance_with_every_reason(root: Path, build: Build) -> None:
    lines = ['{"text": "good"}', '{"text": null}', '{"text": ""}', "{", '{"text": "\\ud800"}', '{"other": 1}']
    (root / "raw").mkdir()
    (root / "raw/a.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    source = build(ONE + 'on_bad = "skip"\n').manifest.sources[0]
    assert (source.read, source.packed) == (6, 1)
    assert sum(source.rejected.values()) == 5
    with pytest.raises(ConfigError, match=r"5 of 6 documents are rejected .*max_rejected = 0.5"):
        build(ONE + 'on_bad = "skip"\nmax_rejected = 0.5\n')
    with pytest.raises(HeadraceError, match=r"raw/a.jsonl:2: field `text` is null"):
        build(ONE)


def test_domain_without_documents_is_an_error(root: Path, build: Build) -> None:
    write_jsonl(root / "raw/a.jsonl", ["", ""])
    with pytest.raises(
        ConfigError, match=r"domain `d` is empty: 2 documents read from `raw/a.jsonl` \(26 bytes\), rejected: empty 2"
    ):
        build(ONE)
    with pytest.raises(ConfigError, match=r"no file matches `none/\*`"):
        build('[[domain]]\nname = "e"\nfiles = ["none/*"]\n')


@pytest.mark.parametrize("workers", [1, 2])
def test_damaged_file_stops_or_is_left_out_and_listed(root: Path, build: Build, workers: int) -> None:
    write_jsonl(root / "raw/a.jsonl", ["one"])
    (root / "raw/b.parquet").write_bytes(b"PAR1 this is not a table PAR1")
    toml = '[[domain]]\nname = "d"\nfiles = ["raw/*"]\n'
    with pytest.raises(HeadraceError, match=r"`raw/b.parquet` is damaged"):
        build(toml, workers=workers)
    corpus = build(toml + 'on_damaged = "skip"\n', workers=workers)
    assert list(corpus.manifest.damaged) == ["raw/b.parquet"]
    assert texts_of(corpus, "d") == ["one"]


def test_foreign_files_and_sources_are_never_touched(root: Path, build: Build) -> None:
    write_jsonl(root / "raw/a.jsonl", ["one"])
    (root / "corpus").mkdir()
    (root / "corpus/foreign.txt").write_text("mine")
    before = tree_hash(root / "raw")
    build(ONE)
    write_jsonl(root / "raw/a.jsonl", ["one"])
    assert (root / "corpus/foreign.txt").read_text() == "mine"
    assert tree_hash(root / "raw") == before
    with pytest.raises(ConfigError, match="lies in the output folder"):
        build('[[domain]]\nname = "e"\nfiles = ["corpus/foreign.txt"]\n')


def test_manifest_round_trip_and_damage(root: Path, build: Build) -> None:
    write_jsonl(root / "raw/a.jsonl", some_texts(1, 50))
    path = root / "corpus/manifest.json"
    manifest = build(ONE + "holdout = 0.2\n").manifest
    assert Manifest.load(path) == manifest
    text = path.read_text(encoding="utf-8")
    for damaged in (text[: len(text) // 2], text.replace('"tail": "pad"', '"tail": "drop"'), "[]"):
        path.write_text(damaged, encoding="utf-8")
        with pytest.raises(HeadraceError, match=str(path)):
            Manifest.load(path)
    path.unlink()
    with pytest.raises(NotFoundError, match="headrace corpus build"):
        Corpus.open(root / "corpus")


def test_addresses_are_listed_and_read_like_paths(root: Path, build: Build) -> None:
    for name in ("deep/a/1.jsonl", "deep/b/2.jsonl", "deep/3.jsonl", "deep/b/4.txt"):
        write_jsonl(root / "raw" / name, [name])
    address = f"file://{root}/raw/deep"
    corpus = build(f'[[domain]]\nname = "d"\nfiles = ["{address}/**/*.jsonl"]\n')
    assert texts_of(corpus, "d") == ["deep/3.jsonl", "deep/a/1.jsonl", "deep/b/2.jsonl"]
    assert corpus.manifest.sources[0].path == f"{address}/3.jsonl"
    assert texts_of(build(f'[[domain]]\nname = "d"\nfiles = ["{address}/?/[12].*"]\n'), "d") == [
        "deep/a/1.jsonl",
        "deep/b/2.jsonl",
    ]
    with pytest.raises(ConfigError, match="no file matches"):
        build(f'[[domain]]\nname = "d"\nfiles = ["{address}/*.none"]\n')


def test_only_the_recipe_that_makes_a_missing_manifest_is_taken(root: Path) -> None:
    write_jsonl(root / "raw/a.jsonl", ["one"])
    (root / "CORPUS.toml").write_text(f'[corpus]\nout = "corpus"\n{ONE}', encoding="utf-8")
    elsewhere = root / "runs"
    for path in (root / "corpus/manifest.json", root / "corpus", root / "CORPUS.toml"):
        found = missing_spec(path, elsewhere)
        assert found is not None
        assert found.manifest_path == root / "corpus/manifest.json"
    assert missing_spec(root / "other/manifest.json", root) is None
    spec = missing_spec(root / "corpus", elsewhere)
    assert spec is not None
    told: list[str] = []
    make_ready(spec, progress=lambda advance: told.append("built"), waiting=lambda: None)
    assert told
    assert missing_spec(root / "CORPUS.toml", elsewhere) is None


@pytest.mark.parametrize("workers", [1, 2])
def test_build_is_stopped_by_its_progress(root: Path, workers: int) -> None:
    for number in range(3):
        write_jsonl(root / f"raw/{number}.jsonl", some_texts(number, 20))

    def stop(advance: Advance) -> None:
        if advance.documents:
            raise HeadraceError("enough")

    with pytest.raises(HeadraceError, match="enough"):
        build_corpus(spec_of(root, ONE), workers=workers, progress=stop)
    assert not spec_of(root, ONE).manifest_path.exists()
    build_corpus(spec_of(root, ONE), workers=workers)
