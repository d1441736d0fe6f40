"""Tensors, datasets and torch's own ways to save a state."""

from __future__ import annotations

from itertools import islice
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.distributed.checkpoint as dcp
from headrace.client import Settings
from headrace.client.torch import Loader, StreamDataset
from headrace.client.torch.make import NAMES
from torch.distributed.checkpoint.stateful import Stateful
from torch.utils.data import DataLoader
from toy_server import Toy, ToyServer


def test_tensors_hold_what_the_batch_holds() -> None:
    with ToyServer() as server, Loader(server.address, "toy") as loader:
        for batch in islice(loader, 5):
            host = batch.host
            assert batch.input_ids.dtype == batch.labels.dtype == batch.position_ids.dtype == torch.int64
            assert batch.input_ids.is_contiguous()
            for name in ("input_ids", "labels", "position_ids", "loss_mask", "domain", "loss_weight", "cu_seqlens"):
                assert np.array_equal(getattr(batch, name).numpy(), getattr(host, name)), name
            batch.token_ids[0, 0] = 7
            assert host.token_ids[0, 0] == 7, "token_ids is no view of the buffer"
            assert [len(part) for part in batch.split(2)] == [4, 4]


@pytest.mark.parametrize("micro_batches", [1, 4])
def test_a_device_makes_the_same_tensors(micro_batches: int) -> None:
    names = (*NAMES, "cu_seqlens")
    more = {"mode": "observe", "micro_batches": micro_batches}
    with ToyServer() as server:
        host = Loader(server.address, "toy", **more)
        device = Loader(server.address, "toy", device="cpu", **more)
        for ours, theirs in islice(zip(host, device, strict=True), 12):
            assert (ours.step, ours.micro) == (theirs.step, theirs.micro)
            for name in names:
                here, there = getattr(ours, name), getattr(theirs, name)
                assert here.dtype == there.dtype, name
                assert torch.equal(here.to(torch.int64), there.to(torch.int64)), name
            assert np.array_equal(ours.cu_seqlens, ours.host.cu_seqlens)
        host.close()
        device.close()


def test_tensors_are_made_ahead_once_it_is_known_which() -> None:
    with ToyServer() as server, Loader(server.address, "toy") as loader:
        assert next(loader).labels is not None
        late = list(islice(loader, 20))[-1]
        assert late.host.peek("torch.labels") is not None
        assert late.host.peek("torch.position_ids") is None


def test_to_a_device_and_where_it_lies_already() -> None:
    with ToyServer() as server, Loader(server.address, "toy", micro_batches=2) as loader:
        batch = next(loader)
        assert batch.to("cpu") is batch
        moved = batch.to("meta")
        assert moved.labels.device.type == "meta"
        assert moved.labels.shape == batch.labels.shape
        assert batch.labels.device.type == "cpu"


def test_a_loss_ignores_what_has_no_label() -> None:
    with ToyServer() as server, Loader(server.address, "toy") as loader:
        batch = next(loader)
        logits = torch.zeros(*batch.labels.shape, 60_000)
        losses = torch.nn.functional.cross_entropy(logits.flatten(0, 1), batch.labels.flatten(), reduction="none")
        assert int((losses > 0).sum()) == batch.tokens
        assert torch.equal(losses.view_as(batch.labels) > 0, batch.loss_mask)


def test_dataset_in_a_plain_data_loader_goes_on_where_it_was() -> None:
    with ToyServer(Toy(shapes=((12, 4, 8),))) as server:
        dataset = StreamDataset(server.address, "toy", job="j")
        first = [int(item["step"]) for item in islice(DataLoader(dataset, batch_size=None), 5)]
        state = dataset.state_dict()
        rest = [int(item["step"]) for item in DataLoader(dataset, batch_size=None)]
        dataset.load_state_dict(state)
        again = [int(item["step"]) for item in DataLoader(dataset, batch_size=None)]
        dataset.loader.close()
    assert first == [0, 1, 2, 3, 4]
    assert state["next_step"] == 5
    assert rest == again == list(range(5, 12))


def test_a_mapping_holds_all_that_a_trainer_may_ask() -> None:
    with ToyServer() as server:
        dataset = StreamDataset(server.address, "toy", mode="observe")
        for item in islice(DataLoader(dataset, batch_size=None), 5):
            batch = dataset.newest
            assert batch is not None
            numbers = {"step": batch.step, "segment": batch.segment, "max_seqlen": batch.max_seqlen}
            assert {name: int(item[name]) for name in numbers} == numbers
            tensors = {"input_ids", "labels", "position_ids", "document_ids", "cu_seqlens", "loss_mask", "domain"}
            assert set(item) == {*numbers, *tensors, "loss_weight"}
            assert all(torch.equal(item[name], getattr(batch, name)) for name in (*tensors, "loss_weight"))
        dataset.loader.close()


@pytest.mark.filterwarnings("ignore:torch.distributed is disabled:UserWarning")
def test_state_through_torch_save_and_checkpoint(tmp_path: Path) -> None:
    with ToyServer() as server:
        with Loader(server.address, "toy", job="j") as loader:
            assert isinstance(loader, Stateful)
            for _ in range(3):
                next(loader)
            torch.save({"data": loader.state_dict()}, tmp_path / "state.pt")
            dcp.save({"data": loader}, checkpoint_id=tmp_path / "dcp", no_dist=True)
        with Loader(server.address, "toy", job="j") as again:
            again.load_state_dict(torch.load(tmp_path / "state.pt", weights_only=True)["data"])
            assert next(again).step == 3
        with Loader(server.address, "toy", job="j", settings=Settings(open_timeout=5)) as again:
            dcp.load({"data": again}, checkpoint_id=tmp_path / "dcp", no_dist=True)
            assert next(again).step == 3
