"""From the rows of one source to its shards: names, filters, encoding, holdout.

A document is held out when the hash of its text, as a fraction of 2^64, lies below the `holdout` share: equal texts
always fall on the same side, whatever else the corpus holds, so a corpus that grows never leaks into its evaluation.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import compress
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from headrace.native import Texts
from headrace.server.corpus.account import Account
from headrace.server.corpus.ahead import ahead, in_order
from headrace.server.corpus.bytestream import Source
from headrace.server.corpus.documents import BAD_NAME, FILTERED, WRONG_TYPE, Rows
from headrace.server.corpus.profile import Profile
from headrace.server.corpus.readers import read_rows
from headrace.server.corpus.records import canonical
from headrace.server.corpus.shard import HOLDOUT, TRAIN, Encoded, ShardInfo, ShardWriter
from headrace.server.corpus.spec import NAME, PLACEHOLDER, DomainSpec
from headrace.server.corpus.text_encoder import TextEncoder
from headrace.server.corpus.where import Where

GROUP_BYTES = 1 << 19
GROUP_DOCUMENTS = 8192
HEAVY_BYTES = 1 << 25  # a group of more text than this is alone in memory


def write_shards(
    source: Source,
    encoder: TextEncoder,
    account: Account,
    spec: DomainSpec,
    folder: Path,
    id_bytes: int,
    progress: Callable[[int, int, int], None],
) -> list[tuple[ShardInfo, Profile]]:
    """Reads the source to its end; its shards in the bytewise order of their files.

    One thread reads and parses, others encode, and this one filters by what is known then, and writes.
    """
    writers: dict[tuple[str, str], ShardWriter] = {}
    late = Account(account.name, spec)  # the other one is kept by the thread that reads
    done = 0
    try:
        rows = _filtered(account.admit(read_rows(source, spec, account.notes)), spec.filter, account)
        with closing(ahead(_groups(_named(rows, spec, account)), _Group.is_heavy)) as groups:
            for group in in_order(partial(_encode, encoder=encoder), groups, encoder.threads, _Group.is_heavy):
                count, tokens = group.count, len(group.encoded.ids)
                for (name, part), documents in _split(*_chosen(group, encoder.added, spec, late), spec.holdout):
                    if (name, part) not in writers:
                        writers[name, part] = ShardWriter(folder, name, part, id_bytes=id_bytes, keeps=bool(spec.keep))
                    writers[name, part].add(documents)
                    late.held_out += len(documents.ends) if part == HOLDOUT else 0
                    del documents
                late.notes.update(group.notes)
                del group
                progress(source.size - done, count, tokens)
                done = source.size
        account.take(late)
        return [(writers[key].close(), writers[key].profile(encoder.tables)) for key in sorted(writers)]
    finally:
        for writer in writers.values():
            writer.abort()


@dataclass(slots=True)
class _Group:
    """Texts with the names of their domains; one name for all when there is only one. Then their documents."""

    names: list[str] = field(default_factory=list)
    texts: Texts = field(default_factory=Texts)
    fields: list[Mapping[str, Any]] = field(default_factory=list)
    count: int = 0
    encoded: Encoded = field(default_factory=Encoded.empty)
    notes: Counter[str] = field(default_factory=Counter)

    def extend(self, rows: Rows, names: list[str]) -> None:
        self.names += names
        self.fields += rows.fields
        if len(self.texts):
            self.texts.extend(rows.texts)
        else:
            self.texts = rows.texts
        self.count = len(self.texts)

    def values(self, at: int) -> Mapping[str, Any]:
        return self.fields[at] if self.fields else {}

    def is_heavy(self) -> bool:
        return self.texts.bytes > HEAVY_BYTES


def _filtered(chunks: Iterable[Rows], where: Where | None, account: Account) -> Iterator[Rows]:
    """The rows that pass a filter on fields alone."""
    for rows in chunks:
        if where is None or where.needs_text:
            yield rows
        else:
            keep = [_passes(where, *row, account) for row in zip(rows.numbers.tolist(), rows.fields, strict=True)]
            yield rows.select(keep)


def _passes(where: Where, number: int, values: Mapping[str, Any], account: Account) -> bool:
    try:
        passes = where.test(values)
    except TypeError as error:
        account.reject(number, WRONG_TYPE, f"where: {error}")
        return False
    if not passes:
        account.rejected[FILTERED] += 1
    return passes


def _named(chunks: Iterable[Rows], spec: DomainSpec, account: Account) -> Iterator[tuple[Rows, list[str]]]:
    """Rows and the names of their domains; no names when the name has no fields in it."""
    for rows in chunks:
        if not spec.name_fields:
            yield rows, []
            continue
        names = [_fill(spec.name, fields) for fields in rows.fields]
        keep = [NAME.fullmatch(name) is not None for name in names]
        for number, name, fields, good in zip(rows.numbers.tolist(), names, rows.fields, keep, strict=True):
            if not good:
                values = {field: fields.get(field) for field in spec.name_fields}
                account.reject(number, BAD_NAME, f"the fields {values} make `{name}`, which is no name for a domain")
        yield rows.select(keep), list(compress(names, keep))


def _fill(template: str, values: Mapping[str, object]) -> str:
    """The name with the fields' values in it; one that is neither text nor a whole number makes it invalid."""

    def plain(found: re.Match[str]) -> str:
        value = values.get(found.group(1))
        return str(value) if type(value) in (str, int) else found.group()

    return PLACEHOLDER.sub(plain, template)


