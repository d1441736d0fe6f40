"""The group tables of `best_fit` views, counted once and kept beside the store.

Counting reads the length of every document, so it is done when a view is first asked for (before a run begins) and the
result is written below `views/`, named by everything that decides it.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from headrace.native import TokenStore
from headrace.server.corpus.kept import keep, kept
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
        keep(path, _pack(found))
    return found


def _pack(groups: Groups) -> bytes:
    return groups.first_batches.astype("<u8").tobytes() + groups.windows.astype("<u4").tobytes()


def _load(path: Path) -> Groups | None:
    data = kept(path)
    count, rest = divmod(len(data or b"") - 8, 12)
    if data is None or rest:
        return None
    firsts = np.frombuffer(data, "<u8", count + 1).astype(np.uint64)
    return Groups(firsts, np.frombuffer(data, "<u4", count, offset=8 * (count + 1)).astype(np.uint32))
