"""The rows of one step as tensors: what the proxy reads from any loader that names the fields as ours does.

Loss weights of the run are not read: a method that weighs losses brings its own objective.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from headrace.proto.errors import UsageError


class LoaderBatch(Protocol):
    """What `headrace.client.Batch` and its torch twin offer, as far as the proxy needs it."""

    @property
    def step(self) -> int: ...
    @property
    def input_ids(self) -> Any: ...
    @property
    def labels(self) -> Any: ...
    @property
    def loss_mask(self) -> Any: ...
    @property
    def position_ids(self) -> Any: ...
    @property
    def domain(self) -> Any: ...
    @property
    def domain_names(self) -> tuple[str, ...]: ...


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Rows:
    """R rows of S tokens. ids, labels, positions: int64 (R, S); mask: bool (R, S), where a loss is taken; domain:
    int64 (R,), indices into `names`."""

    step: int
    ids: torch.Tensor
    labels: torch.Tensor
    mask: torch.Tensor
    positions: torch.Tensor
    domain: torch.Tensor
    names: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.ids)

    def select(self, which: slice | torch.Tensor) -> Rows:
        """Some of the rows: a slice, a mask, or indices."""
        parts = (self.ids, self.labels, self.mask, self.positions, self.domain)
        ids, labels, mask, positions, domain = (part[which] for part in parts)
        return Rows(
            step=self.step, ids=ids, labels=labels, mask=mask, positions=positions, domain=domain, names=self.names
        )

    def chunks(self, size: int) -> Iterator[Rows]:
        """The rows in order, at most `size` at a time."""
        return (self.select(slice(begin, begin + size)) for begin in range(0, len(self), size))


def _tensor(values: Any, kind: torch.dtype, device: str) -> torch.Tensor:
    if isinstance(values, torch.Tensor):
        return values.to(device=device, dtype=kind)
    # torch lacks most operations on uint16 and uint32; widening copies, and the loader may reuse its buffer anyway.
    array = np.asarray(values).astype(np.bool_ if kind is torch.bool else np.int64)
    return torch.from_numpy(array).to(device=device)


def rows_of(batch: LoaderBatch, device: str = "cpu") -> Rows:
    """Copy a loader's batch to a device."""
    return Rows(
        step=int(batch.step),
        ids=_tensor(batch.input_ids, torch.int64, device),
        labels=_tensor(batch.labels, torch.int64, device),
        mask=_tensor(batch.loss_mask, torch.bool, device),
        positions=_tensor(batch.position_ids, torch.int64, device),
        domain=_tensor(batch.domain, torch.int64, device),
        names=tuple(batch.domain_names),
    )


def take(batches: Iterable[LoaderBatch], steps: int, device: str = "cpu") -> Iterator[Rows]:
    """The next `steps` batches as rows; a stream that ends before is an error that says where."""
    taken = 0
    for batch in batches:
        yield rows_of(batch, device)
        taken += 1
        if taken == steps:
            return
    raise UsageError(f"proxy: the run ended after {taken} of {steps} steps; train fewer steps or give the run more")
