"""The demo's text is aligned, split without leaks, skewed as said and the same every time."""

from __future__ import annotations

import json
from hashlib import sha256
from pathlib import Path

import pytest
import zstandard
from headrace.client.cli.demo.catalogues import aligned_keys, segments
from headrace.client.cli.demo.languages import LANGUAGES
from headrace.client.cli.demo.text import TextReport, split_of, write_text


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, TextReport]:
    folder = tmp_path_factory.mktemp("text")
    return folder, write_text(folder)


def test_fourteen_languages_in_eight_scripts() -> None:
    assert len({language.name for language in LANGUAGES}) == 14
    assert len({language.script for language in LANGUAGES}) == 8


@pytest.mark.parametrize(
    ("english", "name", "other"),
    [
        ("Enter a valid email address.", "deu", "Bitte gültige E-Mail-Adresse eingeben."),
        ("Saturday", "rus", "суббота"),
        ("Finland", "jpn", "フィンランド"),
        ("Greek", "fra", "grec"),
        ("Euro", "heb", "אירו"),
    ],
)
def test_segments_of_one_key_mean_the_same(english: str, name: str, other: str) -> None:
    texts = {language.name: segments(language) for language in LANGUAGES}
    assert any(texts["eng"][key] == english and texts[name][key] == other for key in aligned_keys(texts))


def test_the_same_line_has_the_same_key(written: tuple[Path, TextReport]) -> None:
    folder, report = written
    texts = {language.name: segments(language) for language in LANGUAGES}
    for split in ("dev", "test"):
        keys = [key for key in aligned_keys(texts) if split_of(texts["eng"][key]) == split]
        assert len(keys) == report.aligned[split] > 400
        for name, text in texts.items():
            lines = (folder / f"aligned/{split}/{name}.txt").read_text(encoding="utf-8").split("\n")
            assert lines == [*(text[key] for key in keys), ""]


def test_every_aligned_key_is_one_line_everywhere() -> None:
    texts = {language.name: segments(language) for language in LANGUAGES}
    keys = aligned_keys(texts)
    assert len(keys) > 2000
    assert all(text[key].strip() and "\n" not in text[key] for text in texts.values() for key in keys)


def test_alignment_drops_what_one_language_lacks_or_breaks_over_lines() -> None:
    texts = {"a": {("x",): "one", ("y",): "two", ("z",): "three"}, "b": {("x",): "eins", ("y",): "zw\u2028ei"}}
    assert aligned_keys(texts) == [("x",)]
    with pytest.raises(ValueError, match="no languages"):
        aligned_keys({})


def test_split_is_about_60_20_20_and_has_no_leak(written: tuple[Path, TextReport]) -> None:
    folder, report = written
    total = sum(report.aligned.values())
    assert report.aligned["train"] / total == pytest.approx(0.6, abs=0.05)
    assert report.aligned["dev"] / total == pytest.approx(0.2, abs=0.04)
    trained = set(_documents(folder / "raw/eng/part-0.jsonl"))
    trained_lines = {line for document in trained for line in document.splitlines()}
    for split in ("dev", "test"):
        lines = (folder / f"aligned/{split}/eng.txt").read_text(encoding="utf-8").splitlines()
        assert not trained_lines & set(lines)


def test_sizes_are_skewed_with_english_biggest(written: tuple[Path, TextReport]) -> None:
    _, report = written
    sizes = {language.name: report.bytes_of[language.name] for language in LANGUAGES}
    assert max(sizes, key=lambda name: sizes[name]) == "eng"
    assert sizes["eng"] > 2.5 * sizes["heb"]
    assert report.bytes_of["code"] > 1_000_000
    assert report.bytes_of["docs"] > 100_000


def test_files_hold_what_the_report_says(written: tuple[Path, TextReport]) -> None:
    folder, report = written
    for name in report.domains:
        documents = [text for path in sorted((folder / "raw" / name).iterdir()) for text in _documents(path)]
        assert len(documents) == report.documents_of[name]
        assert sum(len(text.encode()) for text in documents) == report.bytes_of[name]


def test_written_twice_is_written_alike(written: tuple[Path, TextReport], tmp_path: Path) -> None:
    folder, report = written
    assert write_text(tmp_path) == report
    assert _digests(tmp_path) == _digests(folder)


def _documents(path: Path) -> list[str]:
    content = path.read_bytes()
    if path.suffix == ".txt":
        return [content.decode()]
    if path.suffix == ".zst":
        content = zstandard.ZstdDecompressor().decompress(content)
    return [json.loads(line)["text"] for line in content.decode().split("\n")[:-1]]


def _digests(folder: Path) -> dict[str, str]:
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): sha256(path.read_bytes()).hexdigest() for path in files}
