"""Accelerate: a loop of your own, with gradient accumulation, saved by `accelerator.save_state`.

torchrun --nproc-per-node 2 --rdzv-id mine -m headrace.client.examples.accelerate_loop 127.0.0.1:7750 RUN

The loader stays out of `accelerator.prepare`: its rank's rows are all that this process is to train on, and Accelerate
would shard or dispatch them a second time. `register_for_checkpointing` takes it beside the model: rank 0 writes its
state, every rank of any world size reads it.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import torch
from accelerate import Accelerator
from headrace.client import ranks_from_env
from headrace.client.examples.common import Model, Options, main, mean_loss, trace
from headrace.client.torch import Loader

# Micro-batches in an optimizer step, which is a step of the run.
ACCUMULATE = 2


def save(accelerator: Accelerator, folder: Path, step: int) -> None:
    """A folder appears under its name when it is whole, so a crash leaves no half checkpoint to resume from."""
    partial = folder / f"saving-{step}"
    if accelerator.is_main_process:
        shutil.rmtree(partial, ignore_errors=True)
    accelerator.wait_for_everyone()
    accelerator.save_state(str(partial), safe_serialization=False)
    accelerator.wait_for_everyone()
    if accelerator.is_main_process:
        target = folder / f"step-{step}"
        shutil.rmtree(target, ignore_errors=True)
        partial.rename(target)


def newest(folder: Path) -> Path | None:
    return max(folder.glob("step-*"), key=lambda path: int(path.name.removeprefix("step-")), default=None)


def train(chosen: Options) -> None:
    accelerator = Accelerator(cpu=not torch.cuda.is_available(), gradient_accumulation_steps=ACCUMULATE)
    device, ranks = accelerator.device, ranks_from_env()
    with Loader(chosen.server, chosen.run, micro_batches=ACCUMULATE, device=device, **ranks, **chosen.launch) as loader:
        torch.manual_seed(0)
        model = Model(loader.open().vocab_size)
        model, optimizer = accelerator.prepare(model, torch.optim.AdamW(model.parameters(), lr=1e-2))
        accelerator.register_for_checkpointing(loader)
        checkpoint = newest(chosen.folder)
        if checkpoint is not None:
            accelerator.load_state(str(checkpoint))
        for batch in loader:
            with accelerator.accumulate(model):
                logits = model(batch.input_ids, batch.position_ids, batch.document_ids)
                accelerator.backward(mean_loss(logits, batch.labels, batch.loss_weight))
                optimizer.step()
                optimizer.zero_grad()
            trace(chosen.trace, batch.host)
            if accelerator.sync_gradients and loader.next_step % chosen.save_every == 0:
                save(accelerator, chosen.folder, loader.next_step)
            if loader.next_step >= chosen.steps:
                break
    accelerator.end_training()


if __name__ == "__main__":
    main(train, __doc__)
