"""What a mask takes down, looked up once and kept beside the store.

Looking it up reads the documents of every shard that may hold one, so the result is written below `masks/`, named by
everything that decides it: corpus, part, event, and the shards that were left out. A file that is damaged, or a folder
that cannot be written, costs the looking up again and nothing else.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable
from pathlib import Path

import numpy as np
from headrace.native import Blake3
from headrace.proto.errors import HeadraceError
from headrace.server.corpus.durable import write_file
from headrace.server.corpus.masks import Found, Mask, find
from headrace.server.corpus.records import Manifest, digest_of
from headrace.server.plan.log import MaskBody

_VERSION = 1
_HASH_BYTES = 32


def kept_find(manifest: Manifest, root: Path, part: str, body: MaskBody, skipped: frozenset[str]) -> Found:
    """As `find`, from what it found the first time."""
    if body.by == "shard":  # the manifest alone says it
        return find(manifest, root, part, body, skipped)
    rule = [_VERSION, manifest.digest, part, body.by, body.domain, list(body.values), sorted(skipped)]
    path = root / "masks" / f"{body.by}-{digest_of(rule)[:32]}.spans"
    found = _load(path, body.values)
    if found is None:
        found = find(manifest, root, part, body, skipped)
        with contextlib.suppress(HeadraceError):
            write_file(path, _pack(found))
    return found


def _hash(data: bytes) -> bytes:
    hasher = Blake3()
    hasher.update(data)
    return hasher.digest()


def _pack(found: Found) -> bytes:
    spans = [[number, begins.tolist(), ends.tolist()] for number, (begins, ends) in sorted(found.mask.spans.items())]
    data = json.dumps({"spans": spans, "missing": sorted(found.missing)}).encode()
    return _hash(data) + data


def _load(path: Path, values: Iterable[str]) -> Found | None:
    try:
        whole = path.read_bytes()
    except OSError:
        return None
    data = whole[_HASH_BYTES:]
    if _hash(data) != whole[:_HASH_BYTES]:
        return None
    kept = json.loads(data)
    spans = {number: (np.array(begins, np.uint64), np.array(ends, np.uint64)) for number, begins, ends in kept["spans"]}
    return Found(Mask(spans), frozenset(values) & frozenset(kept["missing"]))
