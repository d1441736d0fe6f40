"""One domain lies on a slow disk: its own run waits for it, ranks and runs that do not need it keep their rate."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from headrace.client import Loader, Settings
from rig import ServerProcess, serving, write_run
from slow_disk_server import SECONDS

PROGRAM = [sys.executable, str(Path(__file__).with_name("slow_disk_server.py"))]
SLOW = os.environ.get("HEADRACE_SLOW") == "1"
QUICK = Settings(stall_timeout=60, open_timeout=30, backoff=0.01, backoff_max=0.2)
STEPS = 150


@pytest.fixture
def server(tmp_path: Path, corpus: Path) -> Iterator[ServerProcess]:
    """Runs with rows of the slow domain in each step, and one with none."""
    mixed = write_run(tmp_path, corpus, name="mixed", steps=10_000)
    quick = write_run(tmp_path, corpus, name="quick", steps=100_000, lead=64)
    quick.write_text(quick.read_text().replace("c = 0.2", "c = 0"))
    with serving(tmp_path, [mixed, quick], program=PROGRAM) as started:
        yield started


@contextmanager
def meanwhile(work: threading.Thread, stop: threading.Event) -> Iterator[None]:
    work.start()
    try:
        yield
    finally:
        stop.set()
        work.join(60)


def waits(loader: Loader, steps: int) -> list[float]:
    found = []
    for _ in range(steps):
        begun = time.perf_counter()
        next(loader)
        found.append(time.perf_counter() - begun)
    return sorted(found)


def test_a_run_without_the_slow_domain_keeps_its_rate(server: ServerProcess) -> None:
    """Beside one that trains on it, and beside one that reads again what was sealed before the server started."""
    with Loader(server.address, "quick", job="q", settings=QUICK) as quick:
        alone = waits(quick, STEPS)
        for mode in ("train", "observe"):
            stop, taken = threading.Event(), [0]

            def read(mode: str = mode, stop: threading.Event = stop, taken: list[int] = taken) -> None:
                with Loader(server.address, "mixed", job=mode, mode=mode, settings=QUICK) as loader:
                    while not stop.is_set() and (mode == "train" or taken[0] < 10):
                        next(loader)
                        taken[0] += 1

            with meanwhile(threading.Thread(target=read), stop):
                until = time.monotonic() + 20
                while not taken[0] and time.monotonic() < until:
                    time.sleep(0.01)
                beside: list[float] = []
                while len(beside) < STEPS or taken[0] < 5:
                    beside += waits(quick, 10)
            late = sum(wait > SECONDS / 2 for wait in beside)
            middle = sorted(beside)[len(beside) // 2]
            print(f"{mode}: median {alone[STEPS // 2]:.4f} s alone, {middle:.4f} s beside, {late} late")
            assert middle < 4 * alone[STEPS // 2] + 0.005
            assert late <= len(beside) // 20
            server.stop()
            server.start()


def test_other_calls_are_answered_while_old_steps_are_read_from_the_slow_disk(server: ServerProcess) -> None:
    """Twenty observers at once read what the server does not keep; nobody else notices."""
    with Loader(server.address, "mixed", job="m", settings=QUICK) as loader:
        for _ in range(8):
            next(loader)
    server.stop()
    server.start()
    loaders = [Loader(server.address, "mixed", mode="observe", settings=QUICK) for _ in range(20)]
    took: list[float] = []
    with grpc.insecure_channel(server.address) as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        stub.Check(health_pb2.HealthCheckRequest(), wait_for_ready=True, timeout=10)
        readers = [threading.Thread(target=next, args=(loader,)) for loader in loaders]
        for reader in readers:
            reader.start()
        while any(reader.is_alive() for reader in readers):
            begun = time.perf_counter()
            stub.Check(health_pb2.HealthCheckRequest(), timeout=30)
            took.append(time.perf_counter() - begun)
            time.sleep(0.005)
    for loader in loaders:
        loader.close()
    late = sum(seconds > SECONDS / 2 for seconds in took)
    print(f"{len(took)} checks, {max(took):.3f} s at most, {late} late")
    assert len(took) > 20
    assert late <= 2


def test_a_rank_that_is_ten_times_slower_holds_up_nobody_up_to_the_lead(server: ServerProcess) -> None:
    """The fast rank has the next `lead` steps at its own rate; how long each has waited is in its figures."""
    ranks = [Loader(server.address, "quick", rank=rank, world=2, job="r", settings=QUICK) for rank in (0, 1)]
    with ranks[0] as fast, ranks[1] as slow:
        assert next(fast).step == next(slow).step == 0
        begun = time.monotonic()
        for _ in range(60):
            next(fast)
            time.sleep(0.005)
        took = time.monotonic() - begun
        assert took < 60 * 0.05
        assert fast.stats.wait_seconds < took
        time.sleep(0.05)
        assert next(slow).step == 1
        assert slow.stats.wait_seconds <= fast.stats.wait_seconds + took


def test_the_run_that_needs_the_slow_disk_reads_ahead_and_waits_no_longer_than_the_disk(server: ServerProcess) -> None:
    with Loader(server.address, "mixed", job="m", settings=QUICK) as loader:
        next(loader)
        begun = time.monotonic()
        for _ in range(20):
            next(loader)
        took = time.monotonic() - begun
        assert loader.stats.wait_seconds > 0
    assert took < 20 * 2 * SECONDS
