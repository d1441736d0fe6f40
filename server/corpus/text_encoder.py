"""Texts to documents of token ids: the tokenizer, the bos and eos of each document, and the checks between them."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Sequence
from os.path import commonprefix
from pathlib import Path

import numpy as np
from headrace.native import text_digests, texts_with, wrap_documents
from headrace.proto.errors import ConfigError
from headrace.server.corpus.shard import Encoded
from headrace.server.corpus.token_tables import TokenTables
from headrace.tokenizer.tokenizer import Tokenizer

SPECIAL_TEXT = "special_text"


def wanted_ids(tokenizer: Tokenizer, *, bos: bool, eos: bool | None) -> tuple[int | None, int | None]:
    """The ids to put before and after each document; asking for one that the tokenizer lacks is an error."""
    if bos and tokenizer.bos_id is None:
        raise ConfigError("`bos = true`, but the tokenizer has no bos token; train one with it or leave bos out")
    if eos and tokenizer.eos_id is None:
        raise ConfigError(
            "`eos = true`, but the tokenizer has no end-of-text token; train one with it or say eos = false"
        )
    return (tokenizer.bos_id if bos else None), (tokenizer.eos_id if eos is not False else None)


@functools.lru_cache(maxsize=2)
def load_tokenizer(path: str, digest: str) -> Tokenizer:
    """The tokenizer at `path`, refused when its digest is another one."""
    tokenizer = Tokenizer.load(Path(path))
    if tokenizer.digest.hex() != digest:
        raise ConfigError(f"the tokenizer `{path}` was changed while the corpus was built; build again")
    return tokenizer


@functools.lru_cache(maxsize=2)
def tables_of(tokenizer: Tokenizer) -> TokenTables:
    """The tables of a tokenizer, made once: half a second for a large vocabulary."""
    return TokenTables.of(tokenizer)


class TextEncoder:
    """Encodes groups of texts; text that spells a special token stays plain text and is counted."""

    def __init__(self, tokenizer: Tokenizer, *, bos: bool, eos: bool, threads: int | None) -> None:
        self._tokenizer = tokenizer
        self._bos, self._eos = wanted_ids(tokenizer, bos=bos, eos=eos)
        self._threads = threads
        self._prefix = commonprefix(list(tokenizer.special_ids))  # noqa: RUF071 - of strings, not of paths
        self._has_specials = bool(tokenizer.special_ids)

    @property
    def tables(self) -> TokenTables:
        """The bins of its ids, for profiles."""
        return tables_of(self._tokenizer)

    @property
    def added(self) -> int:
        """Ids that each document gets beside those of its text."""
        return (self._bos is not None) + (self._eos is not None)

    def encode(self, texts: Sequence[str], rows: Sequence[int], notes: Counter[str]) -> Encoded:
        """One document a text, in order."""
        ids, ends = self._tokenizer.encode_batch(texts, threads=self._threads)
        if len(ends) != len(texts) or (len(ends) and int(ends[-1]) != len(ids)):
            raise ConfigError("the tokenizer answered for another number of texts than it was given")
        # What all special tokens begin with is in few texts, and looking for it costs a hundredth of counting.
        spelling = [texts[number] for number in texts_with(texts, self._prefix)] if self._has_specials else []
        if spelling:
            notes[SPECIAL_TEXT] += sum(self._tokenizer.count_special_text(spelling).values())
        all_ids, all_ends = wrap_documents(ids, ends, self._bos, self._eos)
        digests, sizes = text_digests(texts)
        flat = np.frombuffer(digests, np.uint8).reshape(-1, 16)
        return Encoded(all_ids, all_ends, np.asarray(rows, np.uint64), flat, sizes)
