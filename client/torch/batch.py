"""A batch as tensors: made when asked for, kept, and sharing memory with the NumPy batch wherever torch allows it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import torch
from headrace.client.batch import Batch
from torch import Tensor


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class TensorBatch:
    """R rows of S tokens of one step.

    Ids travel as uint16 or uint32, which few torch kernels take, so `input_ids` is a widened copy; `token_ids` shares
    memory with what was received. `host` is the NumPy batch that everything is made from. Like it, tensors stay valid
    for as long as they are referred to.
    """

    host: Batch
    _made: dict[str, Tensor] = field(default_factory=dict, repr=False)

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
        return self.host.max_seqlen

    @property
    def token_ids(self) -> Tensor:
        """(R, S + 1), uint16 or uint32, as received: no copy."""
        return self._once("token_ids", lambda: torch.from_numpy(self.host.token_ids))

    @property
    def input_ids(self) -> Tensor:
        """(R, S) int64, contiguous."""
        return self._once("input_ids", lambda: torch.from_numpy(self.host.input_ids.astype("int64")))

    @property
    def labels(self) -> Tensor:
        """(R, S) int64, shifted already: the id after each input, -100 where there is none."""
        return self._once("labels", lambda: torch.from_numpy(self.host.labels))

    @property
    def position_ids(self) -> Tensor:
        """(R, S) int64, from 0 in each document."""
        return self._once("position_ids", lambda: torch.from_numpy(self.host.position_ids.astype("int64")))

    @property
    def loss_mask(self) -> Tensor:
        """(R, S) bool: where there is a label."""
        return self._once("loss_mask", lambda: torch.from_numpy(self.host.loss_mask))

    @property
    def cu_seqlens(self) -> Tensor:
        """(pieces + 1,) int32: bounds of the documents in the R * S inputs laid end to end."""
        return self._once("cu_seqlens", lambda: torch.from_numpy(self.host.cu_seqlens))

    @property
    def document_ids(self) -> Tensor:
        """(R, S) int32: number of the document's piece in its row."""
        return self._once("document_ids", lambda: torch.from_numpy(self.host.document_ids))

    @property
    def domain(self) -> Tensor:
        """(R,) int64: index into `domain_names`."""
        return self._once("domain", lambda: torch.from_numpy(self.host.domain.astype("int64")))

    @property
    def loss_weight(self) -> Tensor:
        """(R,) float32."""
        return self._once("loss_weight", lambda: torch.from_numpy(self.host.loss_weight))

    def split(self, parts: int) -> Iterator[TensorBatch]:
        """The same rows in `parts` equal micro-batches, in order."""
        return (TensorBatch(host=part) for part in self.host.split(parts))

    def to_dict(self) -> dict[str, Tensor]:
        """The tensors under their names, for trainers that take a mapping; step and segment as 0-d int64."""
        names = ("input_ids", "labels", "position_ids", "loss_mask", "domain", "loss_weight")
        numbers = {"step": torch.tensor(self.step), "segment": torch.tensor(self.segment)}
        return {name: getattr(self, name) for name in names} | numbers

    def _once(self, name: str, make: Callable[[], Tensor]) -> Tensor:
        if name not in self._made:
            self._made[name] = make()
        return self._made[name]
