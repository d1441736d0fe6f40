"""One rule for each oddity, whatever holds the text: every container and every text type of a table gives the same."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard
from headrace.proto.errors import ConfigError
from headrace.server.corpus.documents import DocumentError
from small_corpus import read

TEXTS = ["plain", "e\u0301 \u4e2d\U0001f600", " ", "a\0b\u2028", "plain"]
KINDS: dict[str, pa.DataType] = {
    "utf8": pa.string(),
    "large_utf8": pa.large_string(),
    "string_view": pa.string_view(),
    "binary": pa.binary(),
    "large_binary": pa.large_binary(),
    "binary_view": pa.binary_view(),
    "dictionary": pa.dictionary(pa.int32(), pa.string()),
    "large dictionary": pa.dictionary(pa.int8(), pa.large_string()),
}


def write_ipc(path: Path, table: pa.Table, *, stream: bool) -> None:
    opened = pa.ipc.new_stream if stream else pa.ipc.new_file
    with pa.OSFile(str(path), "wb") as sink, opened(sink, table.schema) as writer:
        writer.write_table(table, max_chunksize=3)


WRITERS: dict[str, Callable[[Path, pa.Table], None]] = {
    "parquet": lambda path, table: pq.write_table(table, path),
    "arrow file": lambda path, table: write_ipc(path, table, stream=False),
    "arrow stream": lambda path, table: write_ipc(path, table, stream=True),
}


def column(kind: str, texts: list[str | None]) -> pa.Array[Any]:
    wanted = KINDS[kind]
    if isinstance(wanted, pa.DictionaryType):
        plain = pa.array(texts, wanted.value_type).dictionary_encode()
        return plain.cast(wanted)
    return pa.array(texts, pa.string()).cast(wanted)


@pytest.mark.parametrize("writer", list(WRITERS))
@pytest.mark.parametrize("kind", list(KINDS))
def test_every_text_type_at_the_top_and_nested(tmp_path: Path, writer: str, kind: str) -> None:
    texts = [*TEXTS[:2], None, "", *TEXTS[2:]]
    values = column(kind, texts)
    table = pa.table({"text": values, "number": pa.array(range(len(texts)))})
    inner = pa.StructArray.from_arrays([pa.array(range(len(texts))), values], ["n", "text"])
    nested = pa.table({"doc": pa.StructArray.from_arrays([inner], ["body"])})
    for name, each, field in (("flat", table, "text"), ("deep", nested, "doc.body.text")):
        path = tmp_path / f"{name}.{'parquet' if writer == 'parquet' else 'arrow'}"
        WRITERS[writer](path, each)
        found, account = read(path, text=field, on_bad="skip")
        assert found == TEXTS
        assert account.rejected == {"null": 1, "empty": 1}
        with pytest.raises(ConfigError, match=f"no column `{field}x`; columns seen: "):
            read(path, text=f"{field}x")


BAD = {
    "latin": b"caf\xe9 au lait",
    "overlong": b"a\xc0\xafb",
    "encoded surrogate": b"x\xed\xa0\x80y",
    "cut": b"end \xf0\x9f\x98",
}


def containers(folder: Path, raw: bytes) -> dict[str, tuple[Path, dict[str, Any]]]:
    """Files of one document each, whose text is `raw`, and how to read them."""
    line = b'{"text": "' + raw + b'"}\n'
    binary = pa.table({"text": pa.array([raw], pa.binary())})
    packers: dict[str, Callable[[bytes], bytes]] = {
        "jsonl": bytes,
        "jsonl.gz": gzip.compress,
        "jsonl.zst": zstandard.ZstdCompressor().compress,
    }
    found: dict[str, tuple[Path, dict[str, Any]]] = {}
    for suffix, pack in packers.items():
        (folder / f"a.{suffix}").write_bytes(pack(line))
        found[suffix] = (folder / f"a.{suffix}", {})
    (folder / "line.txt").write_bytes(raw + b"\n")
    found["a line"] = (folder / "line.txt", {})
    (folder / "file.txt").write_bytes(raw)
    found["a file"] = (folder / "file.txt", {"document": "file"})
    (folder / "parts.txt").write_bytes(raw + b"|||")
    found["a part"] = (folder / "parts.txt", {"document": "separator", "separator": "|||"})
    for writer, write in WRITERS.items():
        path = folder / f"{writer.replace(' ', '-')}.{'parquet' if writer == 'parquet' else 'arrow'}"
        write(path, binary)
        found[writer] = (path, {})
    return found


@pytest.mark.parametrize("name", list(BAD))
def test_bytes_that_are_not_utf8_are_the_same_in_every_container(tmp_path: Path, name: str) -> None:
    raw = BAD[name]
    for where, (path, options) in containers(tmp_path, raw).items():
        texts, account = read(path, on_bad="replace", **options)
        assert texts == [raw.decode("utf-8", "replace")], where
        assert account.replaced == {"invalid_utf8": 1}, where
        assert read(path, on_bad="skip", **options)[1].rejected == {"invalid_utf8": 1}, where
        with pytest.raises(DocumentError, match=r":1: byte 0x.. at offset \d+ is not UTF-8"):
            read(path, **options)


@pytest.mark.parametrize(
    ("escaped", "mended"),
    [
        ("\\ud800 begin", "\ufffd begin"),
        ("mid \\udfff dle", "mid \ufffd dle"),
        ("wrong order \\udc00\\ud83d", "wrong order \ufffd\ufffd"),
        ("a pair \\ud83d\\ude00", "a pair \U0001f600"),
    ],
)
def test_lone_surrogates_are_one_rule(tmp_path: Path, escaped: str, mended: str) -> None:
    """Compressed or not, one or many in a file; a pair is a character and nothing is replaced."""
    lines = f'{{"text": "{escaped}"}}\n'.encode() * 3
    is_pair = "pair" in escaped
    for suffix, pack in (("jsonl", bytes), ("jsonl.gz", gzip.compress)):
        path = tmp_path / f"a.{suffix}"
        path.write_bytes(pack(lines))
        texts, account = read(path, on_bad="replace")
        assert texts == [mended] * 3
        assert account.replaced == ({} if is_pair else {"lone_surrogate": 3})
        assert read(path, on_bad="skip")[1].rejected == ({} if is_pair else {"lone_surrogate": 3})
        if not is_pair:
            with pytest.raises(DocumentError, match=r":1: lone surrogate U\+D"):
                read(path)


def test_a_mark_and_line_ends_are_no_text_in_any_lines(tmp_path: Path) -> None:
    """A byte order mark is left out once, at the start, also before a line of megabytes."""
    for size in (3, 3 << 20):
        long = "x" * size
        for suffix, end in (("txt", b"\r\n"), ("jsonl", b"\r\n"), ("txt.gz", b"\n")):
            path = tmp_path / f"a.{suffix}"
            lines = [long, "\ufeffsecond", "z"]
            packed = [json.dumps({"text": line}, ensure_ascii=False) if "jsonl" in suffix else line for line in lines]
            raw = b"\xef\xbb\xbf" + b"".join(line.encode() + end for line in packed)
            path.write_bytes(gzip.compress(raw, 1) if suffix.endswith("gz") else raw)
            texts, account = read(path)
            assert texts == lines
            assert account.notes == {"byte_order_mark": 1}
