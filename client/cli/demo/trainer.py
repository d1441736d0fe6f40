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
from headrace.mixer.proxy.batch import rows_of
from headrace.mixer.proxy.config import model_config
from headrace.mixer.proxy.losses import token_losses
from headrace.mixer.proxy.model import Proxy
from headrace.native import step_digest
from torch.nn.parallel import DistributedDataParallel


def main(address: str, run: str, folder: Path) -> None:
    """Train to the end of the run, from the newest checkpoint if there is one."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    checkpoint = folder / "checkpoint/last.pt"
    saved = torch.load(checkpoint, weights_only=True) if checkpoint.exists() else None
    attempt = os.environ["TORCHELASTIC_RESTART_COUNT"]
    with (
        Loader(address, run, rank=dist.get_rank(), world=dist.get_world_size()) as loader,
        (folder / f"steps/attempt-{attempt}.jsonl").open("a") as record,
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
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    if saved is not None:
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
    parallel = DistributedDataParallel(model)
    for batch in loader:
        loss = global_loss(parallel, batch)
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        line = {"step": batch.step, "segment": batch.segment, "loss": mean_loss(loss), "digest": received_digest(batch)}
        if dist.get_rank() == 0:
            record.write(json.dumps(line) + "\n")
            record.flush()
            state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "data": loader.state_dict()}
            save(state, checkpoint)


def global_loss(model: torch.nn.Module, batch: TensorBatch) -> torch.Tensor:
    """This rank's part of the mean loss over the tokens of the global batch.

    It is scaled by the world, because gradients are averaged over ranks: their mean is the gradient of the global mean.
    """
    rows = rows_of(batch)
    weighted = token_losses(model(rows.ids, rows.positions), rows) * batch.loss_weight[:, None]
    tokens = (rows.mask * batch.loss_weight[:, None]).sum()
    dist.all_reduce(tokens)
    return weighted.sum() * dist.get_world_size() / tokens


def mean_loss(loss: torch.Tensor) -> float:
    """The loss over the global batch, nats a token."""
    total = loss.detach().clone()
    dist.all_reduce(total)
    return round(total.item() / dist.get_world_size(), 4)


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
