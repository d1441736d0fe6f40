"""The tokenizer: text to ids and back, and its file.

    tokenizer = Tokenizer.load("tokenizer.json")
    ids, ends = tokenizer.encode_batch(["one text", "another"])     # one flat array, and where each text ends
    tokenizer.decode(ids)                                           # the bytes, exactly

Ids have a fixed order: special tokens, the 256 bytes by value, then the merged tokens in the order they were learned.
Text that spells a special token is text unless `allow_special=True`. Nothing is normalised: the bytes of a text come
back (but with the lossy pre-tokenizers `paper` and `line`, see `pretokenizer`).
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
from headrace.native import BpeEncoder
from headrace.proto.errors import UsageError
from headrace.tokenizer import layout, pretokenizer
from headrace.tokenizer.files import write_durably

DEFAULT_SPECIALS = ("<|endoftext|>", "<|pad|>")

_ROLES = {
    "pad": ("<|pad|>", "<pad>", "[PAD]", "<|padding|>", "<|finetune_right_pad_id|>"),
    "bos": ("<|begin_of_text|>", "<s>", "<|startoftext|>", "<bos>", "[BOS]"),
    "eos": ("<|endoftext|>", "<|end_of_text|>", "</s>", "<eos>", "[EOS]"),
}

Ids = npt.NDArray[np.uint32]
Ends = npt.NDArray[np.uint64]


class Tokenizer:
    """Byte-level BPE with exact round trip.

    Attributes:
        tokens: the bytes of each id; for a special token, its text.
        merges: pairs of ids in the order in which they are applied.
        special_ids: id of each special token by its text.
        pretokenizer: name of the pattern inside whose pieces merges happen (see `pretokenizer`).
    """

    def __init__(
        self,
        *,
        tokens: Sequence[bytes],
        merges: Sequence[tuple[int, int]],
        special_ids: Mapping[str, int],
        pretokenizer_name: str = pretokenizer.DEFAULT,
    ) -> None:
        self.tokens = tuple(tokens)
        self.merges = tuple(merges)
        self.special_ids = dict(sorted(special_ids.items(), key=lambda item: item[1]))
        self.pretokenizer = pretokenizer.checked(pretokenizer_name)
        try:
            self._encoder = BpeEncoder(self.pretokenizer, self.tokens, list(self.special_ids.values()), self.merges)
        except ValueError as error:
            raise UsageError(f"these tables make no tokenizer: {error}") from None

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Tokenizer:
        """Read a `tokenizer.json`; ConfigError names what this tokenizer cannot do exactly."""
        return cls.from_json(layout.read_text(Path(path)), place=str(path))

    @classmethod
    def from_json(cls, text: str, *, place: str = "tokenizer.json") -> Tokenizer:
        """The tokenizer that the text of a `tokenizer.json` describes; `place` names it in errors."""
        parts = layout.parse(text, place)
        return cls(
            tokens=parts.tokens,
            merges=parts.merges,
            special_ids=parts.special_ids,
            pretokenizer_name=parts.pretokenizer,
        )

    def to_json(self) -> str:
        """The text of the `tokenizer.json`, the same for equal tokenizers."""
        return layout.dump(
            layout.Parts(
                tokens=self.tokens,
                merges=self.merges,
                special_ids=self.special_ids,
                pretokenizer=self.pretokenizer,
            )
        )

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the `tokenizer.json`, whole or not at all."""
        write_durably(Path(path), self.to_json().encode())

    @property
    def digest(self) -> bytes:
        """32 bytes (SHA-256) over what decides the ids: tokens, merges, special tokens, pre-tokenizer."""
        content = {
            "tokens": [token.hex() for token in self.tokens],
            "merges": self.merges,
            "specials": self.special_ids,
            "pretokenizer": pretokenizer.to_json(self.pretokenizer),
        }
        return hashlib.sha256(json.dumps(content, sort_keys=True, separators=(",", ":")).encode()).digest()

    @property
    def vocab_size(self) -> int:
        """Number of ids, special ones included."""
        return len(self.tokens)

    @property
    def native(self) -> BpeEncoder:
        """The tables in the Rust core, for callers that stay there."""
        return self._encoder

    @property
    def pad_id(self) -> int | None:
        """Id of the padding token, None when there is none."""
        return self._role("pad")

    @property
    def bos_id(self) -> int | None:
        """Id of the token that begins a text, None when there is none."""
        return self._role("bos")

    @property
    def eos_id(self) -> int | None:
        """Id of the token that ends a text, None when there is none."""
        return self._role("eos")

    def _role(self, role: str) -> int | None:
        return next((self.special_ids[name] for name in _ROLES[role] if name in self.special_ids), None)

    def encode(self, text: str, *, allow_special: bool = False) -> Ids:
        """Ids of one text, uint32."""
        return self.encode_batch([text], allow_special=allow_special, threads=1)[0]

    def encode_batch(
        self, texts: Sequence[str], *, allow_special: bool = False, threads: int | None = None
    ) -> tuple[Ids, Ends]:
        """Ids of all texts in one flat uint32 array, and uint64 ends: text i has ids[ends[i-1]:ends[i]].

        Runs without the GIL on `threads` threads (all cores by default); the result does not depend on them. With
        `allow_special` text that spells a special token becomes that token.
        """
        try:
            return self._encoder.encode_batch(texts, allow_special, threads or os.cpu_count() or 1)
        except UnicodeEncodeError as error:
            raise _lone_surrogate(texts, error) from None
        except ValueError as error:
            raise UsageError(f"cannot encode with the pre-tokenizer `{self.pretokenizer}`: {error}") from None

    def encode_buffer(
        self,
        content: npt.NDArray[np.uint8],
        offsets: npt.NDArray[np.int64],
        *,
        allow_special: bool = False,
        threads: int | None = None,
    ) -> tuple[Ids, Ends]:
        """`encode_batch` of texts that lie side by side as UTF-8: text i is content[offsets[i]:offsets[i+1]]."""
        try:
            return self._encoder.encode_buffer(content, offsets, allow_special, threads or os.cpu_count() or 1)
        except ValueError as error:
            raise UsageError(f"cannot encode with the pre-tokenizer `{self.pretokenizer}`: {error}") from None

    def count_special_text(self, texts: Sequence[str]) -> dict[str, int]:
        """How often each special token is spelled in texts; what `encode` takes for plain text by default."""
        names = {token: name for name, token in self.special_ids.items()}
        return {names[token]: count for token, count in self._encoder.count_specials(texts)}

    def decode(self, ids: npt.ArrayLike) -> bytes:
        """The bytes of ids, exactly. They need not be valid UTF-8: a character may span several ids."""
        array = np.asarray(ids)
        if array.size and (array.dtype.kind not in "iu" or int(array.min()) < 0 or int(array.max()) >= 2**32):
            raise UsageError(f"ids must be whole numbers from 0 to {self.vocab_size - 1}, not {array.dtype} {array!r}")
        try:
            return self._encoder.decode(np.ascontiguousarray(array, dtype=np.uint32).ravel())
        except ValueError as error:
            raise UsageError(f"cannot decode: {error}") from None

    def decode_text(self, ids: npt.ArrayLike) -> str:
        """The text of ids; bytes that are no UTF-8 become U+FFFD."""
        return self.decode(ids).decode("utf-8", errors="replace")

    def unreachable(self) -> tuple[int, ...]:
        """Ids that no text can give, because their own merges end in other tokens."""
        return tuple(self._encoder.unreachable())

    def __repr__(self) -> str:
        return f"Tokenizer(vocab_size={self.vocab_size}, pretokenizer={self.pretokenizer!r})"


def _lone_surrogate(texts: Iterable[str], error: UnicodeEncodeError) -> UsageError:
    """Name the text that no UTF-8 can hold."""
    for number, text in enumerate(texts):
        try:
            text.encode()
        except UnicodeEncodeError as found:
            code = ord(text[found.start])
            return UsageError(
                f"text {number} has a lone surrogate U+{code:04X} at character {found.start}, which is no Unicode "
                f"text; replace it first, for instance with text.encode('utf-8', 'replace').decode()"
            )
    return UsageError(f"a text is no Unicode text: {error}")
