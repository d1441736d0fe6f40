"""Lightning 2: a LightningModule fitted on the stream, on one process or several (DDP).

python -m headrace.client.examples.lightning_fit 127.0.0.1:7750 RUN
"""

from __future__ import annotations

import os

import torch
from headrace.client.examples.common import Model, Options, main, mean_loss, trace
from headrace.client.launch import Ranks, ranks_from_env
from headrace.client.torch import Loader, TensorBatch
from headrace.client.torch.trainers.lightning import LightningStream
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.callbacks import ModelCheckpoint
from torch import Tensor


class Module(LightningModule):
    """The example model; loss and optimizer as Lightning wants them."""

    def __init__(self, vocabulary: int, chosen: Options) -> None:
        super().__init__()
        self.model = Model(vocabulary)
        self._chosen = chosen

    def training_step(self, batch: TensorBatch, _: int) -> Tensor:
        logits = self.model(batch.input_ids, batch.position_ids, batch.document_ids)
        return mean_loss(logits, batch.labels, batch.loss_weight)

    def on_train_batch_end(self, outputs: object, batch: TensorBatch, batch_idx: int) -> None:
        trace(self._chosen.trace, batch.host)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), lr=1e-2)


def train(chosen: Options) -> None:
    ranks = ranks_from_env() if "WORLD_SIZE" in os.environ else Ranks(rank=0, world=1)
    with Loader(chosen.server, chosen.run, **ranks, **chosen.launch) as loader:
        torch.manual_seed(0)
        stream = LightningStream(loader)
        saving = ModelCheckpoint(
            chosen.folder,
            save_last=True,
            every_n_train_steps=chosen.save_every,
            save_top_k=0,
            save_on_train_epoch_end=False,
        )
        trainer = Trainer(
            max_steps=chosen.steps,
            accelerator="gpu" if torch.cuda.is_available() else "cpu",
            devices=int(os.environ.get("LOCAL_WORLD_SIZE", "1")),
            strategy="ddp" if ranks["world"] > 1 else "auto",
            callbacks=[stream.callback, saving],
            use_distributed_sampler=False,
            logger=False,
            enable_progress_bar=False,
            enable_model_summary=False,
        )
        last = chosen.folder / "last.ckpt"
        trainer.fit(Module(loader.open().vocab_size, chosen), stream, ckpt_path=last if last.exists() else None)


if __name__ == "__main__":
    main(train, __doc__)
