"""From the rows of one source to its shards: names, filters, encoding, holdout.

A document is held out when the hash of its text, as a fraction of 2^64, lies below the `holdout` share: equal texts
always fall on the same side, whatever else the corpus holds, so a corpus that grows never leaks into its evaluation.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from headrace.server.corpus.account import Account
from headrace.server.corpus.bytestream import Source
from headrace.server.corpus.documents import BAD_NAME, FILTERED, WRONG_TYPE, Row
from headrace.server.corpus.profile import Profile
from headrace.server.corpus.readers import read_rows
from headrace.server.corpus.shard import HOLDOUT, TRAIN, Encoded, ShardInfo, ShardWriter
from headrace.server.corpus.spec import NAME, PLACEHOLDER, DomainSpec
from headrace.server.corpus.text_encoder import TextEncoder
from headrace.server.corpus.where import Where

GROUP_CHARACTERS = 1 << 20
GROUP_DOCUMENTS = 2048
Named = tuple[str, Row]


def write_shards(
    source: Source,
    encoder: TextEncoder,
    account: Account,
    spec: DomainSpec,
    folder: Path,
    id_bytes: int,
    progress: Callable[[int, int, int], None],
) -> list[tuple[ShardInfo, Profile]]:
    """Reads the source to its end; its shards in the bytewise order of their files."""
    writers: dict[tuple[str, str], ShardWriter] = {}
    done = 0
    try:
        rows = _filtered(account.admit(read_rows(source, spec, account.notes)), spec.filter, account)
        for group in _groups(_named(rows, spec, account)):
            names, encoded = _encode(group, encoder, spec, account)
            for (name, part), documents in _split(names, encoded, spec.holdout):
                if (name, part) not in writers:
                    writers[name, part] = ShardWriter(folder, name, part, id_bytes=id_bytes)
                writers[name, part].add(documents)
                account.held_out += len(documents.ends) if part == HOLDOUT else 0
            progress(source.size - done, len(group), len(encoded.ids))
            done = source.size
        return [(writers[key].close(), writers[key].profile) for key in sorted(writers)]
    finally:
        for writer in writers.values():
            writer.abort()


def _filtered(rows: Iterable[Row], where: Where | None, account: Account) -> Iterator[Row]:
    """The rows that pass a filter on fields alone."""
    if where is None or where.needs_text:
        yield from rows
        return
    for row in rows:
        if _passes(where, row, row.fields, account):
            yield row


def _passes(where: Where, row: Row, values: Mapping[str, Any], account: Account) -> bool:
    try:
        passes = where.test(values)
    except TypeError as error:
        account.reject(row, WRONG_TYPE, f"where: {error}")
        return False
    if not passes:
        account.rejected[FILTERED] += 1
    return passes


def _named(rows: Iterable[Row], spec: DomainSpec, account: Account) -> Iterator[Named]:
    """Each row with the name of its domain."""
    if not spec.name_fields:
        for row in rows:
            yield spec.name, row
        return
    for row in rows:
        name = _fill(spec.name, row.fields)
        if NAME.fullmatch(name):
            yield name, row
        else:
            values = {field: row.fields.get(field) for field in spec.name_fields}
            account.reject(row, BAD_NAME, f"the fields {values} make `{name}`, which is no name for a domain")


def _fill(template: str, values: Mapping[str, object]) -> str:
    """The name with the fields' values in it; one that is neither text nor a whole number makes it invalid."""

    def plain(found: re.Match[str]) -> str:
        value = values.get(found.group(1))
        return str(value) if type(value) in (str, int) else found.group()

    return PLACEHOLDER.sub(plain, template)


def _groups(rows: Iterable[Named]) -> Iterator[list[Named]]:
    """Rows in groups large enough for the encoder's threads and small enough for memory."""
    group: list[Named] = []
    characters = 0
    for named in rows:
        group.append(named)
        characters += len(named[1].text or "")
        if characters >= GROUP_CHARACTERS or len(group) >= GROUP_DOCUMENTS:
            yield group
            group, characters = [], 0
    if group:
        yield group


def _encode(group: list[Named], encoder: TextEncoder, spec: DomainSpec, account: Account) -> tuple[list[str], Encoded]:
    """Names and documents of a group, without those that a filter on tokens or bytes leaves out."""
    texts = [row.text or "" for _, row in group]
    encoded = encoder.encode(texts, [row.number for _, row in group], account.notes)
    names = [name for name, _ in group]
    where = spec.filter
    if where is None or not where.needs_text:
        return names, encoded
    tokens = np.diff(encoded.ends, prepend=0) - encoder.added
    keep = np.zeros(len(group), np.bool_)
    for i, (_, row) in enumerate(group):
        values = {**row.fields, ":tokens": int(tokens[i]), ":bytes": int(encoded.text_bytes[i])}
        keep[i] = _passes(where, row, values, account)
    return [name for name, kept in zip(names, keep, strict=True) if kept], encoded.select(keep)


def held_out(digests: npt.NDArray[np.uint8], share: float) -> npt.NDArray[np.bool_]:
    """Which documents, by the digest of their text, are kept for evaluation."""
    hashes = np.ascontiguousarray(digests).view("<u8")[:, 0]
    return hashes < np.uint64(int(share * 2**64))


def _split(names: list[str], encoded: Encoded, holdout: float) -> Iterator[tuple[tuple[str, str], Encoded]]:
    """The documents of each domain and part."""
    held = held_out(encoded.digests, holdout)
    for name in sorted(set(names)):
        mine = np.fromiter((each == name for each in names), np.bool_, len(names))
        for part, keep in ((TRAIN, mine & ~held), (HOLDOUT, mine & held)):
            if keep.all():
                yield (name, part), encoded
            elif keep.any():
                yield (name, part), encoded.select(keep)
