"""The writing system of a character, by its code point: coarse, fixed ranges that no Unicode update moves."""

from __future__ import annotations

from bisect import bisect_right

_RANGES: tuple[tuple[int, int, str], ...] = (
    (0x0041, 0x024F, "latin"),
    (0x0250, 0x02AF, "latin"),
    (0x0300, 0x036F, "mark"),
    (0x0370, 0x03FF, "greek"),
    (0x0400, 0x052F, "cyrillic"),
    (0x0530, 0x058F, "armenian"),
    (0x0590, 0x05FF, "hebrew"),
    (0x0600, 0x06FF, "arabic"),
    (0x0750, 0x077F, "arabic"),
    (0x08A0, 0x08FF, "arabic"),
    (0x0900, 0x097F, "devanagari"),
    (0x0980, 0x09FF, "bengali"),
    (0x0A00, 0x0A7F, "gurmukhi"),
    (0x0A80, 0x0AFF, "gujarati"),
    (0x0B00, 0x0B7F, "odia"),
    (0x0B80, 0x0BFF, "tamil"),
    (0x0C00, 0x0C7F, "telugu"),
    (0x0C80, 0x0CFF, "kannada"),
    (0x0D00, 0x0D7F, "malayalam"),
    (0x0D80, 0x0DFF, "sinhala"),
    (0x0E00, 0x0E7F, "thai"),
    (0x0E80, 0x0EFF, "lao"),
    (0x0F00, 0x0FFF, "tibetan"),
    (0x1000, 0x109F, "myanmar"),
    (0x10A0, 0x10FF, "georgian"),
    (0x1100, 0x11FF, "hangul"),
    (0x1200, 0x139F, "ethiopic"),
    (0x1780, 0x17FF, "khmer"),
    (0x1E00, 0x1EFF, "latin"),
    (0x1F00, 0x1FFF, "greek"),
    (0x3040, 0x30FF, "kana"),
    (0x3130, 0x318F, "hangul"),
    (0x3400, 0x4DBF, "han"),
    (0x4E00, 0x9FFF, "han"),
    (0xAC00, 0xD7A3, "hangul"),
    (0xF900, 0xFAFF, "han"),
    (0xFB50, 0xFDFF, "arabic"),
    (0xFE70, 0xFEFC, "arabic"),
    (0x20000, 0x3134F, "han"),
)
NONE, FRAGMENT, OTHER = "none", "fragment", "other"
SCRIPTS: tuple[str, ...] = (
    NONE,
    FRAGMENT,
    OTHER,
    *dict.fromkeys(name for _, _, name in _RANGES if name != "mark"),
)
"""Names in the order of their numbers; new ones go to the end only."""
_NUMBER = {name: number for number, name in enumerate(SCRIPTS)}
_STARTS = [start for start, _, _ in _RANGES]


def script_of(char: str) -> str:
    """The script of a letter; `none` for what is no letter, `other` for letters of scripts that are not listed."""
    if not char.isalpha():
        return NONE
    code = ord(char)
    at = bisect_right(_STARTS, code) - 1
    if at < 0 or code > _RANGES[at][1]:
        return OTHER
    name = _RANGES[at][2]
    return NONE if name == "mark" else name


def script_number(token: bytes) -> int:
    """The script of a token's first letter.

    A token that ends within a character counts as the script that its first bytes lead to; one that only continues a
    character is a `fragment`.
    """
    text = token.decode("utf-8", errors="ignore")
    found = next((name for name in map(script_of, text) if name != NONE), None)
    return _NUMBER[found or (NONE if is_whole(token) else _completed(token))]


def is_whole(token: bytes) -> bool:
    """Whether the bytes are whole characters."""
    try:
        token.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


def _completed(token: bytes) -> str:
    for padding in (b"\x80", b"\x80\x80", b"\x80\x80\x80", b"\xa0\x80", b"\x90\x80\x80"):
        text = (token + padding).decode("utf-8", errors="ignore")
        found = next((name for name in map(script_of, text) if name != NONE), None)
        if found is not None:
            return found
    return FRAGMENT
