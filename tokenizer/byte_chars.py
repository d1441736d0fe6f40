"""The byte characters of GPT-2: how token strings are written in `tokenizer.json`, `merges.txt` and `vocab.json`."""

from __future__ import annotations

_PRINTABLE = {*range(33, 127), *range(161, 173), *range(174, 256)}
_OTHERS = [byte for byte in range(256) if byte not in _PRINTABLE]

CHARS: tuple[str, ...] = tuple(
    chr(byte) if byte in _PRINTABLE else chr(256 + _OTHERS.index(byte)) for byte in range(256)
)
"""The character of each byte."""

_BYTES = {char: byte for byte, char in enumerate(CHARS)}


def to_chars(token: bytes) -> str:
    """Write a token's bytes as byte characters."""
    return "".join(CHARS[byte] for byte in token)


def from_chars(text: str) -> bytes:
    """The bytes that byte characters stand for; KeyError for a character that stands for none."""
    return bytes(_BYTES[char] for char in text)
