"""torchtitan 0.3: its own Trainer and checkpoints (FSDP2, DCP), with the stream in place of its dataset.

torchrun --nproc-per-node 2 --rdzv-id mine -m headrace.client.examples.torchtitan_train 127.0.0.1:7750 RUN

What a config of yours has to change is `dataloader` and `tokenizer`. torchtitan trains on accelerators; a checkpoint
of its own goes on at any data-parallel degree that divides the run's batch.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import torch
from headrace.client.examples.common import Options, main, trace
from headrace.client.session import Opened
from headrace.client.torch import Loader
from headrace.client.torch.trainers.torchtitan import NoTokenizer, StreamDataLoader
from torch import distributed
from torchtitan.components.checkpoint import CheckpointManager
from torchtitan.components.loss import CrossEntropyLoss
from torchtitan.components.optimizer import default_adamw
from torchtitan.config import TrainingConfig
from torchtitan.models.common.attention import ScaledDotProductAttention
from torchtitan.models.llama3 import model_registry
from torchtitan.protocols.model_spec import ModelSpec
from torchtitan.trainer import Trainer


class TracedTrainer(Trainer):
    """torchtitan's Trainer that writes down what it has trained on."""

    trace_to: Any = None

    def train_step(self, data_iterator: Iterator[Any]) -> None:
        super().train_step(data_iterator)
        batch = self.dataloader.newest.host
        trace(self.trace_to, batch if batch.whole is None else batch.whole)


def small_llama(vocabulary: int) -> ModelSpec:
    """torchtitan's debug Llama with one layer and the stream's vocabulary."""
    spec = model_registry("debugmodel", attn_backend="flex")
    model = spec.model
    model.vocab_size = model.tok_embeddings.num_embeddings = model.lm_head.out_features = vocabulary
    del model.layers[1:]
    if not torch.cuda.is_available():  # the masked kernels train on accelerators only
        model.layers[0].attention.inner_attention = ScaledDotProductAttention.Config()
    return spec


def configured(chosen: Options, opened: Opened) -> Trainer.Config:
    shape = opened.shapes[0]
    world = int(os.environ["WORLD_SIZE"])
    return Trainer.Config(
        model_spec=small_llama(opened.vocab_size),
        dump_folder=str(chosen.folder),
        loss=CrossEntropyLoss.Config(),
        optimizer=default_adamw(lr=1e-3),
        training=TrainingConfig(
            seq_len=shape.seq_len,
            local_batch_size=max(1, shape.batch // world // 2),
            global_batch_size=shape.batch,
            steps=chosen.steps,
            disable_cuda_graphs=True,
            mixed_precision_param="float32",
        ),
        tokenizer=NoTokenizer.Config(),
        dataloader=StreamDataLoader.Config(server=",".join(chosen.server), run=chosen.run, **chosen.launch),
        checkpoint=CheckpointManager.Config(enable=True, interval=chosen.save_every, last_save_model_only=False),
    )


def train(chosen: Options) -> None:
    with Loader(chosen.server, chosen.run, mode="observe", rank=0, world=1) as looking:
        opened = looking.open()
    trainer = TracedTrainer(configured(chosen, opened))
    trainer.trace_to = chosen.trace
    trainer.train()
    trainer.dataloader.loader.close()
    trainer.close()
    distributed.destroy_process_group()


if __name__ == "__main__":
    main(train, __doc__)
