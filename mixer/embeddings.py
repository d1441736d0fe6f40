"""The file of domain embeddings: one float64 vector a domain in an .npz, with where they come from.

What holds: it is read without pickle; names are checked; `meta` says proxy, layer, windows and corpus, so that
vectors of different proxies are not mixed by accident: `merge` refuses that.
"""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from headrace.mixer.files import digest_vectors, write_atomic
from headrace.mixer.krls import stack
from headrace.mixer.simplex import Vector
from headrace.proto.errors import ConfigError, UsageError

_META = "__meta__"


@dataclass(frozen=True, kw_only=True, slots=True)
class Embeddings:
    """Vectors by domain, all of one length. meta: what they were made with; windows: how many each is the mean of."""

    vectors: Mapping[str, Vector]
    windows: Mapping[str, int] = field(default_factory=dict)
    meta: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        stack(self.vectors)

    @property
    def digest(self) -> str:
        """SHA-256, hex, of names and vectors."""
        return digest_vectors(self.vectors)

    def save(self, path: Path) -> None:
        """Write the .npz durably."""
        meta = json.dumps({"meta": dict(self.meta), "windows": dict(self.windows)}, sort_keys=True)
        arrays: dict[str, Any] = {name: np.asarray(vector, dtype="<f8") for name, vector in self.vectors.items()}
        arrays[_META] = np.frombuffer(meta.encode(), dtype=np.uint8)
        buffer = io.BytesIO()
        np.savez(buffer, allow_pickle=False, **arrays)
        write_atomic(path, buffer.getvalue())


def read_vectors(path: Path) -> tuple[dict[str, Vector], Mapping[str, Any]]:
    """Float64 arrays by name, and the note beside them if any, of an .npz. Raises ConfigError."""
    try:
        with np.load(io.BytesIO(path.read_bytes()), allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive.files}
        noted = json.loads(arrays.pop(_META).tobytes()) if _META in arrays else {}
        return {name: np.asarray(array, dtype=np.float64) for name, array in arrays.items()}, noted
    except (OSError, ValueError, zipfile.BadZipFile) as error:
        raise ConfigError(
            f"`{path}`: cannot be read as vectors by name: {error}; an .npz of arrays is needed"
        ) from error


def load_embeddings(path: Path) -> Embeddings:
    """Read the file. Raises ConfigError when it is no .npz of embeddings; a plain .npz of vectors is accepted."""
    vectors, noted = read_vectors(path)
    return Embeddings(vectors=vectors, windows=noted.get("windows", {}), meta=noted.get("meta", {}))


def merge(first: Embeddings, second: Embeddings) -> Embeddings:
    """Both sets of domains: how a new domain joins without any retraining. Refuses other proxies and double names."""
    if dict(first.meta) != dict(second.meta):
        raise UsageError("embeddings: the two sets come from different proxies, layers or samples; embed all with one")
    double = sorted(set(first.vectors) & set(second.vectors))
    if double:
        raise UsageError(f"embeddings: `{double[0]}` is in both sets; leave one out")
    return Embeddings(
        vectors={**first.vectors, **second.vectors}, windows={**first.windows, **second.windows}, meta=first.meta
    )
