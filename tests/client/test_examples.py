"""The examples train for real: they are killed, and started again at another world size."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

import pytest
from toy_server import Toy, ToyServer
from training import assert_trained_as_planned, first_steps, start, torchrun

SLOW = [pytest.mark.slow, pytest.mark.skipif(not os.environ.get("HEADRACE_SLOW"), reason="set HEADRACE_SLOW=1")]
TOY = Toy(shapes=((14, 8, 16), (10, 16, 8)), vocabulary=2_000)
# torchtitan trains at one sequence length.
EVEN = Toy(shapes=((24, 8, 16),), vocabulary=500)
TITAN = str(Path(__file__).with_name("titan_program.py"))


def case(
    example: str, ranks: int, later: int, *, needs: str = "torch", slow: bool = True, toy: Toy = TOY, program: str = ""
) -> object:
    marks = list(SLOW) if slow else []
    if importlib.util.find_spec(needs) is None:
        marks.append(pytest.mark.skip(reason=f"{needs} is not installed (`make trainers` installs it)"))
    module = program or f"headrace.client.examples.{example}"
    return pytest.param(module, ranks, later, toy, marks=marks, id=f"{example}-{ranks}-{later}")


CASES = [
    case("ddp", 2, 1, slow=False),
    case("ddp", 2, 4),
    case("fsdp2", 2, 4),
    case("fsdp2", 4, 2),
    case("plain", 1, 1),
    case("stateful_dataloader", 2, 4, needs="torchdata"),
    case("huggingface", 2, 1, needs="transformers"),
    case("lightning_fit", 2, 1, needs="lightning"),
    case("accelerate_loop", 2, 1, needs="accelerate"),
    case("accelerate_loop", 1, 2, needs="accelerate"),
    case("torchtitan_train", 2, 1, needs="torchtitan", toy=EVEN, program=TITAN),
    case("torchtitan_train", 1, 2, needs="torchtitan", toy=EVEN, program=TITAN),
]


@pytest.mark.timeout(900)  # some trainers take a minute to import on a busy machine
@pytest.mark.parametrize(("module", "ranks", "later", "toy"), CASES)
def test_killed_and_resumed_at_another_world_size(
    tmp_path: Path, module: str, ranks: int, later: int, toy: Toy
) -> None:
    with ToyServer(toy) as server:
        server.faults.delay = 0.05
        with start(module, server, tmp_path, ranks=ranks) as first:
            first.wait_for_step(8)
            first.kill()
        assert all(line["step"] < toy.end - 1 for line in first.lines()), "it was not killed in time"
        server.faults.delay = 0
        with start(module, server, tmp_path, ranks=later, attempt=1) as second:
            second.finish()
        assert first_steps(second, {process.pid for process in second.processes}) <= {5, 10}
    assert_trained_as_planned(second, toy)
    assert server.service.confirmed == toy.end


@pytest.mark.timeout(900)
@pytest.mark.slow
@pytest.mark.skipif(not os.environ.get("HEADRACE_SLOW"), reason="set HEADRACE_SLOW=1")
def test_torchrun_starts_the_ranks_again_as_a_newer_attempt(tmp_path: Path) -> None:
    with ToyServer(TOY) as server:
        server.faults.delay = 0.03
        with torchrun("headrace.client.examples.ddp", server, tmp_path, ranks=2, restarts=3) as training:
            training.wait_for_step(8)
            training.kill_a_rank()
            training.finish()
        assert max(server.service.attempts) >= 1
    assert_trained_as_planned(training, TOY)
