"""One process, no launcher: the loop and its checkpoint, nothing else.

python -m headrace.client.examples.plain 127.0.0.1:7750 RUN --job mine --attempt 0

Started again after it was killed, with `--attempt 1` (then 2, ...), it goes on at once. Without `--job` each start is a
job of its own: it waits until the killed one was silent for 60 s, or takes the run over with `--takeover`.
"""

from __future__ import annotations

import io

import torch
from headrace.client.examples.common import Model, Options, losses_of, main, mean_loss, replace_durably, trace
from headrace.client.torch import Loader


def train(chosen: Options) -> None:
    device = "cuda" if torch.cuda.is_available() else None
    with Loader(chosen.server, chosen.run, rank=0, world=1, device=device, **chosen.launch) as loader:
        torch.manual_seed(0)
        model = Model(loader.open().vocab_size).to(device)
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
        path = chosen.folder / "newest.pt"
        if path.exists():
            checkpoint = torch.load(path, weights_only=True)
            model.load_state_dict(checkpoint["model"])
            optimizer.load_state_dict(checkpoint["optimizer"])
            loader.load_state_dict(checkpoint["data"])
        for batch in loader:
            logits = model(batch.input_ids, batch.position_ids, batch.document_ids)
            mean_loss(logits, batch.labels, batch.loss_weight).backward()
            if batch.step % chosen.print_every == 0:
                print(f"step {batch.step}: loss {losses_of(logits.detach(), batch)}", flush=True)
            optimizer.step()
            optimizer.zero_grad()
            trace(chosen.trace, batch.host)
            if loader.next_step % chosen.save_every == 0:
                buffer = io.BytesIO()
                parts = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "data": loader.state_dict()}
                torch.save(parts, buffer)
                replace_durably(path, buffer.getvalue())
            if loader.next_step >= chosen.steps:
                break


if __name__ == "__main__":
    main(train, __doc__)
