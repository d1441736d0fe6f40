"""A batch as tensors: made when asked for, or ahead on the loader's threads once it is known what the trainer asks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from headrace.client.batch import Batch
from headrace.client.torch.make import ROW_WISE
from headrace.client.torch.stage import DeviceStage, HostStage, whole_device
from torch import Tensor

_MAPPED = (
    "input_ids",
    "labels",
    "position_ids",
    "document_ids",
    "cu_seqlens",
    "loss_mask",
    "domain",
    "loss_weight",
)


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class TensorBatch:
    """R rows of S tokens of one step.

    Ids travel as uint16 or uint32, which few torch kernels take, so `input_ids` is a widened copy; in host memory
    `token_ids` shares memory with what was received. `host` is the NumPy batch that everything is made from. Like it,
    tensors stay valid for as long as they are referred to.
    """

    host: Batch
    stage: HostStage

    def __len__(self) -> int:
        return len(self.host)

    @property
    def step(self) -> int:
        return self.host.step

    @property
    def segment(self) -> int:
        return self.host.segment

    @property
    def micro(self) -> tuple[int, int]:
        """(index, count) of the micro-batch in its step."""
        return self.host.micro

    @property
    def domain_names(self) -> tuple[str, ...]:
        return self.host.domain_names

    @property
    def tokens(self) -> int:
        """Positions that have a label."""
        return self.host.tokens

    @property
    def max_seqlen(self) -> int:
        """Length of the longest piece of a document."""
        return self.host.max_seqlen

    @property
    def token_ids(self) -> Tensor:
        """(R, S + 1), uint16 or uint32, as received."""
        return self._tensor("token_ids")

    @property
    def input_ids(self) -> Tensor:
        """(R, S) int64, contiguous."""
        return self._tensor("input_ids")

    @property
    def labels(self) -> Tensor:
        """(R, S) int64, shifted already: the id after each input, -100 where there is none."""
        return self._tensor("labels")

    @property
    def position_ids(self) -> Tensor:
        """(R, S) int64, from 0 in each document."""
        return self._tensor("position_ids")

    @property
    def document_ids(self) -> Tensor:
        """(R, S) int32: number of the document's piece in its row."""
        return self._tensor("document_ids")

    @property
    def loss_mask(self) -> Tensor:
        """(R, S) bool: where there is a label."""
        return self._tensor("loss_mask")

    @property
    def cu_seqlens(self) -> Tensor:
        """(pieces + 1,) int32: bounds of the documents in the R * S inputs laid end to end."""
        return self._tensor("cu_seqlens")

    @property
    def domain(self) -> Tensor:
        """(R,) int64: index into `domain_names`."""
        return self._tensor("domain")

    @property
    def loss_weight(self) -> Tensor:
        """(R,) float32."""
        return self._tensor("loss_weight")

    def split(self, parts: int) -> Iterator[TensorBatch]:
        """The same rows in `parts` equal micro-batches, in order."""
        return (TensorBatch(host=part, stage=self.stage) for part in self.host.split(parts))

    def to(self, device: str | torch.device, **_: Any) -> TensorBatch:
        """The batch with its tensors on that device: itself when they lie there. Better: give the loader `device=`."""
        device = whole_device(device)
        if device == self.stage.device:
            return self
        return TensorBatch(host=self.host.bare(), stage=DeviceStage(device))

    def to_dict(self) -> dict[str, Tensor]:
        """The tensors under their names, for trainers that take a mapping."""
        return {name: getattr(self, name) for name in _MAPPED}

    def _tensor(self, name: str) -> Tensor:
        self.stage.wanted.add(name)
        return self.host.once(f"torch.{name}", lambda: self._make(name))

    def _make(self, name: str) -> Tensor:
        """A micro-batch's rows are slices of the step's, which were made ahead or are made for all its parts now."""
        whole = self.host.whole
        if whole is None or name not in ROW_WISE:
            return self.stage.maker.make(name, self.host)
        begin = self.host.first_slot - whole.first_slot
        made = whole.once(f"torch.{name}", lambda: self.stage.maker.make(name, whole))
        return made[begin : begin + len(self.host)]
