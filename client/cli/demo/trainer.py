"""The demo's trainer: one rank of a data-parallel group, with nothing of the demo in it but its record of digests.

    python -m headrace.client.cli.demo.trainer ADDRESS RUN FOLDER        # under torchrun, or a launcher like it

Ranks, rendezvous, job and attempt come from torchrun's variables. After every step rank 0 replaces
`FOLDER/checkpoint/last.pt` (model, optimizer, `loader.state_dict()`); a group of any size that divides the batch goes
on from it. Before that it appends to `FOLDER/steps/attempt-N.jsonl` what was received: step, segment, loss, and the
step digest over the rows of all ranks in slot order.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import IO, Any

import torch
import torch.distributed as dist
from headrace.client.torch import Loader, TensorBatch
from headrace.mixer.proxy.adamw import AdamW
from headrace.mixer.proxy.batch import rows_of
from headrace.mixer.proxy.config import model_config
from headrace.mixer.proxy.losses import token_losses
from headrace.mixer.proxy.model import Proxy
from headrace.native import step_digest

_RATE = 3e-3


def main(address: str, run: str, folder: Path) -> None:
    """Train to the end of the run, from the newest checkpoint if there is one."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    checkpoint = folder / "checkpoint/last.pt"
    saved = torch.load(checkpoint, weights_only=True) if checkpoint.exists() else None
    attempt = os.environ["TORCHELASTIC_RESTART_COUNT"]
    with (
        Loader.for_group(address, run) as loader,
        (folder / f"steps/attempt-{attempt}.jsonl").open("a", encoding="utf-8") as record,
    ):
        if saved is not None:
            loader.load_state_dict(saved["data"])
        train(loader, saved, record, checkpoint)
    dist.destroy_process_group()


def train(loader: Loader, saved: dict[str, Any] | None, record: IO[str], checkpoint: Path) -> None:
    """The loop: forward, backward, optimizer step, record, checkpoint."""
    opened = loader.open()
    sizes = model_config("tiny", vocab_size=opened.vocab_size, seq_len=opened.shapes[0].seq_len)
    model = Proxy(sizes, seed=0)
    optimizer = AdamW(model, weight_decay=0.01)
    if saved is not None:
        model.load_state_dict(saved["model"])
        optimizer.load(saved["moments"], saved["updates"])
    for batch in loader:
        losses = token_losses(model(batch.input_ids, batch.position_ids), rows_of(batch))
        loss = global_mean(losses, batch)
        loss.backward()  # type: ignore[no-untyped-call]
        sum_gradients(model)
        optimizer.step(_RATE)
        loader.report(losses.detach(), batch)
        line = {"step": batch.step, "segment": batch.segment, "loss": summed(loss), "digest": received_digest(batch)}
        if dist.get_rank() == 0:
            record.write(json.dumps(line) + "\n")
            record.flush()
            state = {"model": model.state_dict(), "moments": optimizer.moments(), "updates": optimizer.updates}
            save({**state, "data": loader.state_dict()}, checkpoint)


def global_mean(losses: torch.Tensor, batch: TensorBatch) -> torch.Tensor:
    """This rank's part of the mean loss over the tokens of the global batch: the parts of all ranks sum to it."""
    weights = batch.loss_mask * batch.loss_weight[:, None]
    tokens = weights.sum()
    dist.all_reduce(tokens)
    return (losses * weights).sum() / tokens


def sum_gradients(model: torch.nn.Module) -> None:
    """The gradient of the global mean, on every rank.

    DistributedDataParallel does the same and overlaps it with the backward pass; it also imports torch's compiler,
    which costs each process more than the whole demo trains.
    """
    gradients = [parameter.grad for parameter in model.parameters() if parameter.grad is not None]
    flat = torch.cat([gradient.flatten() for gradient in gradients])
    dist.all_reduce(flat)
    parts = torch.split(flat, [gradient.numel() for gradient in gradients])
    for gradient, part in zip(gradients, parts, strict=True):
        gradient.copy_(part.view_as(gradient))


def summed(loss: torch.Tensor) -> float:
    """The sum over ranks."""
    total = loss.detach().clone()
    dist.all_reduce(total)
    return round(total.item(), 4)


def received_digest(batch: TensorBatch) -> str:
    """Step digest (hex) of what all ranks received: row digests in slot order, which is the order of the ranks."""
    mine = torch.from_numpy(batch.host.row_digests)
    parts = [torch.empty_like(mine) for _ in range(dist.get_world_size())]
    dist.all_gather(parts, mine)
    return step_digest(torch.cat(parts).numpy().tobytes()).hex()


def save(state: dict[str, Any], path: Path) -> None:
    """Replace the checkpoint as a whole: a crash leaves the old one or the new one."""
    temporary = path.with_suffix(".tmp")
    with temporary.open("wb") as file:
        torch.save(state, file)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]))
