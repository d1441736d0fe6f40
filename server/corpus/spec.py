"""CORPUS.toml: which files become which domains, with which tokenizer, under which rules.

    [corpus]
    out = "corpus"                      # folder to write
    tokenizer = "tokenizer.json"        # relative paths start at the folder of this file
    bos = false                         # begin each document with the tokenizer's bos id
    eos = true                          # end each document with its end-of-text id; default: when it has one
    id_bytes = 2                        # 2 or 4; default: what the vocabulary needs
    tail = "pad"                        # the last, unfilled window of `concat`: pad it, or drop it
    [[domain]]
    name = "deu"                        # or "{source}-{lang}", from fields of each document
    files = ["raw/deu/*.jsonl.zst"]     # globs, `**` for any depth; all matches sorted bytewise; s3://bucket/... too
    format = "auto"                     # auto (by suffix), jsonl, text, parquet, arrow
    text = "text"                       # field that holds the text; dots go into objects: "body.text"
    document = "line"                   # text files: a document a line, a file, or what `separator` separates
    where = "tokens >= 512"             # which documents; see `where`
    holdout = 0.001                     # share of documents, by hash of the text, kept for evaluation
    duplicates = "keep"                 # keep, or drop all but the first of equal texts in the domain
    keep = ["license"]                  # fields to store with each document, so that masks can name their values
    on_bad = "error"                    # a bad document: error, replace (bad characters), skip
    on_damaged = "error"                # a damaged file: error, skip (all of it)
    max_rejected = 1.0                  # share of documents that may be rejected before the build fails

Unknown keys and wrong types are errors that name file and line.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import lru_cache
from pathlib import Path
from typing import Any

from headrace.proto.errors import ConfigError
from headrace.server.corpus.where import Where, parse_where
from headrace.server.plan.strict import Table, parse

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,63}")
PLACEHOLDER = re.compile(r"\{([^{}]*)\}")
FORMATS = ("auto", "jsonl", "text", "parquet", "arrow")
POLICIES = ("error", "replace", "skip")
DOCUMENTS = ("line", "file", "separator")
TAILS = ("pad", "drop")

_parse_where = lru_cache(parse_where)


@dataclass(frozen=True, kw_only=True, slots=True)
class DomainSpec:
    """One [[domain]] entry; `name` may hold `{field}` and then stands for many domains."""

    name: str
    files: tuple[str, ...]
    format: str = "auto"
    text: str = "text"
    document: str = "line"
    separator: str = ""
    where: str = ""
    holdout: float = 0.0
    duplicates: str = "keep"
    keep: tuple[str, ...] = ()
    on_bad: str = "error"
    on_damaged: str = "error"
    max_rejected: float = 1.0

    def __post_init__(self) -> None:
        if not NAME.fullmatch(PLACEHOLDER.sub("x", self.name)):
            raise ConfigError(
                f"`{self.name}` cannot be a `name`; names match {NAME.pattern}, with {{field}} for a field's value"
            )
        if not all(part for name in (self.text, *self.name_fields, *self.keep) for part in name.split(".")):
            raise ConfigError(f"domain `{self.name}`: an empty field name in `{self.text}` or in the name")
        if not 0 <= self.max_rejected <= 1:
            raise ConfigError(f"domain `{self.name}`: `max_rejected` is a share from 0 to 1, not {self.max_rejected}")
        if not 0 <= self.holdout < 1:
            raise ConfigError(f"domain `{self.name}`: `holdout` is a share from 0 to below 1, not {self.holdout}")
        if bool(self.separator) != (self.document == "separator"):
            raise ConfigError(f'domain `{self.name}`: `separator` goes with `document = "separator"`, and only with it')
        _ = self.filter

    @property
    def name_fields(self) -> tuple[str, ...]:
        """Fields whose values make the domain's name."""
        return tuple(PLACEHOLDER.findall(self.name))

    @property
    def filter(self) -> Where | None:
        """The parsed `where`."""
        return _parse_where(self.where) if self.where else None

    @property
    def fields(self) -> tuple[str, ...]:
        """Fields beside the text that a reader must bring, each once."""
        found = self.filter
        return tuple(sorted({*self.name_fields, *(found.fields if found else ()), *self.keep}))

    def options(self) -> dict[str, Any]:
        """What decides the content of a token store, beside the source and the tokenizer."""
        unused = {"files", "max_rejected", "on_damaged", "duplicates"}
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
    tail: str = "pad"
    root: Path = Path()
    place: str = "CORPUS.toml"

    def __post_init__(self) -> None:
        if self.id_bytes not in (None, 2, 4):
            raise ConfigError(f"{self.place}: `id_bytes` is 2 or 4, not {self.id_bytes}")
        if not self.domains:
            raise ConfigError(f"{self.place}: no [[domain]]; name at least one")
        names = [domain.name for domain in self.domains]
        if len(set(names)) < len(names):
            raise ConfigError(f"{self.place}: two [[domain]] of one name: {', '.join(names)}")

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
            raise ConfigError(f"{path}: this file is not UTF-8; save it as UTF-8") from None
        except OSError as error:
            raise ConfigError(f"cannot read `{path}`: {error.strerror}; name a CORPUS.toml") from None
        return cls.from_toml(text, place=str(path), root=Path(path).parent)

    @classmethod
    def from_toml(cls, text: str, *, place: str = "CORPUS.toml", root: Path = Path()) -> CorpusSpec:
        """Parses; every error names `place` and, where it can, the line."""
        top = parse(text, place=place)
        corpus = top.table("corpus")
        values: dict[str, Any] = {
            "out": corpus.text("out", "corpus"),
            "tokenizer": corpus.text("tokenizer", "tokenizer.json"),
            "bos": _flag(corpus, "bos", False),
            "eos": _flag(corpus, "eos", None),
            "id_bytes": _id_bytes(corpus) if corpus.has("id_bytes") else None,
            "tail": corpus.choice("tail", TAILS, "pad"),
        }
        corpus.done({"[[domain]]": (field.name for field in fields(DomainSpec))})
        tables = top.tables("domain")
        domains = tuple(_domain(table) for table in tables)
        top.done()
        _check_names(tables, [domain.name for domain in domains])
        return cls(**values, domains=domains, root=root, place=place)


