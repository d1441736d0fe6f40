"""Which stream waits for which, what is kept for how long: with stand-ins for CUDA's streams, where no device is."""

from __future__ import annotations

from contextlib import nullcontext
from itertools import islice

import pytest
import torch
from headrace.client import Batch, Loader
from headrace.client.torch.stage import CudaStage
from toy_server import ToyServer


class Event:
    """Passed when the test says so."""

    def __init__(self) -> None:
        self.passed = False

    def record(self, stream: object) -> None:
        self.stream = stream

    def query(self) -> bool:
        return self.passed


class Stream:
    def __init__(self, device: object = None) -> None:
        self.waited: list[Event] = []

    def wait_event(self, event: Event) -> None:
        self.waited.append(event)


class Device:
    """The trainer's stream, and the tensors that the allocator was told it uses."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.current = Stream()
        self.recorded: list[int] = []
        patch.setattr(torch.cuda, "Event", Event)
        patch.setattr(torch.cuda, "Stream", Stream)
        patch.setattr(torch.cuda, "stream", lambda stream: nullcontext())
        patch.setattr(torch.cuda, "current_stream", lambda device: self.current)
        patch.setattr(torch.Tensor, "record_stream", lambda tensor, stream: self.recorded.append(id(tensor)))


@pytest.fixture
def batches() -> list[Batch]:
    with ToyServer() as server, Loader(server.address, "toy", mode="observe") as loader:
        return list(islice(loader, 3))


def test_the_trainers_stream_waits_and_owns_all_that_was_made(
    batches: list[Batch], monkeypatch: pytest.MonkeyPatch
) -> None:
    device, stage, batch = Device(monkeypatch), CudaStage(torch.device("cpu")), batches[0]
    stage.wanted.add("loss_mask")  # made of the labels, which nobody has asked for yet
    stage.warm(batch)
    assert not device.current.waited
    stage.hand_over(batch)
    assert device.current.waited == [batch.peek("torch.event")]
    made = [batch.peek(f"torch.{name}") for name in ("token_ids", "labels", "loss_mask")]
    assert {id(tensor) for tensor in made} <= set(device.recorded)


def test_a_buffer_is_kept_until_its_copy_is_over(batches: list[Batch], monkeypatch: pytest.MonkeyPatch) -> None:
    Device(monkeypatch)
    stage = CudaStage(torch.device("cpu"))
    for batch in batches[:2]:
        stage.warm(batch)
    assert [ids is batch.token_ids for (_, ids), batch in zip(stage._copying, batches, strict=False)] == [True] * 2
    batches[0].peek("torch.event").passed = True
    stage.warm(batches[2])
    assert [ids is batch.token_ids for (_, ids), batch in zip(stage._copying, batches[1:], strict=True)] == [True] * 2
