"""What a vocabulary holds in vain: ids that no text can give, and bytes that have two ids.

Three causes are told apart. A token is `unreachable` when its own merges end in other tokens. It is `cut` when the
pre-tokenizer always cuts it in two, whatever stands around it. And it is a `duplicate` when an earlier id has the same
bytes. What a given text does not use is `dead` there; that is counted by `evaluate`.
"""

from __future__ import annotations

from dataclasses import dataclass

from headrace.native import split_pieces
from headrace.tokenizer.tokenizer import Tokenizer

_AROUND = ("", " ", "a", "1", "!", "\n", "'", "é", "中")


@dataclass(frozen=True, kw_only=True, slots=True)
class Vocabulary:
    """Ids that are useless in any text, ascending."""

    unreachable: tuple[int, ...]
    cut: tuple[int, ...]
    duplicate: tuple[int, ...]

    @property
    def useless(self) -> int:
        """How many ids these are."""
        return len({*self.unreachable, *self.cut, *self.duplicate})


def examine(tokenizer: Tokenizer) -> Vocabulary:
    """Look at every token but the special ones."""
    special = set(tokenizer.special_ids.values())
    seen: set[bytes] = set()
    cut, duplicate = [], []
    for number, token in enumerate(tokenizer.tokens):
        if number in special:
            continue
        if token in seen:
            duplicate.append(number)
        seen.add(token)
        if _is_always_cut(tokenizer.pretokenizer, token):
            cut.append(number)
    return Vocabulary(unreachable=tokenizer.unreachable(), cut=tuple(cut), duplicate=tuple(duplicate))


def _is_always_cut(pattern: str, token: bytes) -> bool:
    """Whether a token has a border of pieces inside it in every context tried; parts of characters are passed over."""
    try:
        text = token.decode()
    except UnicodeDecodeError:
        return False
    if len(text) < 2 or len(split_pieces(pattern, text)) == 1:
        return False
    return all(_is_cut(pattern, before, text, after) for before in _AROUND for after in _AROUND)


def _is_cut(pattern: str, before: str, text: str, after: str) -> bool:
    start, at = len(before.encode()), 0
    end = start + len(text.encode())
    for piece in split_pieces(pattern, before + text + after):
        at += len(piece)
        if start < at < end:
            return True
    return False
