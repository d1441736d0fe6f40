"""The examples train for real, on the real server: they are killed, and started again at another world size."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

import pytest
from rig import planned_digests, serving, write_run
from training import assert_trained_as_planned, first_steps, start, torchrun

SLOW = [pytest.mark.slow, pytest.mark.skipif(not os.environ.get("HEADRACE_SLOW"), reason="set HEADRACE_SLOW=1")]
TITAN = str(Path(__file__).with_name("titan_program.py"))
ENDLESS = 100_000
# Most trainers go on over a phase with other rows; torchtitan trains at one sequence length.
RAMP_AT = 30
RAMP = f"""[[phase]]
name = "longer"
steps = {ENDLESS}
seq_len = 32
batch = 16
weights = {{ a = 0.2, b = 0.3, c = 0.5 }}
"""


def spec(folder: Path, corpus: Path, *, ramp: bool) -> Path:
    path = write_run(folder, corpus, steps=RAMP_AT if ramp else ENDLESS, seq_len=16, batch=8)
    path.write_text(path.read_text() + RAMP * ramp)
    return path


def case(
    example: str, ranks: int, later: int, *, needs: str = "torch", slow: bool = True, ramp: bool = True, path: str = ""
) -> object:
    marks = list(SLOW) if slow else []
    if importlib.util.find_spec(needs) is None:
        marks.append(pytest.mark.skip(reason=f"{needs} is not installed (`make trainers` installs it)"))
    module = path or f"headrace.client.examples.{example}"
    return pytest.param(module, ranks, later, ramp, marks=marks, id=f"{example}-{ranks}-{later}")


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
    case("torchtitan_train", 2, 1, needs="torchtitan", ramp=False, path=TITAN),
    case("torchtitan_train", 1, 2, needs="torchtitan", ramp=False, path=TITAN),
]


@pytest.mark.timeout(1800)  # torchtitan took 300 s to be imported on two cores with 20 others at work
@pytest.mark.parametrize(("module", "ranks", "later", "ramp"), CASES)
def test_killed_and_resumed_at_another_world_size(
    tmp_path: Path, corpus: Path, module: str, ranks: int, later: int, ramp: bool
) -> None:
    with serving(tmp_path, [spec(tmp_path, corpus, ramp=ramp)]) as server:
        with start(module, server.address, tmp_path, ranks=ranks, steps=ENDLESS) as first:
            first.wait_for_step(8)
            first.kill()
        killed_at = max(line["step"] for line in first.lines())
        steps = max(killed_at, RAMP_AT) + 12
        with start(module, server.address, tmp_path, ranks=later, steps=steps, attempt=1) as second:
            second.finish()
        (resumed_at,) = first_steps(second, {process.pid for process in second.processes})
        # From the newest checkpoint, or the one before if the newest was being written.
        assert resumed_at % 5 == 0
        assert max(5, killed_at - 10) <= resumed_at <= killed_at + 1
        assert_trained_as_planned(second, planned_digests(server.store, "r", f"0:{steps}"))
        assert "received other bytes" not in server.log.read_text()


@pytest.mark.timeout(900)
@pytest.mark.slow
@pytest.mark.skipif(not os.environ.get("HEADRACE_SLOW"), reason="set HEADRACE_SLOW=1")
def test_torchrun_starts_the_ranks_again_as_a_newer_attempt(tmp_path: Path, corpus: Path) -> None:
    module, steps = "headrace.client.examples.ddp", 400
    with serving(tmp_path, [spec(tmp_path, corpus, ramp=True)]) as server:
        with torchrun(module, server.address, tmp_path, ranks=2, steps=steps, restarts=3) as training:
            training.wait_for_step(8)
            training.kill_a_rank()
            training.finish()
        assert_trained_as_planned(training, planned_digests(server.store, "r", f"0:{steps}"))
        assert "attempt 1 rank" in server.log.read_text()
