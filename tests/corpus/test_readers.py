"""Rows of every format: the same texts from each, every odd one counted by its reason, damage never silent."""

from __future__ import annotations

import gzip
import hashlib
import json
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard
from headrace.native import Texts
from headrace.proto.errors import ConfigError, DataLossError, HeadraceError
from headrace.server.corpus.bytestream import Source, SourceError
from headrace.server.corpus.documents import DocumentError
from headrace.server.corpus.jsonl import careful
from headrace.server.corpus.readers import read_rows
from headrace.server.corpus.spec import DomainSpec
from hypothesis import given
from hypothesis import strategies as st
from small_corpus import all_of, read


def hash_of(texts: list[str]) -> str:
    hasher = hashlib.sha256()
    for text in texts:
        raw = text.encode()
        hasher.update(len(raw).to_bytes(8, "little") + raw)
    return hasher.hexdigest()


def check(texts: list[str], expected: Mapping[str, Any]) -> None:
    assert len(texts) == expected["documents"]
    assert hash_of(texts) == expected["sha256_of_texts"]


@pytest.mark.parametrize(
    ("name", "policy"),
    [
        ("IN-02/three_members.jsonl.gz", "error"),
        ("IN-02/with_empty_member.jsonl.gz", "error"),
        ("IN-02/line_over_members.jsonl.gz", "error"),
        ("IN-02/sixty_members.jsonl.gz", "error"),
        ("IN-08/separators.jsonl", "error"),
        ("IN-09/surrogates.jsonl", "replace"),
        ("IN-10/bad_middle.jsonl", "replace"),
        ("IN-19/good.parquet", "error"),
        ("IN-19/zero_rows.parquet", "error"),
        ("IN-21/d.jsonl", "error"),
        ("IN-21/d_ascii.jsonl", "error"),
        ("IN-21/d.jsonl.gz", "error"),
        ("IN-21/d.jsonl.zst", "error"),
        ("IN-21/d.parquet", "error"),
        ("MX-10/tiny/tiny.jsonl", "error"),
        ("MX-10/big/big.jsonl", "error"),
        ("PK-05/zeros.jsonl", "error"),
        ("PK-07/docs.jsonl", "error"),
        ("PK-10/specials.jsonl", "error"),
        ("ST-10/numbers.jsonl", "error"),
        ("ST-19/part0.parquet", "error"),
        ("ST-19/part1.parquet", "error"),
    ],
)
def test_texts_are_those_listed(cases: Path, expected: Mapping[str, Any], name: str, policy: str) -> None:
    case, _, rest = name.partition("/")
    texts, _ = read(cases / name, on_bad=policy)
    check(texts, expected[case][rest])


@pytest.mark.parametrize(
    "kind",
    ["utf8", "large_utf8", "binary", "large_binary", "dict", "dict_large", "string_view"]
    + [f"comp_{codec}" for codec in ("snappy", "gzip", "brotli", "zstd", "lz4", "none")],
)
def test_every_text_type_of_parquet_gives_the_same(cases: Path, expected: Mapping[str, Any], kind: str) -> None:
    path = cases / "IN-16" / f"{kind}.parquet"
    spec = DomainSpec(name="d", files=("*",), on_bad="skip")
    texts = []
    for rows in read_rows(Source(str(path), path.name), spec, Counter()):
        found = {**dict(zip(rows.numbers.tolist(), all_of(rows.texts), strict=True))}
        found |= {row.number: "" for row in rows.odd if row.reason == "empty"}
        texts += [found[number] for number in sorted(found)]
    check(texts, expected["IN-16"]["utf8.parquet"])
    _, account = read(path, on_bad="skip")
    assert account.rejected["empty"] == 1
    assert account.rejected["null"] == (not kind.startswith("comp_"))


def test_nested_column_is_read_by_its_path_or_the_columns_are_listed(cases: Path, expected: Mapping[str, Any]) -> None:
    texts, _ = read(cases / "IN-16" / "nested.parquet", text="doc.text", on_bad="skip")
    assert texts
    with pytest.raises(ConfigError, match=r"columns seen: .*doc"):
        read(cases / "IN-16" / "nested.parquet", on_bad="skip")