def _groups(chunks: Iterable[tuple[Rows, list[str]]]) -> Iterator[_Group]:
    """Rows in groups large enough for the encoder's threads and small enough for memory."""
    group = _Group()
    for rows, names in chunks:
        group.extend(rows, names)
        if group.texts.bytes >= GROUP_BYTES or len(group.texts) >= GROUP_DOCUMENTS:
            yield group
            group = _Group()
    if len(group.texts):
        yield group


def _encode(group: _Group, encoder: TextEncoder) -> _Group:
    """The group with its documents instead of its texts."""
    group.encoded = encoder.encode(group.texts, group.notes)
    group.texts.clear()
    return group


def _chosen(group: _Group, added: int, spec: DomainSpec, account: Account) -> tuple[list[str], Encoded]:
    """Names (or one for all) and documents of a group, without those that a filter on tokens or bytes leaves out."""
    encoded = group.encoded
    if spec.keep:
        kept = [{name: row[name] for name in spec.keep if name in row} for row in group.fields]
        encoded = replace(encoded, kept=[canonical(each).decode() for each in kept])
    names = group.names or [spec.name]
    where = spec.filter
    if where is None or not where.needs_text:
        return names, encoded
    tokens = encoded.lengths - added
    keep = np.zeros(len(encoded.rows), np.bool_)
    for i, number in enumerate(encoded.rows.tolist()):
        values = {**group.values(i), ":tokens": int(tokens[i]), ":bytes": int(encoded.text_bytes[i])}
        keep[i] = _passes(where, number, values, account)
    return list(compress(names, keep)) if group.names else names, encoded.select(keep)


def held_out(digests: npt.NDArray[np.uint8], share: float) -> npt.NDArray[np.bool_]:
    """Which documents, by the digest of their text, are kept for evaluation."""
    hashes = np.ascontiguousarray(digests).view("<u8")[:, 0]
    return hashes < np.uint64(int(share * 2**64))


def _split(names: list[str], encoded: Encoded, holdout: float) -> Iterator[tuple[tuple[str, str], Encoded]]:
    """The documents of each domain and part."""
    if not len(encoded.ends):
        return
    if len(names) == 1 and not holdout:
        yield (names[0], TRAIN), encoded
        return
    held = held_out(encoded.digests, holdout)
    several = len(names) > 1
    for name in sorted(set(names)):
        mine = np.fromiter((each == name for each in names), np.bool_, len(names)) if several else ~np.zeros_like(held)
        for part, keep in ((TRAIN, mine & ~held), (HOLDOUT, mine & held)):
            if keep.all():
                yield (name, part), encoded
            elif keep.any():
                yield (name, part), encoded.select(keep)
