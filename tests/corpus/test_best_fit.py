"""best_fit: equal to a plain Python packer, every token an input once, sizes known before anything is read."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from headrace.server.corpus.manifest import Corpus
from headrace.server.corpus.shard import BATCH_DOCUMENTS, BATCH_TOKENS
from small_corpus import EOS, ONE, PAD, some_texts, stream, write_jsonl

Build = Callable[..., Corpus]


def batches(files: list[list[list[int]]]) -> list[list[list[int]]]:
    """Documents in record batches, as the store cuts them."""
    found = []
    for documents in files:
        held: list[list[int]] = []
        for document in documents:
            held.append(document)
            if len(held) >= BATCH_DOCUMENTS or sum(map(len, held)) >= BATCH_TOKENS:
                found.append(held)
                held = []
        if held:
            found.append(held)
    return found


def groups(files: list[list[list[int]]], seq_len: int) -> list[list[list[int]]]:
    found: list[list[list[int]]] = []
    held: list[list[int]] = []
    for batch in batches(files):
        held += batch
        if sum(map(len, held)) >= 64 * seq_len:
            found.append(held)
            held = []
    return [*found, held] if held else found


def pack(documents: list[list[int]], seq_len: int) -> list[list[list[int]]]:
    """Windows of a group; each a list of parts (token ids), cut ones with the id after their last input."""
    windows: list[list[list[int]]] = []
    rest = []
    for number, document in enumerate(documents):
        cuts = (len(document) - 1) // seq_len
        windows += [[document[cut * seq_len : cut * seq_len + seq_len + 1]] for cut in range(cuts)]
        rest.append((number, document[cuts * seq_len :]))
    bins: list[list[tuple[int, list[int]]]] = []
    for number, part in sorted(rest, key=lambda item: (-len(item[1]), item[0])):
        room = [seq_len - sum(len(each) for _, each in bin_) for bin_ in bins]
        fitting = [(left, at) for at, left in enumerate(room) if left >= len(part)]
        if fitting:
            bins[min(fitting)[1]].append((number, part))
        else:
            bins.append([(number, part)])
    return windows + [[part for _, part in sorted(bin_)] for bin_ in bins]


@pytest.mark.parametrize("seq_len", [16, 64, 200, 5000])
def test_windows_equal_those_of_the_plain_packer(root: Path, build: Build, seq_len: int) -> None:
    files = [some_texts(seed, count, longest=120) for seed, count in enumerate((400, 3, 1, 250, 2))]
    for number, texts in enumerate(files):
        write_jsonl(root / f"raw/{number}.jsonl", texts)
    corpus = build(ONE)
    documents = [[stream([text]) for text in texts] for texts in files]
    windows = [window for group in groups(documents, seq_len) for window in pack(group, seq_len)]
    view = corpus.view("d", seq_len, "best_fit")
    assert view.windows == len(windows)
    assert view.real_tokens == sum(len(document) for part in documents for document in part)
    order = random.Random(seq_len).sample(range(len(windows)), len(windows))
    chosen = np.array(order, np.uint64)
    rows = corpus.read(seq_len, "best_fit", ["d"], np.zeros(len(chosen), np.uint32), chosen)
    ids = np.frombuffer(rows.ids, np.uint16).reshape(-1, seq_len + 1)
    begin = 0
    for row, number in enumerate(order):
        parts = windows[number]
        real = [each for part in parts for each in part]
        assert ids[row].tolist() == real + [PAD] * (seq_len + 1 - len(real))
        assert rows.real_ids[row] == len(real)
        end = int(rows.edge_ends[row])
        assert rows.edges[begin:end].tolist() == np.cumsum([len(part) for part in parts])[:-1].tolist()
        begin = end


def test_no_document_is_cut_that_fits_and_none_is_lost(root: Path, build: Build) -> None:
    texts = some_texts(3, 500, longest=90)
    write_jsonl(root / "raw/a.jsonl", texts)
    corpus = build(ONE)
    seq_len = 512
    view = corpus.view("d", seq_len, "best_fit")
    assert view.fill(seq_len) > 0.95
    rows = corpus.read(
        seq_len, "best_fit", ["d"], np.zeros(view.windows, np.uint32), np.arange(view.windows, dtype=np.uint64)
    )
    assert rows.real_ids.sum() == view.real_tokens
    ids = np.frombuffer(rows.ids, np.uint16).reshape(-1, seq_len + 1)
    found = []
    for row, real in zip(ids, rows.real_ids, strict=True):
        assert row[real - 1] == EOS
        parts = np.split(row[:real], np.flatnonzero(row[:real] == EOS)[:-1] + 1)
        found += [bytes((part[:-1] - 2).astype(np.uint8)).decode() for part in parts]
    assert sorted(found) == sorted(texts)


def test_rows_of_both_packings_and_domains_come_in_the_order_asked(root: Path, build: Build) -> None:
    for name in "de":
        write_jsonl(root / f"raw/{name}.jsonl", some_texts(ord(name), 200))
    corpus = build("".join(f'[[domain]]\nname = "{name}"\nfiles = ["raw/{name}.jsonl"]\n' for name in "de"))
    rng = np.random.default_rng(4)
    for packing in ("concat", "best_fit"):
        counts = [corpus.view(name, 64, packing).windows for name in "de"]
        domains = rng.integers(0, 2, 100).astype(np.uint32)
        windows = np.array([rng.integers(0, counts[domain]) for domain in domains], np.uint64)
        rows = corpus.read(64, packing, ["d", "e"], domains, windows)
        for row in range(100):
            one = corpus.read(64, packing, ["d", "e"], domains[row : row + 1], windows[row : row + 1])
            assert rows.ids[row * 130 : (row + 1) * 130] == one.ids
            begin = int(rows.edge_ends[row - 1]) if row else 0
            assert rows.edges[begin : rows.edge_ends[row]].tolist() == one.edges.tolist()
            assert rows.real_ids[row] == one.real_ids[0]


def test_group_tables_are_kept_and_damage_costs_only_time(root: Path, build: Build) -> None:
    write_jsonl(root / "raw/a.jsonl", some_texts(3, 500))
    corpus = build(ONE)
    size = corpus.view("d", 32, "best_fit")
    table = next((root / "corpus/views").iterdir())
    good = table.read_bytes()
    for damaged in (good[:-1], good[:40], b"", good[:-1] + bytes([good[-1] ^ 1])):
        table.write_bytes(damaged)
        assert Corpus.open(root / "corpus").view("d", 32, "best_fit") == size
        assert table.read_bytes() == good


def test_sources_of_a_packed_window(root: Path, build: Build) -> None:
    write_jsonl(root / "raw/a.jsonl", ["a" * 29, "b" * 3, "c" * 9, "d" * 5])
    corpus = build(ONE)
    assert corpus.view("d", 16, "best_fit").windows == 4
    assert corpus.sources("d", 16, "best_fit", 0) == [("raw/a.jsonl", 1, 0, 17)]
    assert corpus.sources("d", 16, "best_fit", 1) == [("raw/a.jsonl", 1, 16, 30)]
    assert corpus.sources("d", 16, "best_fit", 2) == [("raw/a.jsonl", row, 0, end) for row, end in ((3, 10), (4, 6))]
    assert corpus.sources("d", 16, "best_fit", 3) == [("raw/a.jsonl", 2, 0, 4)]
