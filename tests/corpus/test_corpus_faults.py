"""Faults at random points of builds, sources and shards; HEADRACE_SLOW=1 makes as many of them as a nightly run should.

Every test takes its points from a seed that stands in the failure's parameters, so a failure can be made again.
"""

from __future__ import annotations

import gzip
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard
from headrace.proto.errors import DataLossError, HeadraceError
from headrace.server.corpus.build import build_corpus, plan_build
from headrace.server.corpus.manifest import Corpus
from headrace.server.corpus.spec import CorpusSpec
from headrace.server.corpus.verify import verify_sources
from hypothesis import given, settings
from hypothesis import strategies as st
from small_corpus import ONE, ids_of, read, save_byte_tokenizer, some_texts, spec_of, texts_of, tree_hash, write_jsonl

SLOW = bool(os.environ.get("HEADRACE_SLOW"))
pytestmark = pytest.mark.timeout(1800 if SLOW else 180)
Build = Callable[..., Corpus]
COMMAND = [sys.executable, "-c", "from headrace.client.cli.main import run; run()", "corpus", "build"]


def _lines(texts: list[str]) -> bytes:
    return "".join(json.dumps({"text": text}) + "\n" for text in texts).encode()


def _table(texts: list[str], write: Callable[[pa.Table, Any], None]) -> bytes:
    sink = pa.BufferOutputStream()
    write(pa.table({"text": texts}), sink)
    return sink.getvalue().to_pybytes()


def _write_ipc(table: pa.Table, sink: Any) -> None:
    with pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)


PACKERS: dict[str, Callable[[list[str]], bytes]] = {
    "jsonl": _lines,
    "jsonl.gz": lambda texts: gzip.compress(_lines(texts)),
    "jsonl.zst": lambda texts: zstandard.ZstdCompressor(write_checksum=False).compress(_lines(texts)),
    "txt": lambda texts: "\n".join(texts).encode(),
    "parquet": lambda texts: _table(texts, pq.write_table),
    "arrow": lambda texts: _table(texts, _write_ipc),
}


@pytest.mark.parametrize("kind", list(PACKERS))
def test_every_flipped_bit_of_a_source_is_told_by_its_hash(root: Path, kind: str) -> None:
    """Also where the format has no checksum, and a unit that was made of the whole file is not taken for the other."""
    path = root / f"raw/a.{kind}"
    path.parent.mkdir()
    whole = PACKERS[kind](some_texts(3, 300))
    path.write_bytes(whole)
    spec = spec_of(root, f'[[domain]]\nname = "d"\nfiles = ["raw/a.{kind}"]\n')
    manifest = build_corpus(spec, workers=1)
    rng = random.Random(kind)
    for _ in range(200 if SLOW else 25):
        at, bit = rng.randrange(len(whole)), 1 << rng.randrange(8)
        path.write_bytes(whole[:at] + bytes([whole[at] ^ bit]) + whole[at + 1 :])
        assert [check.name for check in verify_sources(manifest, root) if check.problem] == [f"raw/a.{kind}"], at
        with suppress(HeadraceError):  # a table may be too damaged to be looked at
            assert len(plan_build(spec).missing()) == 1, at
    path.write_bytes(whole)
    assert plan_build(spec).missing() == []


@pytest.mark.parametrize("suffix", ["", ".index"])
def test_shard_cut_at_any_length_is_never_opened(root: Path, build: Build, suffix: str) -> None:
    write_jsonl(root / "raw/a.jsonl", some_texts(4, 400))
    build(ONE)
    path = next((root / "corpus").rglob(f"d.arrow{suffix}"))
    whole = path.read_bytes()
    for number in range(200 if SLOW else 50):
        path.write_bytes(whole[: len(whole) - 1 if number == 0 else random.Random(number).randrange(len(whole))])
        with pytest.raises(DataLossError, match=r"d\.arrow"):
            Corpus.open(root / "corpus")
    path.write_bytes(whole)
    assert texts_of(Corpus.open(root / "corpus"), "d") == some_texts(4, 400)