def _check_names(tables: Sequence[Table], names: Sequence[str]) -> None:
    for number, (table, name) in enumerate(zip(tables, names, strict=True)):
        if name in names[:number]:
            raise table.error("name", f"domain `{name}` is named twice; give all its files in one [[domain]]")


def _id_bytes(table: Table) -> int:
    value = table.integer("id_bytes", 2, 4)
    if value == 3:
        raise table.error("id_bytes", "`corpus.id_bytes` is 2 or 4, not 3")
    return value


def _flag(table: Table, key: str, default: bool | None) -> bool | None:
    value = table.take(key, default)
    if value is not None and not isinstance(value, bool):
        raise table.error(key, f"`{table.name(key)}` must be true or false, not `{value}`")
    return value


def _strings(table: Table, key: str, example: str) -> tuple[str, ...]:
    values = table.take(key)
    if not isinstance(values, list) or not values or not all(isinstance(value, str) and value for value in values):
        raise table.error(key, f"`domain.{key}` must be a list of texts, for example {example}")
    return tuple(values)


def _domain(table: Table) -> DomainSpec:
    values: dict[str, Any] = {
        "name": table.text("name"),
        "files": _strings(table, "files", '["raw/*.jsonl"]'),
        "format": table.choice("format", FORMATS, "auto"),
        "text": table.text("text", "text"),
        "document": table.choice("document", DOCUMENTS, "line"),
        "where": table.text("where") if table.has("where") else "",
        "separator": table.text("separator") if table.has("separator") else "",
        "holdout": float(table.number("holdout", 0)),
        "duplicates": table.choice("duplicates", ("keep", "drop"), "keep"),
        "keep": _strings(table, "keep", '["license"]') if table.has("keep") else (),
        "on_bad": table.choice("on_bad", POLICIES, "error"),
        "on_damaged": table.choice("on_damaged", ("error", "skip"), "error"),
        "max_rejected": float(table.number("max_rejected", 1)),
    }
    table.done({"[corpus]": (field.name for field in fields(CorpusSpec))})
    try:
        return DomainSpec(**values)
    except ConfigError as error:
        raise table.error(table.named_in(str(error)), str(error)) from None
