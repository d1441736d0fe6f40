"""CORPUS.toml: which files become which domains, with which tokenizer, under which rules.

    [corpus]
    out = "corpus"                      # folder to write
    tokenizer = "tokenizer.json"        # relative paths start at the folder of this file
    bos = false                         # begin each document with the tokenizer's bos id
    eos = true                          # end each document with its end-of-text id; default: when it has one
    id_bytes = 2                        # 2 or 4; default: what the vocabulary needs
    [[domain]]
    name = "deu"                        # or "{source}-{lang}", from fields of each document
    files = ["raw/deu/*.jsonl.zst"]     # globs, `**` for any depth; all matches sorted bytewise
    format = "auto"                     # auto (by suffix), jsonl, text
    text = "text"                       # field that holds the text; dots go into objects: "body.text"
    document = "line"                   # text files: a document a line, or a file
    on_bad = "error"                    # error, replace, skip
    max_rejected = 1.0                  # share of documents that may be rejected before the build fails

Unknown keys and wrong types are errors that name file and line.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from headrace.proto.errors import ConfigError
from headrace.server.corpus.table import Table, parse_toml

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,63}")
PLACEHOLDER = re.compile(r"\{([^{}]*)\}")
FORMATS = ("auto", "jsonl", "text")
POLICIES = ("error", "replace", "skip")
DOCUMENTS = ("line", "file")


@dataclass(frozen=True, kw_only=True, slots=True)
class DomainSpec:
    """One [[domain]] entry; `name` may hold `{field}` and then stands for many domains."""

    name: str
    files: tuple[str, ...]
    format: str = "auto"
    text: str = "text"
    document: str = "line"
    on_bad: str = "error"
    max_rejected: float = 1.0

    def __post_init__(self) -> None:
        if not NAME.fullmatch(PLACEHOLDER.sub("x", self.name)):
            raise ConfigError(
                f"`{self.name}` is no name for a domain; names match {NAME.pattern}, with {{field}} for a field's value"
            )
        if not all(part for path in (self.text, *self.name_fields) for part in path.split(".")):
            raise ConfigError(f"domain `{self.name}`: an empty field name in `{self.text}` or in the name")
        if not 0 <= self.max_rejected <= 1:
            raise ConfigError(f"domain `{self.name}`: `max_rejected` is a share from 0 to 1, not {self.max_rejected}")

    @property
    def name_fields(self) -> tuple[str, ...]:
        """Fields whose values make the domain's name."""
        return tuple(PLACEHOLDER.findall(self.name))

    def options(self) -> dict[str, Any]:
        """What decides the content of a token store, beside the source and the tokenizer."""
        unused = {"files", "max_rejected"}
        return {field.name: getattr(self, field.name) for field in fields(self) if field.name not in unused}


@dataclass(frozen=True, kw_only=True, slots=True)
class CorpusSpec:
    """A whole CORPUS.toml; paths are resolved against `root`."""

    out: str
    tokenizer: str
    domains: tuple[DomainSpec, ...]
    bos: bool = False
    eos: bool | None = None
    id_bytes: int | None = None
    root: Path = Path()
    place: str = "CORPUS.toml"

    def __post_init__(self) -> None:
        if self.id_bytes not in (None, 2, 4):
            raise ConfigError(f"{self.place}: `id_bytes` is 2 or 4, not {self.id_bytes}")
        if not self.domains:
            raise ConfigError(f"{self.place}: no [[domain]]; name at least one")
        names = [domain.name for domain in self.domains]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ConfigError(f"{self.place}: domain `{twice[0]}` is named twice; give all its files in one [[domain]]")

    @property
    def out_path(self) -> Path:
        return self.root / self.out

    @property
    def manifest_path(self) -> Path:
        return self.out_path / "manifest.json"

    @property
    def tokenizer_path(self) -> Path:
        return self.root / self.tokenizer

    @classmethod
    def from_file(cls, path: str | Path) -> CorpusSpec:
        """Reads a CORPUS.toml."""
        try:
            text = Path(path).read_text(encoding="utf-8")
        except UnicodeDecodeError:
            raise ConfigError(f"{path}: this file is not UTF-8") from None
        except OSError as error:
            raise ConfigError(f"cannot read `{path}`: {error.strerror}") from None
        return cls.from_toml(text, place=str(path), root=Path(path).parent)

    @classmethod
    def from_toml(cls, text: str, *, place: str = "CORPUS.toml", root: Path = Path()) -> CorpusSpec:
        """Parses; every error names `place` and, where it can, the line."""
        top = Table(parse_toml(text, place=place), text=text, place=place)
        corpus = Table(top.need("corpus", dict, '{ out = "corpus" }'), text=text, place=place, header="corpus")
        entries = top.take("domain", list, []) or []
        top.close()
        spec: dict[str, Any] = {
            "out": corpus.take("out", str, "corpus"),
            "tokenizer": corpus.take("tokenizer", str, "tokenizer.json"),
            "bos": corpus.take("bos", bool, False),
            "eos": corpus.take("eos", bool),
            "id_bytes": corpus.take("id_bytes", int),
        }
        corpus.close()
        domains = tuple(_domain(entry, text, place, number) for number, entry in enumerate(entries))
        return cls(**spec, domains=domains, root=root, place=place)


def _domain(entry: Mapping[str, Any], text: str, place: str, number: int) -> DomainSpec:
    table = Table(entry, text=text, place=place, header="domain", number=number)
    values: dict[str, Any] = {
        "name": table.need("name", str, '"deu"'),
        "files": table.strings("files", '["raw/*.jsonl"]'),
        "format": table.choice("format", FORMATS, "auto"),
        "text": table.take("text", str, "text"),
        "document": table.choice("document", DOCUMENTS, "line"),
        "on_bad": table.choice("on_bad", POLICIES, "error"),
        "max_rejected": table.take("max_rejected", float, 1.0),
    }
    table.close()
    try:
        return DomainSpec(**values)
    except ConfigError as error:
        raise ConfigError(f"{place}: {error}") from None