@pytest.mark.parametrize(("name", "kind"), [("int_text", "int"), ("list_text", "list")])
def test_column_of_another_type_is_refused_with_its_type(cases: Path, name: str, kind: str) -> None:
    with pytest.raises(ConfigError, match=f"`text` is .*{kind}"):
        read(cases / "IN-16" / f"{name}.parquet", on_bad="skip")


@pytest.mark.parametrize("name", ["zero_bytes", "no_footer", "cut", "wrong_magic", "footer_len"])
def test_damaged_parquet_is_named(cases: Path, name: str) -> None:
    with pytest.raises(SourceError, match=f"`{name}.parquet` is damaged"):
        read(cases / "IN-19" / f"{name}.parquet")


def test_text_by_file_equals_the_other_containers(cases: Path, expected: Mapping[str, Any]) -> None:
    texts = [read(path, document="file")[0][0] for path in sorted((cases / "IN-21" / "txt").iterdir())]
    check(texts, expected["IN-21"]["txt"])


def test_lone_surrogates_stop_with_the_line_or_are_counted(cases: Path) -> None:
    path = cases / "IN-09" / "surrogates.jsonl"
    with pytest.raises(DocumentError, match=r"surrogates.jsonl:1: lone surrogate U\+D800"):
        read(path)
    texts, account = read(path, on_bad="skip")
    assert len(texts) == 2
    assert account.rejected == {"lone_surrogate": 5}
    assert read(path, on_bad="replace")[1].replaced == {"lone_surrogate": 5}


def test_odd_rows_are_counted_by_reason(cases: Path) -> None:
    texts, account = read(cases / "IN-14" / "odd_rows.jsonl", on_bad="skip")
    assert texts == ["good 1", "   ", "good 2"]
    assert account.rejected == {"missing_field": 2, "null": 1, "wrong_type": 4, "empty": 1}


@pytest.mark.parametrize("policy", ["error", "replace", "skip"])
def test_wrong_field_name_is_an_error_that_lists_the_fields(cases: Path, policy: str) -> None:
    with pytest.raises(HeadraceError, match="fields seen: content"):
        read(cases / "IN-14" / "wrong_field.jsonl", on_bad=policy)


@pytest.mark.parametrize(
    "name", ["overlong.txt", "utf16le_nobom.txt", "all_bytes.bin.txt", "cut_end.txt", "latin1.txt", "cesu.txt"]
)
def test_bytes_that_are_not_utf8_follow_the_policy(cases: Path, name: str) -> None:
    path = cases / "IN-10" / name
    raw = path.read_bytes()
    texts, account = read(path, on_bad="replace", document="file")
    assert texts == [raw.decode("utf-8", "replace")]
    try:
        raw.decode()
    except UnicodeDecodeError:
        assert account.replaced == {"invalid_utf8": 1}
        with pytest.raises(DocumentError, match=rf"{name}:1: byte 0x.. at offset"):
            read(path, document="file")
        assert read(path, on_bad="skip", document="file")[1].rejected == {"invalid_utf8": 1}
    else:
        assert not account.replaced


@pytest.mark.parametrize("suffix", ["jsonl", "jsonl.gz", "jsonl.zst", "parquet", "arrow", "arrows.arrow"])
def test_formats_agree_on_odd_characters(tmp_path: Path, suffix: str) -> None:
    odd = [
        "a\0b",
        "line\u2028sep\u2029\x85\x0b\x0c",
        "cr\r\nlf\rlone",
        "\ufeffmark",
        "e\u0301 \u00e9",
        " ",
        "\U0001f600" * 3,
    ]
    path = tmp_path / f"d.{suffix}"
    lines = "".join(json.dumps({"text": text}) + "\n" for text in odd).encode()
    table = pa.table({"text": odd})
    if suffix == "parquet":
        pq.write_table(table, path)
    elif suffix == "arrow":
        with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, table.schema) as file:
            file.write_table(table)
    elif suffix == "arrows.arrow":
        with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_stream(sink, table.schema) as stream:
            stream.write_table(table)
    else:
        pack = {"jsonl": bytes, "jsonl.gz": gzip.compress, "jsonl.zst": zstandard.ZstdCompressor().compress}[suffix]
        path.write_bytes(pack(lines))
    assert read(path)[0] == odd