@pytest.mark.skipif(not SLOW, reason="HEADRACE_SLOW=1 kills 40 builds; three are killed in test_build")
@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("seed", range(4))
def test_builds_killed_at_random_moments_give_the_same_bytes(tmp_path: Path, workers: int, seed: int) -> None:
    def make(root: Path) -> Path:
        root.mkdir()
        save_byte_tokenizer(root / "tokenizer.json")
        for number in range(12):
            write_jsonl(root / f"raw/{number}.jsonl", some_texts(number, 6000))
        toml = f'[corpus]\nout = "corpus"\n{ONE}duplicates = "drop"\nholdout = 0.01\n'
        (root / "CORPUS.toml").write_text(toml, encoding="utf-8")
        return root

    whole = make(tmp_path / "whole")
    began = time.monotonic()
    command = [*COMMAND, "--workers", str(workers)]
    subprocess.run([*command, str(whole / "CORPUS.toml")], check=True, stdout=subprocess.DEVNULL)
    took = time.monotonic() - began
    right = tree_hash(whole / "corpus")
    rng = random.Random(10 * seed + workers)
    killed = 0
    for trial in range(5):
        root = make(tmp_path / f"killed{trial}")
        process = subprocess.Popen(
            [*command, str(root / "CORPUS.toml")], start_new_session=True, stdout=subprocess.DEVNULL
        )
        time.sleep(rng.uniform(0.2, took))
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        killed += process.wait() == -signal.SIGKILL
        for folder in (root / "corpus").glob("store/*/[0-9]*-*"):
            assert (folder / "unit.json").is_file(), trial
        subprocess.run([*command, str(root / "CORPUS.toml")], check=True, stdout=subprocess.DEVNULL)
        assert tree_hash(root / "corpus") == right, trial
        assert not list((root / "corpus").rglob(".tmp-*")), trial
        shutil.rmtree(root)
    assert killed


