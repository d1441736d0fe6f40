"""nanotron: the iterator that `DistributedTrainer.train` takes.

Ranks of pipeline stages that read no input get no tensors: nanotron wants `TensorPointer(group_rank)` there, which it
makes itself; give `pointer` a function that does. nanotron checks that batches are equal over tensor-parallel ranks and
differ over data-parallel ones, which holds when the loader's rank is the data-parallel one. Each item is a
micro-batch: make the loader with `micro_batches` equal to `batch_accumulation_per_replica`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from headrace.client.torch.loader import Loader
from headrace.client.torch.trainers.weights import NoWeights

_NAMES = ("input_ids", "input_mask", "label_ids", "label_mask", "position_ids")


def nanotron_batches(
    loader: Loader, *, reads_input: bool = True, reads_labels: bool = True, pointer: Callable[[], Any] | None = None
) -> Iterator[dict[str, Any]]:
    """input_ids, input_mask, label_ids, label_mask and position_ids: (R, S), masks bool, the rest int64."""
    weights = NoWeights("nanotron", "multiply `label_mask` by them in a loss of your own")
    for batch in loader:
        weights.see(batch)
        here = {
            "input_ids": batch.input_ids,
            "input_mask": batch.loss_mask.new_ones(batch.loss_mask.shape),
            "label_ids": batch.labels.clamp_min(0),
            "label_mask": batch.loss_mask,
            "position_ids": batch.position_ids,
        }
        wanted = {name: reads_labels if name.startswith("label") else reads_input for name in _NAMES}
        yield {name: here[name] if wanted[name] or pointer is None else pointer() for name in _NAMES}
