"""The loader that gives tensors: `headrace.client.Loader` with a TensorBatch for each Batch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from headrace.client import loader
from headrace.client.prefetch import Stats
from headrace.client.session import Opened
from headrace.client.settings import Settings, Tls
from headrace.client.torch.batch import TensorBatch


class Loader(Iterator[TensorBatch]):
    """Tensors of a run for one data-parallel rank. Arguments and errors are those of `headrace.client.Loader`.

    It has `state_dict` and `load_state_dict`, so `torch.distributed.checkpoint` saves it as it saves a model.
    """

    def __init__(
        self,
        endpoint: str | Sequence[str],
        run: str,
        *,
        rank: int | None = None,
        world: int | None = None,
        job: str | None = None,
        attempt: int | None = None,
        mode: str = "train",
        takeover: bool = False,
        micro_batches: int = 1,
        tls: Tls | None = None,
        token_file: str | Path | None = None,
        settings: Settings | None = None,
    ) -> None:
        self._loader = loader.Loader(
            endpoint,
            run,
            rank=rank,
            world=world,
            job=job,
            attempt=attempt,
            mode=mode,
            takeover=takeover,
            micro_batches=micro_batches,
            tls=tls,
            token_file=token_file,
            settings=settings,
        )

    def __iter__(self) -> Loader:
        return self

    def __next__(self) -> TensorBatch:
        return TensorBatch(host=next(self._loader))

    def state_dict(self) -> dict[str, Any]:
        """The position after the steps taken so far; see `headrace.client.Loader.state_dict`."""
        return self._loader.state_dict()

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Goes on from a state of any world size; see `headrace.client.Loader.load_state_dict`."""
        self._loader.load_state_dict(state_dict)

    @property
    def next_step(self) -> int:
        """First step that has not been taken."""
        return self._loader.next_step

    @property
    def stats(self) -> Stats:
        """What waiting has come to since the run was opened."""
        return self._loader.stats

    def open(self) -> Opened:
        """Opens the run now rather than with the first batch."""
        return self._loader.open()

    def close(self) -> None:
        """Confirms what was taken and gives the lease back."""
        self._loader.close()

    def __enter__(self) -> Loader:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
