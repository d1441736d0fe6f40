"""Training text is read whole from plain and compressed files; a file that is cut off or damaged is an error."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
import zstandard
from headrace.proto.errors import UsageError
from headrace.tokenizer.files import byte_lines, read_lines
from headrace.tokenizer.texts import _jsonl

LINES = [f"line {number} of some length, äöü" for number in range(20_000)]
CONTENT = "".join(f"{line}\n" for line in LINES).encode()


def packed(kind: str, content: bytes) -> bytes:
    if kind == "gz":
        return gzip.compress(content)
    return zstandard.ZstdCompressor(write_checksum=True).compress(content) if kind == "zst" else content


@pytest.mark.parametrize("kind", ["txt", "gz", "zst"])
def test_lines_come_back_from_every_kind_of_file(tmp_path: Path, kind: str) -> None:
    path = tmp_path / f"text.{kind}"
    half = CONTENT.index(b"\n", len(CONTENT) // 2) + 1
    path.write_bytes(packed(kind, CONTENT[:half]) + packed(kind, CONTENT[half:]))  # two frames, one text
    assert read_lines(path) == LINES
    assert b"".join(byte_lines(path)) == CONTENT


@pytest.mark.parametrize("kind", ["gz", "zst"])
@pytest.mark.parametrize("part", [0.3, 0.999])
def test_a_cut_file_is_an_error(tmp_path: Path, kind: str, part: float) -> None:
    path = tmp_path / f"text.{kind}"
    whole = packed(kind, CONTENT)
    path.write_bytes(whole[: int(part * len(whole))])
    for read in (read_lines, lambda path: list(byte_lines(path))):
        with pytest.raises(UsageError, match="damaged or cut off"):
            read(path)


@pytest.mark.parametrize("kind", ["gz", "zst"])
def test_a_damaged_file_is_an_error(tmp_path: Path, kind: str) -> None:
    path = tmp_path / f"text.{kind}"
    whole = bytearray(packed(kind, CONTENT))
    whole[len(whole) // 2] ^= 0xFF
    path.write_bytes(whole)
    with pytest.raises(UsageError, match="damaged or cut off"):
        read_lines(path)


@pytest.mark.parametrize("kind", ["", ".gz", ".zst"])
def test_documents_of_compressed_jsonl(tmp_path: Path, kind: str) -> None:
    path = tmp_path / f"text.jsonl{kind}"
    content = "".join(json.dumps({"text": line}) + "\n" for line in LINES).encode()
    path.write_bytes(packed(kind.removeprefix("."), content))
    assert list(_jsonl(path, "text")) == LINES
