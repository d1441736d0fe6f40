"""Megatron-LM with `--dataloader-type external`: what the dataset provider returns for training.

    def train_valid_test_datasets_provider(train_val_test_num_samples):
        rank, world = mpu.get_data_parallel_rank(), mpu.get_data_parallel_world_size()
        loader = Loader(server, run, rank=rank, world=world, micro_batches=get_num_microbatches())
        stream = MegatronStream(loader)
        if saved is not None:  # what Megatron stored with --dataloader-save, of any rank
            stream.restore_state(saved)
        return stream, None, None

Megatron calls `next` on tensor-parallel rank 0 of the first and last pipeline stage only and broadcasts from there; it
asks for `save_state()` when `--dataloader-save` is set, stores the answer for each data-parallel rank, and leaves
restoring to the provider. `get_ltor_masks_and_position_ids` is not needed: everything is in the mapping.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from headrace.client.torch.loader import Loader
from torch import Tensor


class MegatronStream(Iterator[dict[str, Tensor]]):
    """An iterable and its own iterator, as Megatron takes them."""

    def __init__(self, loader: Loader, *, packed: bool = False) -> None:
        """`packed` adds `cu_seqlens` and `max_seqlen` (both with a leading dimension of 1) for THD attention."""
        self.loader = loader
        self._packed = packed

    def __iter__(self) -> MegatronStream:
        return self

    def __next__(self) -> dict[str, Tensor]:
        """tokens, labels, position_ids (R, S) int64 and loss_mask (R, S) float32, which carries the loss weights."""
        batch = next(self.loader)
        found = {
            "tokens": batch.input_ids,
            # Megatron's cross entropy knows no ignored index: the mask takes those positions out.
            "labels": batch.labels.clamp_min(0),
            "loss_mask": batch.loss_mask.to(torch.float32) * batch.loss_weight[:, None],
            "position_ids": batch.position_ids,
        }
        if self._packed:
            found["cu_seqlens"] = batch.cu_seqlens[None]
            found["max_seqlen"] = torch.tensor([[batch.max_seqlen]], dtype=torch.int32)
        return found

    def save_state(self) -> dict[str, Any]:
        """What Megatron stores; equal on all ranks."""
        return self.loader.state_dict()

    def restore_state(self, state: Mapping[str, Any]) -> None:
        """For the provider: give it what Megatron has stored, of any rank."""
        self.loader.load_state_dict(state)
