"""Plain torch, DistributedDataParallel, on gloo or NCCL.

torchrun --nproc-per-node 2 --rdzv-id mine -m headrace.client.examples.ddp 127.0.0.1:7750 RUN

The checkpoint holds the loader's state beside the model's. Rank 0 writes it; every rank reads it, at any world size.
For restarts by torchrun (`--max-restarts`) on gloo set TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1: ranks of a new attempt
would find the addresses of the old one otherwise. The attempt's number fences what is left of the old one.
"""

from __future__ import annotations

import io

import torch
import torch.distributed as dist
from headrace.client.examples.common import Model, Options, main, mean_loss, replace_durably, trace
from headrace.client.torch import Loader
from torch.nn.parallel import DistributedDataParallel


def train(chosen: Options) -> None:
    cuda = torch.cuda.is_available()
    dist.init_process_group("nccl" if cuda else "gloo")
    device = torch.device("cuda", dist.get_rank() % torch.cuda.device_count()) if cuda else torch.device("cpu")
    on = device if cuda else None
    with Loader.for_group(chosen.server, chosen.run, device=on, **chosen.launch) as loader:
        torch.manual_seed(0)
        model = DistributedDataParallel(Model(loader.open().vocab_size).to(device))
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
        path = chosen.folder / "newest.pt"
        if path.exists():
            checkpoint = torch.load(path, map_location=device, weights_only=True)
            model.load_state_dict(checkpoint["model"])
            optimizer.load_state_dict(checkpoint["optimizer"])
            loader.load_state_dict(checkpoint["data"])
        for batch in loader:
            loss = mean_loss(
                model(batch.input_ids, batch.position_ids, batch.document_ids), batch.labels, batch.loss_weight
            )
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            trace(chosen.trace, batch.host)
            if loader.next_step % chosen.save_every == 0 and dist.get_rank() == 0:
                buffer = io.BytesIO()
                torch.save(
                    {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "data": loader.state_dict()},
                    buffer,
                )
                replace_durably(path, buffer.getvalue())
            if loader.next_step >= chosen.steps:
                break
    dist.destroy_process_group()


if __name__ == "__main__":
    main(train, __doc__)
