"""The stream as an IterableDataset, for trainers that insist on a torch DataLoader.

    loader = DataLoader(StreamDataset("127.0.0.1:7750", "pretrain-1", rank=rank, world=world), batch_size=None)

Workers are refused: the loader prefetches on threads of its own, worker processes would each read the whole stream
(every batch once for each worker), and a position that lives in a worker is not in the trainer's checkpoint.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from headrace.client.torch.batch import TensorBatch
from headrace.client.torch.loader import Loader
from headrace.proto.errors import UsageError
from torch import Tensor
from torch.utils.data import IterableDataset, get_worker_info


def as_mapping(batch: TensorBatch) -> dict[str, Tensor]:
    """The tensors under their names; step, segment and max_seqlen as 0-d int64."""
    numbers = {"max_seqlen": batch.max_seqlen, "step": batch.step, "segment": batch.segment}
    return batch.to_dict() | {name: torch.tensor(number) for name, number in numbers.items()}


class StreamDataset(IterableDataset[dict[str, Tensor]]):
    """Gives each step's rows as a mapping of tensors. Arguments are those of `headrace.client.torch.Loader`.

    Use it with `batch_size=None` and `num_workers=0`. It is `Stateful`: torchdata's StatefulDataLoader saves it.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__()
        self.loader = Loader(*args, **kwargs)
        self.newest: TensorBatch | None = None  # what was handed out last

    def __iter__(self) -> Iterator[dict[str, Tensor]]:
        worker = get_worker_info()
        if worker is not None:
            raise UsageError(
                f"num_workers={worker.num_workers}: the stream cannot be read in DataLoader workers; use "
                "num_workers=0, the loader prefetches on its own threads"
            )
        return self._mappings()

    def _mappings(self) -> Iterator[dict[str, Tensor]]:
        for batch in self.loader:
            self.newest = batch
            yield as_mapping(batch)

    def state_dict(self) -> dict[str, Any]:
        return self.loader.state_dict()

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        self.loader.load_state_dict(state_dict)