def test_lines_end_at_lf_or_crlf_and_nowhere_else(tmp_path: Path) -> None:
    path = tmp_path / "d.txt"
    path.write_bytes("\ufeffone\r\ntwo\rstill two\n\n\u2028three\x0c\x85\nlast".encode())
    texts, account = read(path)
    assert texts == ["one", "two\rstill two", "\u2028three\x0c\x85", "last"]
    assert account.rejected == {"empty": 1}
    assert account.notes == {"byte_order_mark": 1}


def test_utf16_is_told(tmp_path: Path) -> None:
    path = tmp_path / "d.txt"
    path.write_bytes("text".encode("utf-16"))
    with pytest.raises(SourceError, match="UTF-16"):
        read(path)


def test_separator_cuts_across_chunks(tmp_path: Path) -> None:
    path = tmp_path / "d.txt"
    parts = ["a" * 262_143, "b\n", "c" * 524_288, "d"]
    path.write_text("\n%%\n".join(parts) + "\n%%\n", encoding="utf-8")
    assert read(path, document="separator", separator="\n%%\n")[0] == parts


def test_long_line_is_read(tmp_path: Path) -> None:
    path = tmp_path / "d.jsonl"
    texts = ["ab" * 5, "x" * 20_000_000, "cd" * 5]
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts), encoding="utf-8")
    assert read(path)[0] == texts


def test_field_that_stands_twice_is_no_choice_of_ours(tmp_path: Path) -> None:
    path = tmp_path / "d.jsonl"
    path.write_text('{"text": "a", "text": "b"}\n{"text": "c", "x": 1, "x": 2}\n', encoding="utf-8")
    texts, account = read(path, on_bad="skip")
    assert texts == ["c"]
    assert account.rejected == {"field_twice": 1}


def _table_bytes(kind: str) -> bytes:
    table = pa.table({"text": [f"document {number} " + "words " * 20 for number in range(500)]})
    sink = pa.BufferOutputStream()
    if kind == "parquet":
        pq.write_table(table, sink, row_group_size=100)
    else:
        with (pa.ipc.new_file if kind == "file" else pa.ipc.new_stream)(sink, table.schema) as writer:
            writer.write_table(table, max_chunksize=50)
    return sink.getvalue().to_pybytes()


@pytest.mark.parametrize("kind", ["parquet", "file", "stream"])
def test_cut_table_is_an_error_and_never_fewer_rows(tmp_path: Path, kind: str) -> None:
    whole = _table_bytes(kind)
    path = tmp_path / ("d.parquet" if kind == "parquet" else "d.arrow")
    path.write_bytes(whole)
    assert len(read(path)[0]) == 500
    for number in range(60):
        length = len(whole) - 1 - number if number < 10 else number * len(whole) // 60
        path.write_bytes(whole[:length])
        with pytest.raises(SourceError, match=path.name):
            read(path)


@pytest.mark.parametrize("kind", ["parquet", "file", "stream"])
def test_flipped_bits_in_tables_are_an_error_or_rows(tmp_path: Path, kind: str) -> None:
    """Never a crash; that a table without checksums reads other rows only its hash can tell."""
    whole = _table_bytes(kind)
    path = tmp_path / ("d.parquet" if kind == "parquet" else "d.arrow")
    for number in range(400):
        position = number * len(whole) // 400
        path.write_bytes(whole[:position] + bytes([whole[position] ^ 1 << number % 8]) + whole[position + 1 :])
        with suppress(HeadraceError):
            read(path)


