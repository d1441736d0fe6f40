"""torchdata's StatefulDataLoader over the stream, saved with `torch.save`.

torchrun --nproc-per-node 2 --rdzv-id mine -m headrace.client.examples.stateful_dataloader 127.0.0.1:7750 RUN

`batch_size=None`, since the server makes the batches, and `num_workers=0`, since the loader prefetches on threads.
"""

from __future__ import annotations

import io

import torch
import torch.distributed as dist
from headrace.client import ranks_from_env
from headrace.client.examples.common import Model, Options, main, mean_loss, replace_durably, trace
from headrace.client.torch import StreamDataset
from torch.nn.parallel import DistributedDataParallel
from torchdata.stateful_dataloader import StatefulDataLoader


def train(chosen: Options) -> None:
    dist.init_process_group("gloo")
    dataset = StreamDataset(chosen.server, chosen.run, **ranks_from_env(), **chosen.launch)
    loader = StatefulDataLoader(dataset, batch_size=None, num_workers=0)
    torch.manual_seed(0)
    model = DistributedDataParallel(Model(dataset.loader.open().vocab_size))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    path = chosen.folder / "newest.pt"
    if path.exists():
        checkpoint = torch.load(path, weights_only=True)
        model.load_state_dict(checkpoint["model"])
        optimizer.load_state_dict(checkpoint["optimizer"])
        loader.load_state_dict(checkpoint["data"])
    for batch in loader:
        logits = model(batch["input_ids"], batch["position_ids"], batch["document_ids"])
        mean_loss(logits, batch["labels"], batch["loss_weight"]).backward()
        optimizer.step()
        optimizer.zero_grad()
        step = int(batch["step"])
        if dataset.newest is not None:
            trace(chosen.trace, dataset.newest.host)
        if (step + 1) % chosen.save_every == 0 and dist.get_rank() == 0:
            buffer = io.BytesIO()
            parts = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "data": loader.state_dict()}
            torch.save(parts, buffer)
            replace_durably(path, buffer.getvalue())
        if step + 1 >= chosen.steps:
            break
    dataset.loader.close()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(train, __doc__)
