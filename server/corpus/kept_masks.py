"""What a mask takes down, looked up once and kept beside the store.

Looking it up reads the documents of every shard that may hold one, so the result is written below `masks/`, named by
everything that decides it: corpus, part, event, and the shards that were left out.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

import numpy as np
from headrace.server.corpus.kept import keep, kept
from headrace.server.corpus.masks import Found, Mask, find
from headrace.server.corpus.records import Manifest, digest_of
from headrace.server.plan.log import MaskBody

_VERSION = 1


def kept_find(manifest: Manifest, root: Path, part: str, body: MaskBody, skipped: frozenset[str]) -> Found:
    """As `find`, from what it found the first time."""
    if body.by == "shard":  # the manifest alone says it
        return find(manifest, root, part, body, skipped)
    rule = [_VERSION, manifest.digest, part, body.by, body.domain, list(body.values), sorted(skipped)]
    path = root / "masks" / f"{body.by}-{digest_of(rule)[:32]}.spans"
    found = _load(path, body.values)
    if found is None:
        found = find(manifest, root, part, body, skipped)
        keep(path, _pack(found))
    return found


def _pack(found: Found) -> bytes:
    spans = [[number, begins.tolist(), ends.tolist()] for number, (begins, ends) in sorted(found.mask.spans.items())]
    return json.dumps({"spans": spans, "missing": sorted(found.missing)}).encode()


def _load(path: Path, values: Iterable[str]) -> Found | None:
    data = kept(path)
    if data is None:
        return None
    known = json.loads(data)
    spans = {n: (np.array(begins, np.uint64), np.array(ends, np.uint64)) for n, begins, ends in known["spans"]}
    return Found(Mask(spans), frozenset(values) & frozenset(known["missing"]))