@contextmanager
def small_disk(folder: Path, size: int) -> Iterator[Callable[[str], None]]:
    """A file system of so many bytes at `folder`; calls with options mount it anew. Skips where that is not allowed."""
    folder.mkdir()

    def mount(options: str) -> bool:
        done = subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)], capture_output=True)
        return done.returncode == 0

    if shutil.which("mount") is None or os.geteuid() or not mount(f"size={size}"):
        pytest.skip("mounting a small file system takes root")
    try:
        yield lambda options: None if mount(f"remount,{options}") else pytest.fail(f"cannot remount with {options}")
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def test_full_disk_is_an_error_and_what_was_built_before_stays(root: Path) -> None:
    for number in range(4):
        write_jsonl(root / f"raw/{number}.jsonl", some_texts(number, 1500))
    spec = spec_of(root, ONE)
    build_corpus(spec, workers=1)
    right, total = tree_hash(root / "corpus"), sum(path.stat().st_size for path in (root / "corpus").rglob("*"))
    shutil.rmtree(root / "corpus")
    rng = random.Random(9)
    for trial in range(40 if SLOW else 3):
        size = rng.randrange(4096, total * 9 // 10)
        with small_disk(root / "corpus", size) as remount:
            with pytest.raises(HeadraceError, match="No space left on device"):
                build_corpus(spec, workers=1 + trial % 2)
            assert not spec.manifest_path.exists(), (trial, size)
            assert not list((root / "corpus").rglob(".tmp-*")), (trial, size)
            remount("size=64m")
            build_corpus(spec, workers=1)
            assert tree_hash(root / "corpus") == right, (trial, size)
        (root / "corpus").rmdir()


def test_read_only_store_is_served_and_not_written(root: Path, tmp_path: Path) -> None:
    write_jsonl(root / "raw/a.jsonl", some_texts(1, 300))
    spec = spec_of(root, ONE)
    with small_disk(root / "corpus", 64 << 20) as remount:
        build_corpus(spec, workers=1)
        remount("ro,size=64m")
        corpus = Corpus.open(root / "corpus")
        view = corpus.view("d", 64, "best_fit")  # its table cannot be kept, and is counted again
        assert view.real_tokens == corpus.tokens("d")
        assert texts_of(corpus, "d") == some_texts(1, 300)
        write_jsonl(root / "raw/b.jsonl", some_texts(2, 3))
        with pytest.raises(HeadraceError, match=r"cannot write below `.*corpus.*Read-only file system"):
            build_corpus(spec, workers=1)
        remount("rw,size=64m")
        build_corpus(spec, workers=1)
        Corpus.open(root / "corpus").view("d", 64, "best_fit")
        shutil.rmtree(root / "corpus/views")
        assert Corpus.open(root / "corpus").view("d", 64, "best_fit").real_tokens > view.real_tokens
        assert list((root / "corpus/views").iterdir())


_ODD: list[tuple[bytes, str | None]] = [
    (b'{"text": "good"}', None),
    (b'{"text": "nul \\u0000 and \xe2\x80\xa8 and \\r\\n"}', None),
    (b'{"text": " "}', None),
    (b'{"text": "\xff"}', "invalid_utf8"),
    (b'{"text": "\xc0\xaf overlong"}', "invalid_utf8"),
    (b'{"text": "\xed\xa0\x80 encoded surrogate"}', "invalid_utf8"),
    (b'{"text": "lone \\ud800"}', "lone_surrogate"),
    (b'{"text": ""}', "empty"),
    (b'{"text": null}', "null"),
    (b'{"text": 7}', "wrong_type"),
    (b'{"text": ["a"]}', "wrong_type"),
    (b'{"other": "a"}', "missing_field"),
    (b'{"text": "a", "text": "b"}', "field_twice"),
    (b'["text"]', "not_object"),
    (b'{"text": "cut', "bad_json"),
]
_MENDED = ("invalid_utf8", "lone_surrogate")


@pytest.mark.parametrize("policy", ["skip", "replace"])
def test_sixty_files_of_odd_documents_are_counted_to_the_document(root: Path, build: Build, policy: str) -> None:
    rng = random.Random(policy)
    (root / "raw").mkdir()
    wanted: list[Counter[str]] = []
    for number in range(60):
        chosen = [_ODD[0], *rng.choices(_ODD, k=rng.randrange(60))]
        rng.shuffle(chosen)
        body = rng.choice([b"\n", b"\r\n"]).join(line for line, _ in chosen) + rng.choice([b"", b"\n", b"\n\n"])
        (root / f"raw/{number:02}.jsonl").write_bytes(rng.choice([b"", b"\xef\xbb\xbf"]) + body)
        wanted.append(Counter(reason or "packed" for _, reason in chosen))
    manifest = build(ONE + f'on_bad = "{policy}"\n').manifest
    for source, counts in zip(manifest.sources, wanted, strict=True):
        mended = {reason: counts[reason] for reason in _MENDED if counts[reason] and policy == "replace"}
        assert source.read == counts.total(), source.path
        assert source.replaced == mended, source.path
        assert source.packed == counts["packed"] + sum(mended.values()), source.path
        assert Counter(source.rejected) == counts - Counter(mended) - Counter(packed=counts["packed"]), source.path


@pytest.mark.parametrize("unit", ["^", "a", " ", "\n", "\u4e2d", "\u200d", "ab ", "\u0301"])
def test_hostile_text_is_built_in_time_and_comes_back(root: Path, build: Build, unit: str) -> None:
    count = 10**6 if SLOW else 10**5
    write_jsonl(root / "raw/a.jsonl", [unit * count, "end"])
    began = time.process_time()
    corpus = build(ONE)
    used = time.process_time() - began
    assert used < 2 + 2 * count * len(unit.encode()) / 1e6
    assert texts_of(corpus, "d") == [unit * count, "end"]


@settings(max_examples=4000 if SLOW else 60, deadline=None)
@given(st.lists(st.one_of(st.binary(max_size=40), st.sampled_from([line for line, _ in _ODD])), max_size=8))
def test_any_bytes_are_read_or_refused(lines: list[bytes]) -> None:
    """JSON Lines and text, by every policy; the books balance whatever stands there."""
    path = Path(os.environ.get("TMPDIR", "/tmp")) / f"headrace-any-{os.getpid()}.jsonl"
    path.write_bytes(b"\n".join(lines))
    try:
        for policy in ("error", "skip", "replace"):
            for options in ({}, {"format": "text"}, {"format": "text", "document": "file"}):
                with suppress(HeadraceError):
                    read(path, on_bad=policy, **options)
    finally:
        path.unlink()


def test_any_damage_to_an_index_or_a_shard_is_an_error_of_ours(root: Path, build: Build) -> None:
    write_jsonl(root / "raw/a.jsonl", some_texts(4, 50))
    right = ids_of(build(ONE), "d", 64).tobytes()
    paths = sorted((root / "corpus").rglob("d.arrow*"))
    for number in range(3000 if SLOW else 100):
        rng = random.Random(number)
        path = rng.choice(paths)
        whole = path.read_bytes()
        at, length = rng.randrange(len(whole)), rng.randrange(64)
        path.write_bytes(whole[:at] + rng.randbytes(length) + whole[at + rng.choice([0, length]) :])
        with suppress(DataLossError):
            assert ids_of(Corpus.open(root / "corpus"), "d", 64).tobytes() == right, number
        path.write_bytes(whole)


def peak_of(program: str, *arguments: str | Path) -> tuple[str, float]:
    """What a program prints, and the most memory that it takes beyond its imports, in bytes."""
    watched = (
        "import resource, sys\nfrom pathlib import Path\nfrom headrace.server.corpus.build import build_corpus\n"
        "from headrace.server.corpus.spec import CorpusSpec\nimport pyarrow.parquet\n"
        "peak = lambda: 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\nbefore = peak()\n"
        f"{program}\nprint(peak() - before)\n"
    )
    done = subprocess.run([sys.executable, "-c", watched, *map(str, arguments)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    said = done.stdout.split()
    return said[0], float(said[-1])


BUILD = "print(build_corpus(CorpusSpec.from_file(sys.argv[1]), workers=1).domains[0].total('documents'))"


def write_spec(root: Path, files: str, more: str = "") -> Path:
    path = root / "CORPUS.toml"
    path.write_text(f'[corpus]\nout = "corpus"\n[[domain]]\nname = "d"\nfiles = ["{files}"]\n{more}', encoding="utf-8")
    return path


@pytest.mark.skipif(not SLOW, reason="HEADRACE_SLOW=1 reads a line of 300 MB; one of 20 MB is read in test_readers")
def test_memory_for_a_long_line_is_a_small_multiple_of_it(root: Path) -> None:
    size = 300
    line = "one word after another, " * (size * 1_000_000 // 24)
    write_jsonl(root / "raw/a.jsonl", ["ab" * 5, line, "cd" * 5])
    documents, peak = peak_of(BUILD, write_spec(root, "raw/a.jsonl"))
    assert documents == "3"
    # The byte tokenizer gives an id a byte: the text, and ids of 2 bytes.
    assert peak < 3 * size * 1e6 + 100e6, f"{peak / 1e6:.0f} MB for a line of {size} MB"


def write_rows(path: Path, rows: int, size: int, columns: int = 0) -> None:
    """A Parquet file of one row group of rows of `size` characters, and further columns of as much."""
    path.parent.mkdir(exist_ok=True)
    schema = pa.schema([("text", pa.string()), *((f"c{number}", pa.string()) for number in range(columns))])
    texts = (f"{number} " * (size // len(f"{number} ") + 1) for number in range(rows))
    with pq.ParquetWriter(path, schema, compression="zstd", use_dictionary=False) as writer:
        table = pa.table({"text": list(texts), **{f"c{number}": ["y" * 50] * rows for number in range(columns)}})
        writer.write_table(table.cast(schema), row_group_size=1 << 62)


@pytest.mark.skipif(not SLOW, reason="HEADRACE_SLOW=1 reads a row group of 2.2 GB")
def test_memory_for_a_row_group_does_not_grow_with_it(root: Path) -> None:
    rows, size = 22_000, 100_000
    program = f"from test_corpus_faults import write_rows; write_rows(Path(sys.argv[1]), {rows}, {size})"
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parent)}
    subprocess.run(
        [sys.executable, "-c", f"import sys\nfrom pathlib import Path\n{program}", str(root / "raw/a.parquet")],
        check=True,
        env=environment,
    )
    documents, peak = peak_of(BUILD, write_spec(root, "raw/a.parquet"))
    assert documents == str(rows)
    assert peak < 500e6, f"{peak / 1e6:.0f} MB for a row group of {rows * size / 1e6:.0f} MB"


def test_only_the_column_that_is_needed_is_read(root: Path) -> None:
    write_rows(root / "raw/wide.parquet", 2000, 100, columns=1000 if SLOW else 50)
    documents, peak = peak_of(BUILD, write_spec(root, "raw/wide.parquet"))
    assert documents == "2000"
    assert peak < 100e6, f"{peak / 1e6:.0f} MB"


@pytest.mark.skipif(not SLOW, reason="HEADRACE_SLOW=1 builds 2000 files")
def test_memory_is_flat_over_many_files(root: Path) -> None:
    table = pa.table({"text": ["one row"]})
    peaks = []
    for count in (200, 2000):
        for number in range(count):
            (root / "raw").mkdir(exist_ok=True)
            pq.write_table(table, root / f"raw/{number}.parquet")
        documents, peak = peak_of(BUILD, write_spec(root, "raw/*.parquet"))
        assert documents == str(count)
        peaks.append(peak)
    assert peaks[1] < peaks[0] + 30e6, peaks


@pytest.mark.skipif(not SLOW, reason="HEADRACE_SLOW=1 builds a corpus of 10^8 windows")
def test_opening_a_hundred_million_windows_is_quick_and_small(root: Path) -> None:
    seq_len, windows = 16, 10**8
    texts = ["one word after another, " * 40 for _ in range(20_000)]
    write_jsonl(root / "raw/a.jsonl", texts)
    tokens = sum(len(text) + 1 for text in texts)
    (root / "many").mkdir()
    for number in range(-(-windows * seq_len // tokens)):
        (root / f"many/{number:06}.jsonl").hardlink_to(root / "raw/a.jsonl")
    build_corpus(CorpusSpec.from_file(write_spec(root, "many/*.jsonl")), workers=1)
    program = (
        "import time, numpy as np\nfrom headrace.server.corpus.manifest import Corpus\n"
        "before, began = peak(), time.perf_counter()\n"
        f"corpus = Corpus.open(sys.argv[1]); n = corpus.view('d', {seq_len}, 'concat').windows\n"
        f"corpus.read({seq_len}, 'concat', ['d'], np.zeros(1, np.uint32), np.array([n - 1], np.uint64))\n"
        "print(time.perf_counter() - began, n)"
    )
    seconds, peak = peak_of(program, root / "corpus")
    assert float(seconds) < 1
    assert peak < 200e6
