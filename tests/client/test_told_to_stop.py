"""A trainer that is told to stop, refused, or out of disk ends in order: in one line, and with the lease given back."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from headrace.client import Loader
from toy_server import Toy, ToyServer
from training import QUIET

TOY = Toy(shapes=((4_000, 8, 16),), vocabulary=500)
PLAIN = [sys.executable, "-m", "headrace.client.examples.plain"]

LOOP = """
import sys
from headrace.client import Loader, exit_on_signal
exit_on_signal()
with Loader(sys.argv[1], "toy") as loader:
    for batch in loader:
        print(batch.step, flush=True)
"""


STARTED: list[subprocess.Popen[str]] = []


@pytest.fixture(autouse=True)
def _nothing_is_left() -> Iterator[None]:
    yield
    while STARTED:
        process = STARTED.pop()
        process.kill()
        process.communicate()


def start(command: list[str], folder: Path) -> subprocess.Popen[str]:
    pipe, environ = subprocess.PIPE, os.environ | QUIET
    process = subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, env=environ, cwd=folder)
    STARTED.append(process)
    return process


def plain(server: ToyServer, folder: Path, *words: str) -> subprocess.Popen[str]:
    return start([*PLAIN, server.address, "toy", "--steps", "4000", "--print-every", "5", *words], folder)


def wait_for_step(server: ToyServer, step: int) -> None:
    until = time.monotonic() + 100
    while server.service.confirmed < step:
        assert time.monotonic() < until
        time.sleep(0.02)


def test_sigterm_closes_the_loader(tmp_path: Path) -> None:
    with ToyServer(TOY) as server:
        server.faults.delay = 0.1
        process = start([sys.executable, "-c", LOOP, server.address], tmp_path)
        wait_for_step(server, 5)
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=30)
        assert (process.returncode, err) == (128 + signal.SIGTERM, "")
        assert server.service.job is None, "the lease was not given back"
        # The step that was printed last may be the one during which the signal came.
        assert len(out.split()) - server.service.confirmed in (0, -1)


def test_a_handler_of_the_trainer_is_left_alone() -> None:
    program = (
        "import signal; from headrace.client import exit_on_signal\n"
        "mine = lambda *_: None; signal.signal(signal.SIGTERM, mine); exit_on_signal()\n"
        "assert signal.getsignal(signal.SIGTERM) is mine; exit_on_signal(signal.SIGUSR1)\n"
        "import os; os.kill(os.getpid(), signal.SIGUSR1)"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 128 + signal.SIGUSR1


def test_examples_are_refused_and_stopped_in_one_line_and_leave_the_run_free(tmp_path: Path) -> None:
    with ToyServer(TOY) as server:
        server.faults.delay = 0.1
        first = plain(server, tmp_path, "--job", "mine", "--attempt", "3")
        wait_for_step(server, 6)
        assert server.service.job == ("mine", 3)
        second = plain(server, tmp_path)
        assert_one_line(second, 1, "job `mine`")
        third = plain(server, tmp_path, "--job", "theirs", "--takeover")
        assert_one_line(first, 1, "fenced by job theirs")
        confirmed = server.service.confirmed
        wait_for_step(server, confirmed + 10)
        third.send_signal(signal.SIGTERM)
        out, err = third.communicate(timeout=30)
        assert (third.returncode, err) == (128 + signal.SIGTERM, "")
        assert "step 0:" not in out, "it did not go on from the checkpoint"
        assert server.service.job is None, "the lease was not given back"


def test_a_full_disk_leaves_the_checkpoint_before_it(tmp_path: Path) -> None:
    with ToyServer(TOY) as server:
        server.faults.delay = 0.1
        process = plain(server, tmp_path, "--job", "a")
        wait_for_step(server, 12)
        resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (8_192, 8_192))
        assert_one_line(process, 1, "checkpoints/newest.pt cannot be written: File too large")
        folder = tmp_path / "checkpoints"
        assert [path.name for path in folder.iterdir()] == ["newest.pt"]
        saved = torch.load(folder / "newest.pt", weights_only=True)["data"]["next_step"]
        assert 10 <= saved < server.service.confirmed
        assert server.service.job is None


def assert_one_line(process: subprocess.Popen[str], code: int, says: str) -> None:
    _, err = process.communicate(timeout=100)
    assert process.returncode == code, err
    assert err.startswith("error: ")
    assert err.count("\n") == 1, err
    assert says in err


@pytest.mark.parametrize("start_at", ["resume", "beginning", "warn"])
def test_what_a_loader_without_a_state_does_on_a_run_that_was_trained_on(
    start_at: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The toy gives no notes, so here it is only refused or not."""
    with ToyServer(TOY) as server:
        with Loader(server.address, "toy", job="a", start="resume") as fresh:
            for _ in range(20):
                next(fresh)
            state = fresh.state_dict()
        with Loader(server.address, "toy", job="b", start=start_at) as loader:
            if start_at != "resume":
                assert next(loader).step == 0
                return
            with pytest.raises(Exception, match="has 20 confirmed steps"):
                next(loader)
            assert server.service.job is None, "the lease was taken"
            loader.load_state_dict(state)
            assert next(loader).step == 20
