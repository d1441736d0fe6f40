"""The adapters, each against what its trainer asks of a loader."""

from __future__ import annotations

from itertools import islice
from typing import Any

import pytest
import torch
from headrace.client.torch import Loader
from headrace.client.torch.trainers.megatron import MegatronStream
from headrace.client.torch.trainers.nanotron import nanotron_batches
from headrace.proto.errors import UsageError
from toy_server import Toy, ToyServer

TOY = Toy(shapes=((12, 8, 16),))


def test_megatron_gets_its_keys_and_its_state_back() -> None:
    with ToyServer(TOY) as server, Loader(server.address, "toy", job="j") as loader:
        stream = MegatronStream(loader, packed=True)
        assert iter(stream) is stream
        for item in islice(stream, 3):
            assert set(item) == {"tokens", "labels", "loss_mask", "position_ids", "cu_seqlens", "max_seqlen"}
            assert item["tokens"].shape == item["labels"].shape == item["loss_mask"].shape == (8, 16)
            assert item["tokens"].dtype == item["labels"].dtype == torch.int64
            assert int(item["labels"].min()) >= 0
            assert item["cu_seqlens"].shape[0] == 1
            assert int(item["cu_seqlens"][0, -1]) == 8 * 16
        state = stream.save_state()
        assert state["next_step"] == 3
        with Loader(server.address, "toy", job="j") as other:
            again = MegatronStream(other)
            again.restore_state(state)
            assert torch.equal(next(again)["tokens"], next(stream)["tokens"])


def test_megatron_loss_mask_carries_weights_and_masks() -> None:
    with ToyServer(TOY) as server, Loader(server.address, "toy", mode="observe") as loader:
        reference = Loader(server.address, "toy", mode="observe")
        for item, batch in zip(MegatronStream(loader), reference, strict=True):
            expected = torch.where(batch.labels >= 0, batch.loss_weight[:, None], torch.zeros(()))
            assert torch.equal(item["loss_mask"], expected)
        reference.close()


def test_nanotron_stages_get_tensors_or_pointers() -> None:
    with ToyServer(TOY) as server:
        with Loader(server.address, "toy", mode="observe", micro_batches=2) as loader:
            items = list(nanotron_batches(loader))
        assert len(items) == 2 * TOY.end
        assert set(items[0]) == {"input_ids", "input_mask", "label_ids", "label_mask", "position_ids"}
        assert all(value.shape == (4, 16) for value in items[0].values())
        with Loader(server.address, "toy", mode="observe") as loader:
            last = next(nanotron_batches(loader, reads_input=False, pointer=lambda: "elsewhere"))
        assert {name for name, value in last.items() if isinstance(value, str)} == {
            "input_ids",
            "input_mask",
            "position_ids",
        }


def test_loss_weights_that_a_trainer_does_not_take_are_named_once(caplog: pytest.LogCaptureFixture) -> None:
    with ToyServer(TOY) as server, Loader(server.address, "toy", mode="observe") as loader:
        assert len(list(nanotron_batches(loader))) == TOY.end
    (told,) = [record.getMessage() for record in caplog.records if "loss weights" in record.getMessage()]
    assert told.startswith("step 0: rows have loss weights, and nanotron takes the mean of all labels alike")
    assert "`label_mask`" in told


def titan(server: ToyServer, **more: Any) -> Any:
    module = pytest.importorskip("headrace.client.torch.trainers.torchtitan", exc_type=ImportError)
    config = module.StreamDataLoader.Config(server=server.address, run="toy", job="j")
    options = {"dp_world_size": 1, "dp_rank": 0, "tokenizer": None, "seq_len": 16, "local_batch_size": 8}
    return config.build(**(options | {"snapshot_every_n_steps": 5} | more))


def test_torchtitan_builds_it_and_goes_on_at_another_degree() -> None:
    with ToyServer(TOY) as server:
        whole = titan(server)
        inputs, labels = next(iter(whole))
        assert set(inputs) == {"input", "positions"}
        assert inputs["input"].shape == inputs["positions"].shape == labels.shape == (8, 16)
        state = whole.state_dict()
        expected = next(iter(whole))[1]
        whole.loader.close()
        halves = [titan(server, dp_world_size=2, dp_rank=rank, local_batch_size=2) for rank in range(2)]
        for half in halves:
            half.load_state_dict({})
            half.load_state_dict(state)
        # Two accumulation steps of two rows on each of two ranks: the same step.
        parts = [list(islice(iter(half), 2)) for half in halves]
        assert torch.equal(torch.cat([labels for part in parts for _, labels in part]), expected)
        for half in halves:
            half.loader.close()


def test_accelerate_leaves_the_loader_alone() -> None:
    accelerate = pytest.importorskip("accelerate")
    with ToyServer(TOY) as server, Loader(server.address, "toy", mode="observe") as loader:
        assert accelerate.Accelerator(cpu=True).prepare(loader) is loader


def test_torchtitan_names_what_does_not_fit() -> None:
    with ToyServer(TOY) as server:
        loader = titan(server, seq_len=32)
        with pytest.raises(UsageError, match="rows have 16 tokens"):
            next(iter(loader))
        loader.loader.close()
        loader = titan(server, local_batch_size=3)
        with pytest.raises(UsageError, match="8 rows"):
            next(iter(loader))
        loader.loader.close()
