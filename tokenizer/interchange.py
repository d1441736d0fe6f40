"""Other programs' tokenizer files: merge lists, GPT-2's vocab.json with merges.txt, tiktoken's ranks.

Ids are kept in every direction. (tiktoken merges any two neighbours whose joined bytes are a token, not only the pair
that was learned. The two rules give the same ids, because in BPE no token can be made in two ways; see the trainer.)
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from headrace.proto.errors import ConfigError, UsageError
from headrace.tokenizer import byte_chars
from headrace.tokenizer.files import write_durably
from headrace.tokenizer.layout import read_text
from headrace.tokenizer.tokenizer import Tokenizer

_VERSION = "#version: 0.2\n"


def merges_text(tokenizer: Tokenizer) -> str:
    """The merge list in the format of subword-nmt, GPT-2 and the parity-aware reference implementation."""
    chars = [byte_chars.to_chars(token) for token in tokenizer.tokens]
    return _VERSION + "".join(f"{chars[left]} {chars[right]}\n" for left, right in tokenizer.merges)


def write_gpt2(tokenizer: Tokenizer, folder: Path) -> None:
    """Write vocab.json and merges.txt into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    special = {number: name for name, number in tokenizer.special_ids.items()}
    names = [special.get(i, byte_chars.to_chars(token)) for i, token in enumerate(tokenizer.tokens)]
    vocab = json.dumps({name: i for i, name in enumerate(names)}, ensure_ascii=False)
    write_durably(folder / "vocab.json", vocab.encode())
    write_durably(folder / "merges.txt", merges_text(tokenizer).encode())


def read_gpt2(folder: Path, *, pretokenizer: str, specials: Sequence[str]) -> Tokenizer:
    """Read vocab.json and merges.txt; they name neither the pre-tokenizer nor the special tokens."""
    try:
        vocab = {str(name): int(number) for name, number in json.loads(read_text(folder / "vocab.json")).items()}
    except (ValueError, AttributeError):
        raise ConfigError(f"`{folder / 'vocab.json'}` is no JSON object of ids") from None
    lines = read_text(folder / "merges.txt").splitlines()
    pairs = [line.split(" ") for line in lines if line and not line.startswith("#version")]
    try:
        merges = [(vocab[left], vocab[right]) for left, right in pairs]
    except (KeyError, ValueError) as error:
        raise ConfigError(f"`{folder / 'merges.txt'}` has a merge that vocab.json does not know: {error}") from None
    special_ids = {name: _special_id(vocab, name, folder) for name in specials}
    tokens = _by_id({number: _token(name, special_ids) for name, number in vocab.items()}, folder)
    return Tokenizer(tokens=tokens, merges=merges, special_ids=special_ids, pretokenizer_name=pretokenizer)


def _special_id(vocab: Mapping[str, int], name: str, place: Path) -> int:
    if name not in vocab:
        raise UsageError(f"`{place}` has no token `{name}`, which was given as special")
    return vocab[name]


def _token(name: str, special_ids: Mapping[str, int]) -> bytes:
    try:
        return name.encode() if name in special_ids else byte_chars.from_chars(name)
    except KeyError:
        raise UsageError(f"token `{name}` has no GPT-2 byte characters; if it is special, give it as such") from None


def _by_id(tokens: Mapping[int, bytes], place: Path) -> list[bytes]:
    missing = next((number for number in range(len(tokens)) if number not in tokens), None)
    if missing is not None:
        raise ConfigError(f"`{place}`: id {missing} has no token, and ids must have no gap; give the special tokens")
    return [tokens[number] for number in range(len(tokens))]


def write_tiktoken(tokenizer: Tokenizer, path: Path) -> None:
    """Write mergeable ranks (the ids; special ones left out). Refused when an id order would change the merges."""
    text = [(i, token) for i, token in enumerate(tokenizer.tokens) if i not in tokenizer.special_ids.values()]
    made = [tokenizer.tokens[left] + tokenizer.tokens[right] for left, right in tokenizer.merges]
    ids = {token: i for i, token in text}
    if [ids[token] for token in made] != sorted(ids[token] for token in made):
        raise UsageError("tiktoken takes ids for ranks, but here the ids are not in the order of the merges")
    lines = [f"{base64.b64encode(token).decode()} {i}\n" for i, token in text]
    write_durably(path, "".join(lines).encode())


def read_tiktoken(path: Path, *, pretokenizer: str, special_ids: Mapping[str, int]) -> Tokenizer:
    """Read mergeable ranks; the merges are found by merging each token's bytes with the ranks below its own."""
    ranks: dict[bytes, int] = {}
    for number, line in enumerate(read_text(path).splitlines(), start=1):
        try:
            token, rank = line.split(" ")
            ranks[base64.b64decode(token, validate=True)] = int(rank)
        except ValueError:
            raise ConfigError(f"`{path}` line {number} is not `BASE64 RANK`") from None
    found = {rank: token for token, rank in ranks.items()} | {i: name.encode() for name, i in special_ids.items()}
    merges = [_parts(token, ranks, path) for token in sorted(ranks, key=ranks.__getitem__) if len(token) > 1]
    return Tokenizer(tokens=_by_id(found, path), merges=merges, special_ids=special_ids, pretokenizer_name=pretokenizer)


def _parts(token: bytes, ranks: Mapping[bytes, int], path: Path) -> tuple[int, int]:
    """The ids of the pair that a token is made of."""
    own, parts = ranks[token], [bytes([byte]) for byte in token]
    while len(parts) > 2:
        joined = [ranks.get(parts[i] + parts[i + 1], own) for i in range(len(parts) - 1)]
        best = min(range(len(joined)), key=joined.__getitem__)
        if joined[best] >= own:
            raise ConfigError(f"`{path}`: the token of rank {own} is not made of two tokens of lower rank")
        parts[best : best + 2] = [parts[best] + parts[best + 1]]
    return ranks[parts[0]], ranks[parts[1]]
