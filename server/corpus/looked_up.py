"""What mask events take down in one part of a corpus, looked up once in a process. Safe for several threads."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path

from headrace.server.corpus.kept_masks import kept_find
from headrace.server.corpus.masks import Found, Mask, quarantined
from headrace.server.corpus.records import Manifest
from headrace.server.plan.log import MaskBody


class LookedUp:
    """Masks of a manifest's part, and what single events were found to take down."""

    def __init__(self, manifest: Manifest, root: Path, part: str) -> None:
        self._place = (manifest, root, part)
        self._found: dict[tuple[MaskBody, frozenset[str]], Found] = {}
        self._masks: dict[tuple[MaskBody, ...], Mask] = {}
        self._lock = threading.Lock()

    def masked(self, bodies: tuple[MaskBody, ...]) -> Mask:
        """What several events take down together; what names nothing is let be."""
        with self._lock:
            if bodies not in self._masks:
                mask = Mask({})
                for body in bodies:
                    mask |= self._find(body, quarantined(bodies)).mask
                self._masks[bodies] = mask
            return self._masks[bodies]

    def find(self, body: MaskBody, others: Sequence[MaskBody]) -> Found:
        """What one event takes down beside `others`, and which of its values name nothing."""
        with self._lock:
            return self._find(body, quarantined([*others, body]))

    def _find(self, body: MaskBody, skipped: frozenset[str]) -> Found:
        key = (body, skipped)
        if key not in self._found:
            self._found[key] = kept_find(*self._place, body, skipped)
        return self._found[key]
