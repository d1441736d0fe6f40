"""The demo's text: what Python, Django and Babel ship, written as ordinary source files.

    raw/code/part-*.jsonl.zst     Python's library sources, one module a document
    raw/docs/*.txt                Python's documentation topics, one topic a file
    raw/<language>/*              training text of each language, documents of up to 20 segments of one catalogue
    aligned/dev|test/<language>.txt   one segment a line, the same line number meaning the same in all languages

Segments are split 60/20/20 into training, development and test by a hash of their English text (of their id where there
is none), so that one text that two catalogues share never sits on both sides. The files are the same, byte for byte,
for the same versions of Python, Django and Babel. Tests of the library are left out of `code`; what is not UTF-8 is
counted and named.
"""

from __future__ import annotations

import json
import sysconfig
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from itertools import groupby
from pathlib import Path
from pydoc_data.topics import topics

import zstandard
from headrace.client.cli.demo.catalogues import Key, aligned_keys, segments
from headrace.client.cli.demo.languages import LANGUAGES, Language
from headrace.proto.errors import HeadraceError

_SEGMENTS_A_DOCUMENT = 20
_CODE_FILES = 4
_LEFT_OUT = {"test", "tests", "idle_test", "site-packages", "dist-packages", "__pycache__", "lib2to3", "idlelib"}


@dataclass(frozen=True, kw_only=True, slots=True)
class TextReport:
    """What was written: sizes in bytes and numbers of documents and lines."""

    bytes_of: Mapping[str, int]
    """Domain -> UTF-8 bytes of training text."""
    documents_of: Mapping[str, int]
    aligned: Mapping[str, int]
    """Split ("train", "dev", "test") -> aligned segments in it."""
    notes: tuple[str, ...] = field(default=())
    """What was left out, and why."""

    @property
    def domains(self) -> tuple[str, ...]:
        return tuple(self.bytes_of)


def write_text(folder: Path) -> TextReport:
    """Write all source files below `folder` and say what they hold."""
    notes: list[str] = []
    documents: dict[str, list[str]] = {"code": list(_library(notes)), "docs": _topics()}
    _write_jsonl_zst(folder / "raw/code", documents["code"], files=_CODE_FILES)
    _write_txt(folder / "raw/docs", documents["docs"])
    texts = {language.name: segments(language) for language in LANGUAGES}
    aligned = aligned_keys(texts)
    english = texts["eng"]
    for language in LANGUAGES:
        documents[language.name] = _training_documents(language, texts[language.name], english)
        _write_language(folder / "raw" / language.name, language, documents[language.name])
        for split in ("dev", "test"):
            lines = [texts[language.name][key] for key in aligned if split_of(english[key]) == split]
            _write(folder / "aligned" / split / f"{language.name}.txt", "".join(f"{line}\n" for line in lines).encode())
    return TextReport(
        bytes_of={name: sum(len(text.encode()) for text in texts) for name, texts in documents.items()},
        documents_of={name: len(texts) for name, texts in documents.items()},
        aligned={split: sum(split_of(english[key]) == split for key in aligned) for split in ("train", "dev", "test")},
        notes=tuple(notes),
    )


def split_of(english: str) -> str:
    """`train`, `dev` or `test`: 60, 20 and 20 of 100, by a hash of the English text, whatever its case."""
    part = _part("split", english.casefold())
    return "train" if part < 0.6 else "dev" if part < 0.8 else "test"


def _part(purpose: str, text: str) -> float:
    """A number in [0, 1) that depends on the text and the purpose only."""
    return int.from_bytes(blake2b(f"{purpose}\0{text}".encode(), digest_size=6).digest()) / 2**48


def _training_documents(language: Language, texts: Mapping[Key, str], english: Mapping[Key, str]) -> list[str]:
    """Training segments of one language, thinned to its share, up to 20 of one catalogue in a document."""
    meaning = {key: english.get(key, key[-1]) for key in texts}
    kept = [key for key in texts if split_of(meaning[key]) == "train" and _part("thin", meaning[key]) < language.share]
    found = []
    for _, keys in groupby(kept, key=lambda key: key[:2]):
        lines = [texts[key] for key in keys]
        found += ["\n".join(lines[i : i + _SEGMENTS_A_DOCUMENT]) for i in range(0, len(lines), _SEGMENTS_A_DOCUMENT)]
    return found


def _library(notes: list[str]) -> Iterator[str]:
    """Python's own modules, in the order of their paths."""
    base = Path(sysconfig.get_paths()["stdlib"])
    paths = [path for path in sorted(base.rglob("*.py")) if not _LEFT_OUT & set(path.relative_to(base).parts)]
    if not paths:
        raise HeadraceError(
            f"no library sources below `{base}`: this Python ships without them; use one that was installed whole"
        )
    for path in paths:
        try:
            text = path.read_bytes().decode()
        except UnicodeDecodeError:
            notes.append(f"code: `{path.relative_to(base)}` is not UTF-8, left out")
            continue
        if text:
            yield text


def _topics() -> list[str]:
    return [text for _, text in sorted(topics.items())]


def _write_language(folder: Path, language: Language, documents: list[str]) -> None:
    """Two files a language: the plain kind for English, compressed for the others."""
    if language.name == "eng":
        _write(folder / "part-0.jsonl", _jsonl(documents))
    else:
        _write_jsonl_zst(folder, documents, files=2)


def _write_jsonl_zst(folder: Path, documents: list[str], *, files: int) -> None:
    for number in range(files):
        begin, end = len(documents) * number // files, len(documents) * (number + 1) // files
        packed = zstandard.ZstdCompressor(level=3).compress(_jsonl(documents[begin:end]))
        _write(folder / f"part-{number}.jsonl.zst", packed)


def _write_txt(folder: Path, documents: list[str]) -> None:
    for number, text in enumerate(documents):
        _write(folder / f"{number:03}.txt", text.encode())


def _jsonl(documents: Iterable[str]) -> bytes:
    return "".join(json.dumps({"text": text}, ensure_ascii=False) + "\n" for text in documents).encode()


def _write(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
