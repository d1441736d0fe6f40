"""The group tables of `best_fit` views, counted once and kept beside the store.

Counting reads the length of every document, so it is done when a view is first asked for (before a run begins) and the
result is written below `views/`, named by everything that decides it. A table that is damaged, or a folder that cannot
be written, costs the counting again and nothing else.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from headrace.native import Blake3, TokenStore
from headrace.proto.errors import HeadraceError
from headrace.server.corpus.durable import write_file
from headrace.server.corpus.records import ShardRecord, digest_of
from headrace.server.corpus.shard import BATCH_DOCUMENTS, BATCH_TOKENS
from headrace.server.corpus.views import Groups

GROUP_WINDOWS = 64
"""A group holds at least this many windows' tokens: enough that best-fit fills them, few enough to pack at once."""
_VERSION = 1


def best_fit_groups(
    store: TokenStore, stream: int, shards: Sequence[ShardRecord], seq_len: int, folder: Path
) -> Groups:
    """The groups of one generation, from their table or counted."""
    rule = [_VERSION, seq_len, GROUP_WINDOWS, BATCH_TOKENS, BATCH_DOCUMENTS]
    key = digest_of([rule, [record.shard.content for record in shards]])
    path = folder / f"best_fit-{seq_len}-{key[:32]}.groups"
    found = _load(path)
    if found is None:
        found = Groups(*store.groups(stream, seq_len, GROUP_WINDOWS))
        with contextlib.suppress(HeadraceError):
            write_file(path, _pack(found))
    return found


def _hash(data: bytes) -> bytes:
    hasher = Blake3()
    hasher.update(data)
    return hasher.digest()


def _pack(groups: Groups) -> bytes:
    data = groups.first_batches.astype("<u8").tobytes() + groups.windows.astype("<u4").tobytes()
    return _hash(data) + data


def _load(path: Path) -> Groups | None:
    try:
        whole = path.read_bytes()
    except OSError:
        return None
    data = whole[32:]
    count, rest = divmod(len(data) - 8, 12)
    if rest or _hash(data) != whole[:32]:
        return None
    firsts = np.frombuffer(data, "<u8", count + 1).astype(np.uint64)
    return Groups(firsts, np.frombuffer(data, "<u4", count, offset=8 * (count + 1)).astype(np.uint32))
