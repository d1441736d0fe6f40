"""Domain embeddings: the mean over windows of each window's masked mean hidden state at one block.

    x_i = mean over windows a of domain i of  sum_t m_t h_L(a)_t / sum_t m_t        (m: tokens with a label)

What holds: padding never counts (the released code averages it in), windows are the packed ones that were served (no
decode and encode again), every window counts alike. Block: (blocks + 1) // 2, the one the released code takes (3 of 6).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from headrace.mixer.embeddings import Embeddings
from headrace.mixer.proxy.batch import Rows
from headrace.mixer.proxy.model import Proxy
from headrace.mixer.proxy.train import autocast
from headrace.proto.errors import UsageError


def default_depth(blocks: int) -> int:
    """The block whose output is embedded when none is chosen."""
    return (blocks + 1) // 2


@torch.no_grad()
def window_embeddings(model: Proxy, rows: Rows, depth: int) -> torch.Tensor:
    """(R, width) float64: the masked mean of each row's hidden states; rows without a label are NaN."""
    with autocast(rows.ids.device.type):
        hidden = model.hidden(rows.ids, rows.positions, depth)
    mask = rows.mask[:, :, None]
    # In float64: sums of many windows must not depend on their order.
    summed = torch.where(mask, hidden.double(), 0.0).sum(dim=1)
    return summed / rows.mask.sum(dim=1, keepdim=True)


@dataclass(slots=True)
class Collector:
    """Sums by domain until each has `windows` of them. skipped: rows without any label, counted, not embedded."""

    windows: int
    sums: dict[str, Any] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)
    skipped: int = 0

    def wants(self, name: str) -> bool:
        return self.counts.get(name, 0) < self.windows

    def add(self, name: str, vector: torch.Tensor) -> None:
        if torch.isnan(vector[0]):
            self.skipped += 1
        elif self.wants(name):
            self.sums[name] = self.sums.get(name, 0.0) + vector.cpu().numpy()
            self.counts[name] = self.counts.get(name, 0) + 1


def embed(
    model: Proxy,
    batches: Iterable[Rows],
    *,
    windows: int,
    depth: int | None = None,
    domains: Iterable[str] | None = None,
    meta: Mapping[str, Any] | None = None,
) -> Embeddings:
    """Read batches until every domain (those of the first batch, or `domains`) has `windows` windows, or they end.

    A domain that got none is an error naming it; one that got fewer says so in the file's `windows`.
    """
    if windows < 1:
        raise UsageError(f"embed: {windows} windows a domain; at least 1 is needed")
    depth = default_depth(model.config.blocks) if depth is None else depth
    if not 0 <= depth <= model.config.blocks:
        raise UsageError(
            f"embed: block {depth} of {model.config.blocks}; choose 0 (token embeddings) to the last block"
        )
    collector, wanted = Collector(windows), set(domains) if domains is not None else None
    for rows in batches:
        wanted = set(rows.names) if wanted is None else wanted
        needed = torch.tensor([name in wanted and collector.wants(name) for name in rows.names])
        keep = needed.to(rows.domain.device)[rows.domain]
        for index, vector in zip(rows.domain[keep].tolist(), _embedded(model, rows, keep, depth), strict=True):
            collector.add(rows.names[index], vector)
        if not any(collector.wants(name) for name in wanted):
            break
    missing = sorted(set(wanted or ()) - set(collector.counts))
    if missing or not collector.counts:
        absent = f"`{missing[0]}`" if missing else "any domain"
        raise UsageError(f"embed: no window of {absent} came; give it weight in the run, or read more steps")
    vectors = {name: np.asarray(collector.sums[name]) / count for name, count in collector.counts.items()}
    return Embeddings(vectors=vectors, windows=dict(collector.counts), meta=dict(meta or {}) | {"depth": depth})


def _embedded(model: Proxy, rows: Rows, keep: torch.Tensor, depth: int) -> torch.Tensor:
    if not keep.any():
        return torch.zeros((0, model.config.width), dtype=torch.float64)
    return window_embeddings(model, rows.select(keep), depth)
