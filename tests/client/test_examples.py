"""The examples train for real: ranks are killed, torchrun starts them again, another world size goes on."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from toy_server import Toy, ToyServer
from training import assert_trained_as_planned, start

SLOW = [pytest.mark.slow, pytest.mark.skipif(not os.environ.get("HEADRACE_SLOW"), reason="set HEADRACE_SLOW=1")]
TOY = Toy(shapes=((24, 8, 16), (12, 16, 8)))


@pytest.mark.parametrize(
    ("module", "ranks", "later"),
    [
        ("headrace.client.examples.ddp", 2, 1),
        pytest.param("headrace.client.examples.ddp", 2, 4, marks=SLOW),
        pytest.param("headrace.client.examples.fsdp2", 2, 4, marks=SLOW),
        pytest.param("headrace.client.examples.fsdp2", 4, 2, marks=SLOW),
    ],
)
def test_killed_started_again_and_resumed_at_another_world_size(
    tmp_path: Path, module: str, ranks: int, later: int
) -> None:
    with ToyServer(TOY) as server:
        server.faults.delay = 0.03
        first = start(module, server, tmp_path, ranks=ranks, restarts=1, steps=20)
        first.wait_for_step(8)
        first.kill_a_rank()
        first.finish()
        assert {rank.rpartition("/")[2] for rank in server.seen.ranks} == {str(ranks)}
        assert len(server.seen.ranks) == 2 * ranks, "torchrun did not start the ranks again"
        assert server.service.job is None
        second = start(module, server, tmp_path, ranks=later)
        second.finish()
    assert_trained_as_planned(second, TOY)
    assert server.service.confirmed == TOY.end