def test_bad_json_and_other_values_are_counted(tmp_path: Path) -> None:
    path = tmp_path / "d.jsonl"
    path.write_text('{"text": "ok"}\n{"text": "cut\n[1, 2]\n\n   \n' + "[" * 100_000 + "\n", encoding="utf-8")
    texts, account = read(path, on_bad="skip")
    assert texts == ["ok"]
    assert account.rejected == {"bad_json": 2, "not_object": 1}
    assert account.notes == {"blank_lines": 2}
    with pytest.raises(DocumentError, match=r"d\.jsonl:2: not JSON"):
        read(path)


def _frames(kind: str) -> tuple[bytes, bytes]:
    lines = [json.dumps({"text": f"document {number} " + "words " * 20}).encode() + b"\n" for number in range(200)]
    packers = {"gz": gzip.compress, "zst": zstandard.ZstdCompressor(write_checksum=True).compress}
    return packers[kind](b"".join(lines[:90])), packers[kind](b"".join(lines[90:]))


@pytest.mark.parametrize("kind", ["gz", "zst"])
def test_cut_file_is_an_error_and_never_fewer_rows(tmp_path: Path, kind: str) -> None:
    packed, rest = _frames(kind)
    whole = packed + rest
    path = tmp_path / f"d.jsonl.{kind}"
    path.write_bytes(whole)
    assert len(read(path)[0]) == 200
    boundary = len(packed)
    for length in {0, 1, 5, len(whole) - 1, len(whole) - 3, *range(7, len(whole) - 1, max(1, len(whole) // 50))}:
        path.write_bytes(whole[:length])
        if length == boundary:
            # A cut exactly between two frames leaves a whole file of one frame; only its hash can tell.
            assert len(read(path)[0]) == 90
            continue
        with pytest.raises(DataLossError, match=path.name):
            read(path)


@pytest.mark.parametrize("kind", ["gz", "zst"])
def test_flipped_bits_in_checksummed_files_are_found(tmp_path: Path, kind: str) -> None:
    whole = b"".join(_frames(kind))
    texts = [f"document {number} " + "words " * 20 for number in range(200)]
    path = tmp_path / f"d.jsonl.{kind}"
    for number in range(200):
        position = number * len(whole) // 200
        damaged = bytearray(whole)
        damaged[position] ^= 1 << number % 8
        path.write_bytes(damaged)
        try:
            found = read(path)[0]
        except DataLossError:
            continue
        assert found == texts, f"byte {position}: other texts and no error"


@given(
    st.lists(
        st.recursive(
            st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
            lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["text", "a", "b"]), inner),
            max_leaves=6,
        )
        | st.fixed_dictionaries(
            {"text": st.text(min_size=1)}, optional={"a": st.integers() | st.text(), "b": st.none()}
        ),
        max_size=8,
    ),
    st.booleans(),
    st.binary(max_size=4),
)
def test_quick_and_careful_way_through_jsonl_agree(values: list[Any], plain_ascii: bool, noise: bytes) -> None:
    lines = [json.dumps(value, ensure_ascii=plain_ascii).encode("utf-8", "surrogatepass") for value in values]
    lines = [line[: len(line) // 2] + noise + line[len(line) // 2 :] for line in lines] + lines
    block = b"".join(line.replace(b"\n", b"") + b"\n" for line in lines)
    for others in ((), ("a",), ("a", "b")):
        texts, at, row = Texts(), 0, 1
        while at < len(block):
            taken, end, raw = texts.take_jsonl(block, at, len(block), row, "text", others)
            for number, line in enumerate(block[at:end].split(b"\n")[:taken]):
                found = careful(1, line, "text", others, replace=False)
                assert (found.text, found.reason) == (texts[len(texts) - taken + number], None)
                if others:
                    assert repr(found.fields) == repr(dict(zip(others, map(json.loads, raw[number]), strict=True)))
            row += taken
            at = end if end > at else block.index(b"\n", at) + 1
        assert row - 1 == len(texts)
