"""Decode ids as they come: text as soon as its characters are whole.

    decoder = StreamDecoder(tokenizer)
    for id in ids:
        print(decoder.feed([id]), end="")       # "" while a character still lacks bytes
    print(decoder.finish(), end="")

The parts joined are `tokenizer.decode_text` of all ids, whatever the ids and however they were cut: bytes that are no
UTF-8 become U+FFFD, and a character whose bytes span several ids comes out once, whole.
"""

from __future__ import annotations

import codecs

import numpy.typing as npt
from headrace.proto.errors import UsageError
from headrace.tokenizer.tokenizer import Tokenizer


class StreamDecoder:
    """Text of ids that come in parts; at most three bytes wait for the rest of their character."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._finished = False

    def feed(self, ids: npt.ArrayLike) -> str:
        """The text that these ids complete. UsageError for an id outside the vocabulary, which changes nothing."""
        if self._finished:
            raise UsageError("this stream is finished; make a new decoder for another one")
        return self._decoder.decode(self._tokenizer.decode(ids))

    def finish(self) -> str:
        """What is left: U+FFFD where a character was never completed, else nothing."""
        self._finished = True
        return self._decoder.decode(b"", final=True)
