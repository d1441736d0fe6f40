"""The loader that gives tensors: `headrace.client.Loader` with a TensorBatch for each Batch."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import torch
from headrace.client import loader
from headrace.client.launch import launch_from
from headrace.client.prefetch import Stats
from headrace.client.session import Opened
from headrace.client.settings import Settings, Tls
from headrace.client.torch.batch import TensorBatch
from headrace.client.torch.groups import Place, peers_of, place_in_group, place_in_mesh, shared_job
from headrace.client.torch.losses import LossSums
from headrace.client.torch.stage import stage_for
from torch import Tensor
from torch.distributed import ProcessGroup
from torch.distributed.device_mesh import DeviceMesh


class Loader(Iterator[TensorBatch]):
    """Tensors of a run for one data-parallel rank. Arguments and errors are those of `headrace.client.Loader`.

    With `device` the tensors lie there: for a CUDA device ids are received into pinned memory and cross on a stream of
    their own while the trainer computes; labels, masks and positions are made on the device. `peers` is by default what
    the processes of `torch.distributed` come to for each data-parallel rank.

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
        start: str = "warn",
        peers: int | None = None,
        micro_batches: int = 1,
        micro_rows: int | None = None,
        tls: Tls | None = None,
        token_file: str | Path | None = None,
        settings: Settings | None = None,
        device: str | torch.device | None = None,
    ) -> None:
        self._stage = stage_for(device)
        self._loader = loader.Loader(
            endpoint,
            run,
            rank=rank,
            world=world,
            job=job,
            attempt=attempt,
            mode=mode,
            takeover=takeover,
            start=start,
            peers=peers if peers is not None else peers_of(world),
            micro_batches=micro_batches,
            micro_rows=micro_rows,
            tls=tls,
            token_file=token_file,
            settings=settings,
            stage=self._stage,
        )
        self._losses = LossSums()

    @classmethod
    def for_group(
        cls, endpoint: str | Sequence[str], run: str, *, group: ProcessGroup | None = None, **more: Any
    ) -> Loader:
        """A loader for trainers in which every process of the group (default: all) is a data-parallel rank.

        A job that no launcher names gets a random name that all processes agree on: a collective of all of them.
        """
        return cls._placed(endpoint, run, place_in_group(group), more)

    @classmethod
    def for_mesh(
        cls,
        endpoint: str | Sequence[str],
        run: str,
        mesh: DeviceMesh,
        *,
        dimensions: Sequence[str] | None = None,
        **more: Any,
    ) -> Loader:
        """A loader whose rank is the data-parallel coordinate in a device mesh (dp_replicate x dp_shard, ...).

        Peers of the other dimensions read the same rows. A job that no launcher names gets a random name that all
        processes agree on: a collective of all of them.
        """
        return cls._placed(endpoint, run, place_in_mesh(mesh, dimensions), more)

    @classmethod
    def _placed(cls, endpoint: str | Sequence[str], run: str, place: Place, more: dict[str, Any]) -> Loader:
        if more.get("job") is None and launch_from(os.environ) is None:
            more = more | {"job": shared_job()}
        loader = cls(endpoint, run, rank=place.rank, world=place.world, **more)
        loader._losses = LossSums(groups=place.groups, first=place.first)
        return loader

    def __iter__(self) -> Loader:
        return self

    def __next__(self) -> TensorBatch:
        batch = TensorBatch(host=self._loader.due(), stage=self._stage)
        self._stage.hand_over(batch.host if batch.host.whole is None else batch.host.whole)
        self._loader.took()  # nothing is after it that Ctrl-C could come into
        return batch

    def state_dict(self) -> dict[str, Any]:
        """The position after the steps taken so far; see `headrace.client.Loader.state_dict`."""
        return self._loader.state_dict()

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Goes on from a state of any world size; see `headrace.client.Loader.load_state_dict`."""
        self._loader.load_state_dict(state_dict)

    def report(self, losses: Tensor, batch: TensorBatch, *, reference: Tensor | None = None) -> None:
        """Tells the server what the model lost on each domain of a batch, in the background.

        losses       unreduced, (R, S) or (R * S,), on any device; what lies under masked labels is not read
        reference    the same of a reference model: then the clamped excess is sent too (DoReMi)

        Call it on all ranks or none (with pipeline stages: on all of the last one): it all-reduces once a step, and one
        rank sends. With micro-batches call it for each; the sums go out with the last. A domain whose loss is not
        finite is left out, and a warning says so: training goes on. A loader that was not made by `for_group` or
        `for_mesh` knows no group and sends the sums of its own rows; the server adds up what ranks send.
        """
        found = self._losses.add(losses, batch, reference)
        if found:
            self._loader.report(batch.step, batch.segment, found)

    def state_after(self, batch: TensorBatch) -> dict[str, Any]:
        """The state of a trainer that trained on `batch` last; see `headrace.client.Loader.state_after`."""
        return self._loader.state_after(batch.host)

    @property
    def micro_batches(self) -> int:
        """In how many parts each step is handed out, where `micro_rows` does not say otherwise."""
        return self._loader.micro_batches

    @property
    def next_step(self) -> int:
        """First step that has not been taken."""
        return self._loader.next_step

    @property
    def stats(self) -> Stats:
        """What waiting has come to since the run was opened."""
        return self._loader.stats

    def open(self) -> Opened:
        """What the server says of the run; see `headrace.client.Loader.open`."""
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
