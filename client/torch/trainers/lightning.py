"""Lightning 2, fed by the stream.

    stream = LightningStream(loader)
    trainer = Trainer(callbacks=[stream.callback], max_steps=..., use_distributed_sampler=False)
    trainer.fit(model, stream, ckpt_path=...)

Lightning fetches a batch ahead to know the last one, so what it has fetched is not what it has trained on. The
callback remembers the batch that was trained on and puts the position after it into the checkpoint, which rank 0
writes: the state is the same for all ranks. Batches reach the module as `TensorBatch`,
on the module's device; with `device=` for the loader they are there before Lightning asks.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from headrace.client.torch.batch import TensorBatch
from headrace.client.torch.loader import Loader
from lightning.pytorch.callbacks import Callback


class LightningStream:
    """The iterable to fit on. It has no state of its own: Lightning would save how far it has fetched."""

    def __init__(self, loader: Loader) -> None:
        self.callback = StreamCallback(loader)
        self._loader = loader

    def __iter__(self) -> Iterator[TensorBatch]:
        return iter(self._loader)


class StreamCallback(Callback):
    """Saves and restores the position in Lightning's own checkpoint."""

    def __init__(self, loader: Loader) -> None:
        self._loader = loader
        self._trained: TensorBatch | None = None

    @property
    def state_key(self) -> str:
        return "headrace"

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        self._trained = batch

    def state_dict(self) -> dict[str, Any]:
        return self._loader.state_dict() if self._trained is None else self._loader.state_after(self._trained)

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self._trained = None
        self._loader.load_state_dict(state_dict)
