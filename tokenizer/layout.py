"""The `tokenizer.json` of Hugging Face: written in one fixed way, read strictly.

Special tokens come first, then the 256 bytes by value, then merged tokens; no id is left out. What this tokenizer would
not do in the same way (normalizers, dropout, byte fallback, unknown pre-tokenizers) is refused by name when read.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headrace.proto.errors import ConfigError, UsageError
from headrace.tokenizer import byte_chars, pretokenizer

_DECODER = {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True}
_NEUTRAL = {
    "dropout": None,
    "unk_token": None,
    "continuing_subword_prefix": None,
    "end_of_word_suffix": None,
    "fuse_unk": False,
    "byte_fallback": False,
    "ignore_merges": False,
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Parts:
    """What a `tokenizer.json` tells: see the attributes of `Tokenizer`."""

    tokens: Sequence[bytes]
    merges: Sequence[tuple[int, int]]
    special_ids: Mapping[str, int]
    pretokenizer: str


def dump(parts: Parts) -> str:
    """The text of the file."""
    specials = {number: name for name, number in parts.special_ids.items()}
    names = [specials.get(i, byte_chars.to_chars(token)) for i, token in enumerate(parts.tokens)]
    content = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [_added(number, name) for number, name in sorted(specials.items())],
        "normalizer": None,
        "pre_tokenizer": pretokenizer.to_json(parts.pretokenizer),
        "post_processor": None,
        "decoder": _DECODER,
        "model": {
            "type": "BPE",
            **_NEUTRAL,
            "vocab": {name: i for i, name in enumerate(names)},
            "merges": [[names[left], names[right]] for left, right in parts.merges],
        },
    }
    return json.dumps(content, ensure_ascii=False, indent=1) + "\n"


def _added(number: int, name: str) -> dict[str, Any]:
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    return {"id": number, "content": name, **flags}


def read_text(path: Path) -> str:
    """The text of a tokenizer file."""
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise UsageError(f"cannot read the tokenizer `{path}`: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ConfigError(f"`{path}` is no tokenizer.json: it is no UTF-8 text") from None


def parse(text: str, place: str) -> Parts:
    """Read the text of a `tokenizer.json`; ConfigError names what is wrong or not supported."""
    try:
        content = json.loads(text)
        model = content["model"]
        vocab, merges = dict(model["vocab"]), list(model["merges"])
        added = list(content.get("added_tokens") or [])
    except (ValueError, KeyError, TypeError) as error:
        raise ConfigError(f"`{place}` is no tokenizer.json with a BPE model: {error!r}") from None
    _refuse_foreign(content, model, place)
    name = pretokenizer.from_json(content.get("pre_tokenizer"))
    if name is None:
        raise ConfigError(f"`{place}`: pre_tokenizer {json.dumps(content.get('pre_tokenizer'))} is not supported")
    special_ids = {str(token["content"]): int(token["id"]) for token in added}
    ids = {**vocab, **special_ids}
    tokens = _tokens(ids, special_ids, place)
    return Parts(tokens=tokens, merges=_merges(merges, vocab, place), special_ids=special_ids, pretokenizer=name)


def _refuse_foreign(content: dict[str, Any], model: dict[str, Any], place: str) -> None:
    if model.get("type", "BPE") != "BPE":
        raise ConfigError(f"`{place}`: model type `{model['type']}` is not supported, only byte-level BPE is")
    if content.get("normalizer") is not None:
        raise ConfigError(f"`{place}`: a normalizer changes text before it is encoded; it is not supported")
    wrong = {key: model[key] for key, value in _NEUTRAL.items() if model.get(key, value) not in (value, "", 0)}
    if wrong:
        raise ConfigError(f"`{place}`: model settings {wrong} are not supported")


def _tokens(ids: dict[str, int], special_ids: Mapping[str, int], place: str) -> list[bytes]:
    names = {number: name for name, number in ids.items()}
    if sorted(names) != list(range(len(ids))):
        raise ConfigError(f"`{place}`: ids must be 0 to {len(ids) - 1} without a gap or a repeat")
    try:
        return [
            names[i].encode() if names[i] in special_ids else byte_chars.from_chars(names[i]) for i in sorted(names)
        ]
    except KeyError as error:
        raise ConfigError(f"`{place}`: a token holds {error}, which is no GPT-2 byte character") from None


def _merges(merges: list[Any], vocab: dict[str, int], place: str) -> list[tuple[int, int]]:
    pairs = [merge.split(" ") if isinstance(merge, str) else merge for merge in merges]
    try:
        return [(vocab[left], vocab[right]) for left, right in pairs]
    except (KeyError, ValueError) as error:
        raise ConfigError(f"`{place}`: a merge names what is no token: {error}") from None
