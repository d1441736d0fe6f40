"""Names of pre-tokenizers, and how each is written in a `tokenizer.json`.

`gpt2m` (the default) is GPT-2's pattern with combining marks kept with their letters: GPT-2's own splits words of
Tamil, Burmese, Khmer and Telugu at their marks, and no choice of merges can make up for that. `clause` is the same with
words that one blank parts kept together, so that merges may join words. `paper` and `line` are
the pre-tokenizers of the parity-aware reference implementation; they put a space before pieces and lose white space.
"""

from __future__ import annotations

from typing import Any

from headrace.native import pattern_names, pattern_regex
from headrace.proto.errors import UsageError

NAMES: tuple[str, ...] = tuple(pattern_names())
DEFAULT = NAMES[0]
CLAUSE = "clause"
LOSSY = ("paper", "line")

# Two names for one expression, or one written in another way.
_SAME = {"llama3": "cl100k"}
_SPELLINGS = {
    r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+": "gpt2",
    r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]|\s+(?!\S)|\s": "cl100k",  # noqa: E501
}


def checked(name: str) -> str:
    """The canonical name of a pre-tokenizer, or UsageError that lists the names."""
    try:
        pattern_regex(name)
    except ValueError as error:
        raise UsageError(str(error)) from None
    return _SAME.get(name, name)


def from_regex(source: str) -> str:
    """The name of the pattern whose expression this is, else `regex:SOURCE`."""
    known = {pattern_regex(name): name for name in reversed(NAMES) if name not in _SAME}
    return known.get(source) or _SPELLINGS.get(source) or f"regex:{source}"


def _byte_level(*, space: bool, regex: bool) -> dict[str, Any]:
    return {"type": "ByteLevel", "add_prefix_space": space, "trim_offsets": True, "use_regex": regex}


def to_json(name: str) -> dict[str, Any]:
    """The `pre_tokenizer` part of a `tokenizer.json`."""
    if name == "gpt2":
        return _byte_level(space=False, regex=True)
    if name == "line":
        return _byte_level(space=True, regex=False)
    if name == "paper":
        parts: list[dict[str, Any]] = [{"type": "Whitespace"}, _byte_level(space=True, regex=False)]
    else:
        split = {"type": "Split", "pattern": {"Regex": pattern_regex(name)}, "behavior": "Isolated", "invert": False}
        parts = [split, _byte_level(space=False, regex=False)]
    return {"type": "Sequence", "pretokenizers": parts}


def from_json(part: Any) -> str | None:
    """The name of the pre-tokenizer that a `tokenizer.json` describes; None if it is none of ours."""
    match part:
        case {"type": "ByteLevel", "add_prefix_space": False, "use_regex": True}:
            return "gpt2"
        case {"type": "ByteLevel", "add_prefix_space": True, "use_regex": False}:
            return "line"
        case {
            "type": "Sequence",
            "pretokenizers": [
                {"type": "Whitespace"},
                {"type": "ByteLevel", "add_prefix_space": True, "use_regex": False},
            ],
        }:
            return "paper"
        case {
            "type": "Sequence",
            "pretokenizers": [
                {"type": "Split", "pattern": {"Regex": str(source)}, "behavior": "Isolated", "invert": False},
                {"type": "ByteLevel", "add_prefix_space": False, "use_regex": False},
            ],
        }:
            return from_regex(source)
    return None
