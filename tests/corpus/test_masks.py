"""Masks: exactly the documents named become padding, everything else keeps its place, and a bad shard is not read."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from headrace.native import text_digests
from headrace.proto.errors import DataLossError, NotFoundError, UsageError
from headrace.server.corpus import kept_masks
from headrace.server.corpus.manifest import Corpus
from headrace.server.corpus.masks import Found, Mask
from headrace.server.corpus.records import Manifest
from headrace.server.corpus.served import Rows
from headrace.server.plan.log import MaskBody
from small_corpus import FIRST, ONE, PAD, some_texts, stream, write_jsonl

Build = Callable[..., Corpus]


def rows_of(corpus: Corpus, packing: str, seq_len: int, mask: Mask | None) -> Rows:
    count = corpus.view("d", seq_len, packing).windows
    windows = np.arange(count, dtype=np.uint64)
    return corpus.read(seq_len, packing, ["d"], np.zeros(count, np.uint32), windows, mask)


def spans_of(rows: Rows, row: int) -> list[tuple[int, int]]:
    begin = int(rows.mask_ends[row - 1]) if row else 0
    return list(zip(*[iter(rows.masks[begin : rows.mask_ends[row]].tolist())] * 2, strict=True))


@pytest.mark.parametrize("packing", ["concat", "best_fit"])
def test_named_documents_become_padding_and_nothing_else_changes(root: Path, build: Build, packing: str) -> None:
    texts = [f"{number:03}{text}" for number, text in enumerate(some_texts(2, 120, longest=60))]
    write_jsonl(root / "raw/a.jsonl", texts[:70])
    write_jsonl(root / "raw/b.jsonl", texts[70:])
    corpus = build(ONE)
    down = {3, 4, 69, 70, 71, 119}
    digests = [text_digests([texts[number]])[0].hex() for number in (69, 119)]
    mask = corpus.mask(
        [
            MaskBody(by="source", values=("raw/a.jsonl:4", "raw/a.jsonl:5", "raw/b.jsonl:1")),
            MaskBody(by="hash", values=tuple(digests), domain="d"),
            MaskBody(by="source", values=("raw/b.jsonl:2",)),
        ]
    )
    seq_len = 64
    plain, masked = rows_of(corpus, packing, seq_len, None), rows_of(corpus, packing, seq_len, mask)
    before = np.frombuffer(plain.ids, np.uint16).reshape(-1, seq_len + 1)
    after = np.frombuffer(masked.ids, np.uint16).reshape(-1, seq_len + 1).copy()
    assert plain.real_ids.tolist() == masked.real_ids.tolist()
    hidden: list[int] = []
    for row in range(len(after)):
        for begin, end in spans_of(masked, row):
            assert (after[row, begin:end] == PAD).all()
            after[row, begin:end] = before[row, begin:end]
            hidden += before[row, begin : min(end, seq_len)].tolist()
    assert (after == before).all()
    assert sorted(hidden) == sorted(stream(texts[number] for number in down))


def test_shard_in_quarantine_is_not_read(root: Path, build: Build) -> None:
    for name in "abc":
        write_jsonl(root / f"raw/{name}.jsonl", [name * 3000] * 4)
    corpus = build(ONE)
    whole = rows_of(corpus, "concat", 100, None)
    record = corpus.manifest.domains[0].generations[0][1]
    name = f"{record.folder}/{record.shard.file}"
    path = root / "corpus" / name
    data = bytearray(path.read_bytes())
    data[len(data) // 4 : len(data) // 2] = bytes(len(data) // 2 - len(data) // 4)
    path.write_bytes(data)
    with pytest.raises(DataLossError, match=path.name):
        rows_of(corpus, "concat", 100, None)
    rows = rows_of(corpus, "concat", 100, corpus.mask([MaskBody(by="shard", values=(name,))]))
    before, after = np.frombuffer(whole.ids, np.uint16), np.frombuffer(rows.ids, np.uint16)
    assert ((after == before) | (after == PAD)).all()
    assert set(np.unique(after).tolist()) & {FIRST + ord(each) for each in "abc"} == {
        FIRST + ord(each) for each in "ac"
    }
    with pytest.raises(DataLossError, match="cannot be looked up in it"):
        corpus.mask([MaskBody(by="hash", values=("0" * 32,))])


def test_kept_fields_can_be_named(root: Path, build: Build) -> None:
    records = [{"text": f"text {n}", "license": "mit" if n % 3 else "gone", "n": n} for n in range(30)]
    write_jsonl(root / "raw/a.jsonl", [*records, {"text": "text 0", "license": "gone", "n": 0}])
    corpus = build(ONE + 'keep = ["license", "n"]\nduplicates = "drop"\n')
    mask = corpus.mask([MaskBody(by="field", values=("license=gone", "n=1"))])
    rows = rows_of(corpus, "concat", 512, mask)
    left = bytes((np.frombuffer(rows.ids, np.uint16) - FIRST).astype(np.uint8))
    assert b"text 3" not in left
    assert b"text 4" in left
    assert rows.masks.size
    with pytest.raises(NotFoundError, match="has no 'license=none'"):
        corpus.mask([MaskBody(by="field", values=("license=gone", "license=none"))])


def test_a_held_out_document_is_said_to_be_held_out(root: Path, build: Build) -> None:
    write_jsonl(root / "raw/a.jsonl", [f"text {n}" for n in range(40)])
    corpus = build(ONE + "holdout = 0.2\n")
    (file,) = corpus.manifest.sources
    held = [part.row for part in corpus.for_kind("eval").sources("d", 16, "concat", 0)]
    says = f"0 were left out at the build, {file.held_out} are held out and in evaluation runs only; nothing"
    with pytest.raises(NotFoundError, match=says):
        corpus.mask([MaskBody(by="source", values=(f"raw/a.jsonl:{held[0]}",))])


@pytest.mark.parametrize(
    ("by", "value", "message"),
    [
        (
            "source",
            "raw/none.jsonl",
            "has no 'raw/none.jsonl'; files are called as the manifest calls them.*raw/a.jsonl",
        ),
        ("source", "a.jsonl:1", "it has `raw/a.jsonl`; nothing was masked"),
        (
            "source",
            "raw/a.jsonl:9",
            "has no 'raw/a.jsonl:9'; of the 2 documents of `raw/a.jsonl`, 0 were left out at the build; nothing was",
        ),
        ("hash", "ab" * 16, "as `headrace corpus hash FILE` prints it; nothing was masked"),
        ("hash", "xyz", "no digest of a document"),
        ("shard", "store/x.arrow", "has no 'store/x.arrow'"),
        ("field", "license", "write name=value"),
        ("field", "license=x", "NAME=VALUE of the fields that CORPUS.toml says to `keep`"),
    ],
)
def test_what_names_nothing_is_refused(root: Path, build: Build, by: str, value: str, message: str) -> None:
    write_jsonl(root / "raw/a.jsonl", ["one", "two"])
    corpus = build(ONE)
    with pytest.raises((NotFoundError, UsageError), match=message):
        corpus.mask([MaskBody(by=by, values=(value,))])


def test_what_a_mask_takes_down_is_looked_up_once(root: Path, build: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another process reads no shard for it; a damaged result, or another event, is looked up anew."""
    looked_up: list[MaskBody] = []
    find = kept_masks.find

    def counted(manifest: Manifest, place: Path, part: str, body: MaskBody, skipped: frozenset[str]) -> Found:
        looked_up.append(body)
        return find(manifest, place, part, body, skipped)

    monkeypatch.setattr(kept_masks, "find", counted)
    texts = [f"{number:03}{text}" for number, text in enumerate(some_texts(2, 60, longest=60))]
    write_jsonl(root / "raw/a.jsonl", texts)
    corpus = build(ONE)
    body = MaskBody(by="hash", values=(text_digests([texts[7]])[0].hex(), "00" * 16))
    first = corpus.find_masked(body)
    assert first.missing == {"00" * 16}

    def again(wanted: MaskBody) -> dict[int, list[list[int]]]:
        found = Corpus.open(root / "corpus").find_masked(wanted)
        assert found.missing == first.missing & set(wanted.values)
        assert found.mask.tokens(0) == first.mask.tokens(0) > 0
        return {number: [each.tolist() for each in spans] for number, spans in found.mask.spans.items()}

    plain = again(body)
    assert looked_up == [body]
    (kept,) = (root / "corpus/masks").iterdir()
    whole = kept.read_bytes()
    for times, bad in enumerate((whole[:-1], whole[:40] + b"7" + whole[41:], b""), 2):
        kept.write_bytes(bad)
        assert again(body) == plain
        assert looked_up == [body] * times
        assert kept.read_bytes() == whole
    for other in (MaskBody(by="hash", values=body.values[:1]), MaskBody(by="hash", values=body.values, domain="d")):
        again(other)
        assert looked_up[-1] == other
