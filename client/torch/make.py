"""How each tensor of a batch is made: on the host from NumPy, or on a device from the few bytes that have to travel.

A row of S tokens crosses to the device as S + 1 ids of two or four bytes and some counts; widening to int64, labels,
masks and positions are made there. Both makers give equal tensors.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import numpy as np
import torch
from headrace.client.batch import IGNORE, Batch
from torch import Tensor

# Tensors whose first dimension is the batch's rows: a micro-batch's are slices of the step's.
ROW_WISE = frozenset(
    ("token_ids", "input_ids", "labels", "position_ids", "document_ids", "loss_mask", "domain", "loss_weight")
)
NAMES = ROW_WISE | {"cu_seqlens"}


class Maker(Protocol):
    """Makes the tensor of that name, one of NAMES."""

    def make(self, name: str, batch: Batch) -> Tensor: ...


_HOST: dict[str, Callable[[Batch], Tensor]] = {
    "token_ids": lambda batch: torch.from_numpy(batch.token_ids),
    "input_ids": lambda batch: torch.from_numpy(batch.input_ids.astype(np.int64)),
    "labels": lambda batch: torch.from_numpy(batch.labels),
    "position_ids": lambda batch: torch.from_numpy(batch.position_ids.astype(np.int64)),
    "document_ids": lambda batch: torch.from_numpy(batch.document_ids),
    "loss_mask": lambda batch: torch.from_numpy(batch.loss_mask),
    "cu_seqlens": lambda batch: torch.from_numpy(batch.cu_seqlens),
    "domain": lambda batch: torch.from_numpy(batch.domain.astype(np.int64)),
    "loss_weight": lambda batch: torch.from_numpy(batch.loss_weight),
}


class HostMaker:
    """Tensors in the host's memory, sharing it with the NumPy batch where the type allows."""

    def make(self, name: str, batch: Batch) -> Tensor:
        return _HOST[name](batch)


class DeviceMaker:
    """Tensors on a device, made on the current stream.

    With `non_blocking` the caller sees to it that no buffer is used again before it was copied.
    """

    def __init__(self, device: torch.device, *, non_blocking: bool = False) -> None:
        self._device = device
        self._non_blocking = non_blocking
        self._makers: dict[str, Callable[[Batch], Tensor]] = {
            "token_ids": lambda batch: self._send(torch.from_numpy(batch.token_ids)),
            "input_ids": lambda batch: self.make("token_ids", batch)[:, :-1].to(torch.int64),
            "labels": self._labels,
            "position_ids": self._position_ids,
            "document_ids": lambda batch: self._starts(batch).cumsum(1, dtype=torch.int32) - 1,
            "loss_mask": lambda batch: self.make("labels", batch) != IGNORE,
            "cu_seqlens": lambda batch: self._send(torch.from_numpy(batch.cu_seqlens)),
            "domain": lambda batch: self._send(torch.from_numpy(batch.domain.astype(np.int64))),
            "loss_weight": lambda batch: self._send(torch.from_numpy(batch.loss_weight)),
        }

    def make(self, name: str, batch: Batch) -> Tensor:
        return batch.once(f"torch.{name}", lambda: self._makers[name](batch))

    def _send(self, tensor: Tensor) -> Tensor:
        return tensor.to(self._device, non_blocking=self._non_blocking)

    def _columns(self, batch: Batch) -> Tensor:
        return torch.arange(batch.seq_len, device=self._device)

    def _labels(self, batch: Batch) -> Tensor:
        labels = self.make("token_ids", batch)[:, 1:].to(torch.int64)
        real = self._send(torch.from_numpy(batch.real_ids.astype(np.int64)))
        labels.masked_fill_(self._columns(batch) + 1 >= real[:, None], IGNORE)
        if batch.masks.size:
            labels.masked_fill_(~self._send(torch.from_numpy(batch.loss_mask)), IGNORE)
        return labels

    def _starts(self, batch: Batch) -> Tensor:
        """(R, S) bool: where a piece of a document begins; only the offsets travel."""
        bounds = self._send(torch.from_numpy(batch.cu_seqlens[:-1].astype(np.int64)))
        starts = torch.zeros(len(batch) * batch.seq_len, dtype=torch.bool, device=self._device)
        return starts.index_fill_(0, bounds, True).view(len(batch), batch.seq_len)

    def _position_ids(self, batch: Batch) -> Tensor:
        columns = self._columns(batch)
        begins = torch.where(self._starts(batch), columns, torch.zeros_like(columns))
        return columns - begins.cummax(1).values
