"""FSDP2 (`fully_shard`) on a mesh, saved by torch.distributed.checkpoint.

torchrun --nproc-per-node 4 --rdzv-id mine -m headrace.client.examples.fsdp2 127.0.0.1:7750 RUN

With four processes or more the mesh is dp_replicate x dp_shard, else dp_shard alone. The loader is `Stateful`, so the
checkpoint takes it beside model and optimizer; its state has no rank, so another world size loads it.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from headrace.client.examples.common import Model, Options, main, mean_loss, trace
from headrace.client.torch import Loader
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import save
from torch.distributed.checkpoint.stateful import Stateful
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard


class Trained(Stateful):
    """Model and optimizer under one name."""

    def __init__(self, model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> None:
        self._model, self._optimizer = model, optimizer

    def state_dict(self) -> dict[str, Any]:
        model, optimizer = get_state_dict(self._model, self._optimizer)
        return {"model": model, "optimizer": optimizer}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        set_state_dict(
            self._model,
            self._optimizer,
            model_state_dict=state_dict["model"],
            optim_state_dict=state_dict["optimizer"],
        )


def newest(folder: Path) -> Path | None:
    """The newest whole checkpoint: torch writes `.metadata` last."""
    whole = [path.parent for path in folder.glob("step-*/.metadata")]
    return max(whole, key=lambda path: int(path.name.removeprefix("step-")), default=None)


def train(chosen: Options) -> None:
    kind = "cuda" if torch.cuda.is_available() else "cpu"
    dist.init_process_group("nccl" if kind == "cuda" else "gloo")
    world = dist.get_world_size()
    wide = world >= 4 and world % 2 == 0
    mesh = init_device_mesh(
        kind,
        (world // 2, 2) if wide else (world,),
        mesh_dim_names=("dp_replicate", "dp_shard") if wide else ("dp_shard",),
    )
    device = "cuda" if kind == "cuda" else None
    with Loader.for_mesh(chosen.server, chosen.run, mesh, device=device, **chosen.launch) as loader:
        torch.manual_seed(0)
        model = Model(loader.open().vocab_size).to(kind)
        fully_shard(model, mesh=mesh)
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
        everything = {"trained": Trained(model, optimizer), "data": loader}
        checkpoint = newest(chosen.folder)
        if checkpoint is not None:
            load(everything, checkpoint_id=checkpoint)
        for batch in loader:
            loss = mean_loss(
                model(batch.input_ids, batch.position_ids, batch.document_ids), batch.labels, batch.loss_weight
            )
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            trace(chosen.trace, batch.host)
            if loader.next_step % chosen.save_every == 0:
                target = chosen.folder / f"step-{loader.next_step}"
                if dist.get_rank() == 0:
                    shutil.rmtree(target, ignore_errors=True)
                dist.barrier()
                save(everything, checkpoint_id=target)
            if loader.next_step >= chosen.steps:
                break
    dist.destroy_process_group()


if __name__ == "__main__":
    main(train, __doc__)
