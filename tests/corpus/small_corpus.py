"""Corpora small enough to build in a moment, with a tokenizer whose ids are bytes."""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from headrace.native import Texts
from headrace.server.corpus.account import Account
from headrace.server.corpus.bytestream import Source
from headrace.server.corpus.manifest import Corpus
from headrace.server.corpus.readers import read_rows
from headrace.server.corpus.spec import CorpusSpec, DomainSpec
from headrace.tokenizer.tokenizer import Tokenizer

SPECIALS = ("<|endoftext|>", "<|pad|>")
EOS, PAD, FIRST = 0, 1, 2
CASES = Path(__file__).resolve().parents[2].parent / "shared" / "cases" / "inputs"
ONE = '[[domain]]\nname = "d"\nfiles = ["raw/*.jsonl"]\n'


def save_byte_tokenizer(path: Path, specials: Iterable[str] = SPECIALS, extra: int = 0) -> Tokenizer:
    """A tokenizer of special tokens, the 256 bytes and `extra` tokens more; the id of byte b is len(specials) + b.

    The last of the extra tokens is `zz`.
    """
    names = tuple(specials)
    tokens = [name.encode() for name in names] + [bytes([byte]) for byte in range(256)]
    pairs = [divmod(number, 256) for number in range(65_536)]
    pairs.remove((ord("z"), ord("z")))
    chosen = [*pairs[: extra - 1], (ord("z"), ord("z"))] if extra else []
    merges = [(len(names) + left, len(names) + right) for left, right in chosen]
    tokens += [bytes(pair) for pair in chosen]
    tokenizer = Tokenizer(tokens=tokens, merges=merges, special_ids={name: number for number, name in enumerate(names)})
    tokenizer.save(path)
    return tokenizer


def write_jsonl(path: Path, records: Iterable[Mapping[str, Any] | str]) -> Path:
    """One record a line; a string is a record whose text it is."""
    path.parent.mkdir(parents=True, exist_ok=True)
    whole = [record if isinstance(record, Mapping) else {"text": record} for record in records]
    path.write_text("".join(json.dumps(record, ensure_ascii=False) + "\n" for record in whole), encoding="utf-8")
    return path


def all_of(texts: Texts) -> list[str]:
    return [texts[number] for number in range(len(texts))]


def read(path: Path, **options: Any) -> tuple[list[str], Account]:
    """The texts of a source file, and its books."""
    spec = DomainSpec(name="d", files=("*",), **options)
    account = Account(path.name, spec)
    source = Source(str(path), path.name)
    texts = [text for rows in account.admit(read_rows(source, spec, account.notes)) for text in all_of(rows.texts)]
    assert account.read == len(texts) + account.rejected.total()
    assert source.size == path.stat().st_size
    assert source.hash
    return texts, account


def spec_of(root: Path, domains: str, corpus: str = "") -> CorpusSpec:
    text = f'[corpus]\nout = "corpus"\ntokenizer = "tokenizer.json"\n{corpus}\n{domains}'
    return CorpusSpec.from_toml(text, root=root)


def stream(texts: Iterable[str]) -> list[int]:
    return [each for text in texts for each in [*(byte + FIRST for byte in text.encode()), EOS]]


def ids_of(corpus: Corpus, domain: str, seq_len: int) -> npt.NDArray[Any]:
    """All windows of a view, a row each."""
    count = corpus.view(domain, seq_len, "concat").windows
    rows = corpus.read(seq_len, "concat", [domain], np.zeros(count, np.uint32), np.arange(count, dtype=np.uint64))
    dtype = np.uint16 if corpus.id_bytes == 2 else np.uint32
    return np.frombuffer(rows.ids, dtype).reshape(count, seq_len + 1)


def tokens_of(corpus: Corpus, domain: str) -> list[int]:
    total = corpus.tokens(domain)
    return [int(each) for each in ids_of(corpus, domain, 64)[:, :-1].ravel()[:total]]


def texts_of(corpus: Corpus, domain: str) -> list[str]:
    raw = bytes(each - FIRST if each >= FIRST else 0xFF for each in tokens_of(corpus, domain))
    return [part.decode() for part in raw.split(b"\xff")[:-1]]


def tree_hash(folder: Path) -> str:
    """Hash over names and bytes of all files."""
    hasher = hashlib.sha256()
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        hasher.update(str(path.relative_to(folder)).encode() + b"\0" + path.read_bytes())
    return hasher.hexdigest()


def some_texts(seed: int, count: int, longest: int = 300) -> list[str]:
    rng = random.Random(seed)
    letters = "abcdefghij \u00e9\u4e2d\U0001f600"
    return ["".join(rng.choices(letters, k=rng.randint(1, longest))) for _ in range(count)]
