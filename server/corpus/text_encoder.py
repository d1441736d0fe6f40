"""Texts to documents of token ids: the tokenizer, the bos and eos of each document, and the checks between them."""

from __future__ import annotations

import functools
import os
from collections import Counter
from os.path import commonprefix
from pathlib import Path

from headrace.native import Texts, encode_documents
from headrace.proto.errors import ConfigError, UsageError
from headrace.server.corpus.shard import Encoded
from headrace.server.corpus.token_tables import TokenTables
from headrace.tokenizer.tokenizer import Tokenizer

SPECIAL_TEXT = "special_text"
LARGE_BYTES = 1 << 25  # texts of more bytes than this are divided among the threads


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

    def __init__(self, tokenizer: Tokenizer, *, bos: bool, eos: bool, id_bytes: int, threads: int | None) -> None:
        self._tokenizer = tokenizer
        self._bos, self._eos = wanted_ids(tokenizer, bos=bos, eos=eos)
        self._id_bytes = id_bytes
        self.threads = threads or len(os.sched_getaffinity(0))
        self._prefix = commonprefix(list(tokenizer.special_ids))  # noqa: RUF071 - of strings, not of paths

    @property
    def tables(self) -> TokenTables:
        """The bins of its ids, for profiles."""
        return tables_of(self._tokenizer)

    @property
    def added(self) -> int:
        """Ids that each document gets beside those of its text."""
        return (self._bos is not None) + (self._eos is not None)

    def encode(self, texts: Texts, notes: Counter[str]) -> Encoded:
        """One document a text, in order."""
        threads = 1 if texts.bytes < LARGE_BYTES else self.threads
        try:
            ids, ends, digests, sizes, spelled = encode_documents(
                self._tokenizer.native,
                texts,
                self._bos,
                self._eos,
                self._id_bytes,
                self._prefix,
                threads,
            )
        except ValueError as error:
            raise UsageError(f"the tokenizer cannot encode this text: {error}") from None
        # What all special tokens begin with is in few texts, and looking for it costs a hundredth of counting.
        if self._tokenizer.special_ids and not self._prefix:
            spelled = list(range(len(texts)))
        if spelled:
            spelling = self._tokenizer.count_special_text([texts[number] for number in spelled])
            notes[SPECIAL_TEXT] += sum(spelling.values())
        return Encoded(ids, ends, texts.rows, digests.reshape(-1, 16), sizes)
