"""Tensors on a CUDA device: equal to the host's, from pinned memory, over a stream of their own."""

from __future__ import annotations

import time
from itertools import islice

import numpy as np
import pytest
import torch
from headrace.client.torch import Loader
from headrace.client.torch.make import NAMES
from headrace.client.torch.stage import CudaStage
from toy_server import Toy, ToyServer, step_digests

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device on this machine")
WIDE = Toy(shapes=((40, 16, 2048),))


@pytest.mark.parametrize("micro_batches", [1, 4])
def test_the_device_holds_what_the_host_holds(micro_batches: int) -> None:
    more = {"mode": "observe", "micro_batches": micro_batches}
    with ToyServer() as server:
        host = Loader(server.address, "toy", **more)
        device = Loader(server.address, "toy", device="cuda", **more)
        for ours, theirs in islice(zip(host, device, strict=True), 24):
            for name in sorted(NAMES):
                there = getattr(theirs, name)
                assert there.device.type == "cuda", name
                assert torch.equal(getattr(ours, name).to(torch.int64), there.cpu().to(torch.int64)), name
        host.close()
        device.close()


def test_ids_are_received_into_pinned_memory_and_cross_on_another_stream() -> None:
    with ToyServer(WIDE) as server, Loader(server.address, "toy", device="cuda") as loader:
        stage = loader._stage
        assert isinstance(stage, CudaStage)
        for batch in islice(loader, 3):
            assert torch.from_numpy(batch.host.token_ids).is_pinned()
            assert batch.host.peek("torch.event") is not None
        assert stage._stream is not None
        assert stage._stream != torch.cuda.current_stream()


def test_no_buffer_is_used_again_while_a_copy_from_it_is_under_way() -> None:
    """The trainer's stream is kept busy and nothing is held on the host, so buffers are wanted back at once."""
    kept = []
    with ToyServer(WIDE) as server, Loader(server.address, "toy", device="cuda") as loader:
        for batch in loader:
            torch.cuda._sleep(2_000_000)  # type: ignore[no-untyped-call]
            kept.append(batch.token_ids.clone())
            del batch
    for step, ids in enumerate(kept):
        expected = WIDE.rows(step)["ids"]
        assert np.array_equal(ids.cpu().numpy(), expected), f"step {step}"
        assert step_digests(WIDE, step)


def test_the_host_does_not_wait_for_the_device() -> None:
    with ToyServer(WIDE) as server, Loader(server.address, "toy", device="cuda") as loader:
        for batch in islice(loader, 4):
            assert batch.labels is not None
        torch.cuda.synchronize()
        torch.cuda._sleep(1 << 31)  # type: ignore[no-untyped-call]
        begun = time.monotonic()
        for batch in islice(loader, 4):
            assert batch.labels.shape == (16, 2048)
        taken = time.monotonic() - begun
        busy = not torch.cuda.current_stream().query()  # type: ignore[no-untyped-call]
        torch.cuda.synchronize()
    assert busy or taken < 0.5, f"four batches took {taken:.2f} s"
