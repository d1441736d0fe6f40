"""What breaks a mixer or the losses that it reads, on a real server: the weights in force stay, or move within the
guardrails, and the mixer goes on when it has passed.

By default a loss that overflows; with `HEADRACE_SLOW=1` losses that diverge or belong to no domain, a mixer that is ten
windows late, and fifty kills of its own process while it pushes.
"""

from __future__ import annotations

import math
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import grpc
import pytest
from headrace.client import DomainLoss, Loader
from headrace.mixer.remote import Remote
from headrace.proto.errors import UsageError
from headrace.proto.v1 import control_pb2, control_pb2_grpc
from mixer_rig import DOCUMENTS, Server
from test_mixer_service import SPEEDS, entries, tick, weights, write

KILLS = 50
slow = pytest.mark.skipif(not os.environ.get("HEADRACE_SLOW"), reason="set HEADRACE_SLOW=1")
EVEN = dict.fromkeys(DOCUMENTS, 0.2)
Spoil = Callable[[int, str, DomainLoss], tuple[str, DomainLoss]]


def falling(step: int, name: str) -> DomainLoss:
    return DomainLoss(loss_sum=64 * (5 - 0.0004 * SPEEDS[name] * step), tokens=64)


def take(
    loader: Loader, server: Server, run: str, steps: int, spoil: Spoil | None = None, *, pause: float = 0.0
) -> None:
    """Steps whose losses fall at known speeds, each value spoilt in its own way."""
    with Remote(server.address, run) as remote:
        for _, batch in zip(range(steps), loader, strict=False):
            found = [(name, falling(batch.step, name)) for name in DOCUMENTS]
            loader.report(batch.step, batch.segment, dict(spoil(batch.step, *x) if spoil else x for x in found))
            time.sleep(pause)
            deadline = time.monotonic() + 60
            while batch.step % 32 == 31 and time.monotonic() < deadline:  # reports that come too fast are dropped
                if remote.losses(batch.step, batch.step + 1):
                    break
                time.sleep(0.02)


@pytest.fixture
def run(make_run: Callable[..., str]) -> str:
    return make_run(steps=3000)


@pytest.fixture
def loader(server: Server, run: str) -> Iterator[Loader]:
    with Loader(server.address, run, rank=0, world=1) as opened:
        yield opened


def overflowed(step: int, name: str, loss: DomainLoss) -> tuple[str, DomainLoss]:
    """What the client lets pass: it refuses a loss that is not finite."""
    with pytest.raises(UsageError, match="must be finite"):
        DomainLoss(loss_sum=math.nan, tokens=64)
    return name, DomainLoss(loss_sum=1e300, tokens=64) if name == "other" else loss


def diverging(step: int, name: str, loss: DomainLoss) -> tuple[str, DomainLoss]:
    return name, DomainLoss(loss_sum=loss.loss_sum * (1 + step / 100), tokens=64)


def of_strangers(step: int, name: str, loss: DomainLoss) -> tuple[str, DomainLoss]:
    return ("stranger" if name == "other" else name), loss


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (overflowed, "`other`"),
        pytest.param(diverging, "diverging", marks=slow),
        pytest.param(of_strangers, "`other`", marks=slow),
    ],
)
def test_losses_that_no_mixture_follows_from(
    server: Server, run: str, loader: Loader, tmp_path: Path, spoil: Spoil, said: str
) -> None:
    path = write(tmp_path, server, run)
    tick(path)
    take(loader, server, run, 100)
    take(loader, server, run, 100, spoil)
    take(loader, server, run, 10)
    wait_for(server, run, 200)
    assert tick(path) == 2
    first, second = entries(path, "decision")
    assert (first["decision"], second["decision"]) == ("hold", "freeze")
    assert said in second["reason"]
    assert weights(server, run) == pytest.approx(EVEN)
    take(loader, server, run, 100)
    wait_for(server, run, 300)
    assert tick(path) == 1
    assert entries(path, "decision")[-1]["decision"] == "push"
    assert weights(server, run)["plain"] == pytest.approx(0.25)


def wait_for(server: Server, run: str, steps: int) -> None:
    """Wait until the store knows that `steps` were taken, whatever became of their losses."""
    deadline = time.monotonic() + 60
    with Remote(server.address, run) as remote:
        while remote.facts().settled < steps:
            assert time.monotonic() < deadline, "the steps were never confirmed"
            time.sleep(0.02)


@slow
def test_a_mixer_ten_windows_late_moves_the_weights_once(
    server: Server, run: str, loader: Loader, tmp_path: Path
) -> None:
    path = write(tmp_path, server, run)
    tick(path)
    take(loader, server, run, 1010)
    wait_for(server, run, 1000)
    assert tick(path) == 10
    assert [entry["decision"] for entry in entries(path, "decision")] == [*["hold"] * 9, "push"]
    (outcome,) = entries(path, "outcome")
    assert outcome["from_step"] > 1000
    assert max(abs(weights(server, run)[name] - 0.2) for name in DOCUMENTS) == pytest.approx(0.05)


@pytest.mark.slow
@slow
def test_killed_at_random_moments_it_pushes_each_decision_once(
    server: Server, run: str, loader: Loader, tmp_path: Path
) -> None:
    """SIGKILL of the mixer's process again and again while a trainer goes on: the log holds each accepted push once,
    and the journal, replayed, decides as it did."""
    seed = random.SystemRandom().randrange(2**32)
    print(f"seed {seed}")
    rng, path = random.Random(seed), write(tmp_path, server, run)
    tick(path)
    trainer = threading.Thread(target=take, args=(loader, server, run, 3000), kwargs={"pause": 0.02})
    trainer.start()
    command = [sys.executable, "-c", "from headrace.client.cli.main import run; run()", "mixer", "serve", str(path)]
    for _ in range(KILLS):
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(rng.uniform(0.5, 3.0))
        os.kill(process.pid, signal.SIGKILL)
        process.wait(timeout=30)
    trainer.join()
    wait_for(server, run, 2900)
    tick(path)
    accepted = [entry["sequence"] for entry in entries(path, "outcome") if "sequence" in entry]
    with grpc.insecure_channel(server.address) as channel:
        stub = control_pb2_grpc.ControlServiceStub(channel)
        events = stub.ListEvents(control_pb2.ListEventsRequest(run=run)).events
    assert [event.sequence for event in events] == sorted(set(accepted)) == list(range(1, len(events) + 1))
    assert events
    windows = [entry["end"] for entry in entries(path, "decision")]
    assert windows == sorted(set(windows))
    assert tick(path) == 0
