"""Trainers that are interrupted, fail, or leave their loader lying: nothing hangs, and no step is lost or twice."""

from __future__ import annotations

import gc
import importlib
import os
import random
import signal
import sys
import threading
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import headrace.client
import pytest
from headrace.client import Loader, Settings
from headrace.proto.errors import ConflictError, HeadraceError, StateMismatchError
from toy_server import Toy, ToyServer

CLIENT = str(Path(headrace.client.__file__).parent)
QUICK = Settings(stall_timeout=20, open_timeout=5, call_timeout=5)


@pytest.fixture(params=[False, True], ids=["calls", "stream"])
def server(request: pytest.FixtureRequest) -> Iterator[ToyServer]:
    with ToyServer(Toy(shapes=((600, 8, 16),), streams=request.param)) as running:
        yield running


def within_next(frame: FrameType | None) -> bool:
    """Whether the loader is at work, and not in the few instructions in which Python's own Condition is not safe."""
    if frame is None or (frame.f_code.co_filename == threading.__file__ and "gotit" not in frame.f_locals):
        return False
    if frame.f_code.co_filename == __file__:  # `ignore` below
        return False
    while frame is not None:
        # Properties of a batch are the client's too, and the loop looks at them outside its `try`.
        if frame.f_code.co_filename.startswith(CLIENT) and frame.f_code.co_name == "__next__":
            return True
        frame = frame.f_back
    return False


@contextmanager
def interrupts(every: float, chance: random.Random) -> Iterator[list[int]]:
    """Ctrl-C again and again, at any moment at which the loader is at work.

    One that comes while Python takes an object apart ends there, as everywhere: no test has failed by it.
    """
    count = [0]

    def ignore(unraisable: sys.UnraisableHookArgs) -> None:
        if not issubclass(unraisable.exc_type, KeyboardInterrupt):
            hook(unraisable)

    def strike(number: int, frame: FrameType | None) -> None:
        if within_next(frame):
            count[0] += 1
            raise KeyboardInterrupt

    def send() -> None:
        while not over.wait(chance.uniform(every / 4, every)):
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGUSR1)

    over = threading.Event()
    before = signal.signal(signal.SIGUSR1, strike)
    hook, sys.unraisablehook = sys.unraisablehook, ignore
    sender = threading.Thread(target=send)
    sender.start()
    try:
        yield count
    finally:
        over.set()
        sender.join()
        signal.signal(signal.SIGUSR1, before)
        sys.unraisablehook = hook


@pytest.mark.parametrize("kind", ["headrace.client", "headrace.client.torch"])
@pytest.mark.parametrize("micro_batches", [1, 4])
def test_ctrl_c_at_any_moment_of_next_loses_nothing(server: ToyServer, micro_batches: int, kind: str) -> None:
    if kind.endswith("torch"):
        pytest.importorskip("torch", reason="torch is not installed")
    seed = random.randrange(2**32)
    seen: list[tuple[int, int]] = []
    made = importlib.import_module(kind).Loader
    with made(server.address, "toy", settings=QUICK, micro_batches=micro_batches) as loader:
        seen.append((next(loader).step, 0))
        with interrupts(0.002, random.Random(seed)) as count:
            while True:
                try:
                    batch = next(loader)
                except KeyboardInterrupt:
                    continue
                except StopIteration:
                    break
                seen.append((batch.step, batch.micro[0]))
        assert loader.state_dict()["next_step"] == 600
    assert seen == [(step, part) for step in range(600) for part in range(micro_batches)], f"seed {seed}"
    assert count[0] > 20, count
    assert server.service.confirmed == 600


def test_an_exception_in_the_loop_leaves_a_loader_that_goes_on(server: ToyServer) -> None:
    with Loader(server.address, "toy", settings=QUICK) as loader:
        seen: list[int] = []

        def train() -> None:
            for batch in loader:
                seen.append(batch.step)
                if batch.step % 3 == 2:
                    raise RuntimeError("the loss is not finite")

        for _ in range(5):
            with pytest.raises(RuntimeError, match="not finite"):
                train()
        assert seen == list(range(15))
        assert loader.state_dict()["next_step"] == 15


def test_a_loader_that_is_dropped_in_a_failing_function_gives_its_lease_back(server: ToyServer) -> None:
    def train() -> None:
        loader = Loader(server.address, "toy", job="a", settings=QUICK)
        for batch in loader:
            raise RuntimeError(f"at step {batch.step}")

    with pytest.raises(RuntimeError, match="at step 0"):
        train()
    gc.collect()
    until = time.monotonic() + 10
    while server.service.job is not None and time.monotonic() < until:
        time.sleep(0.01)
    with Loader(server.address, "toy", job="b", settings=QUICK) as other:
        assert next(other).step == 0


def test_a_state_that_is_refused_leaves_the_loader_usable(server: ToyServer) -> None:
    """A state of another run is refused with the next batch; the right one, loaded after it, is taken."""
    with Loader(server.address, "toy", settings=QUICK) as loader:
        for _ in range(4):
            next(loader)
        good = loader.state_dict()
        loader.load_state_dict(good | {"run_id": "another"})
        for _ in range(2):
            with pytest.raises(StateMismatchError):
                next(loader)
        loader.load_state_dict(good)
        assert next(loader).step == 4


def test_two_loaders_of_one_run_in_one_process_are_told_apart(server: ToyServer) -> None:
    """Two jobs on one run exclude each other, also within a process; an observer beside them is free to look."""
    with (
        Loader(server.address, "toy", settings=QUICK) as first,
        Loader(server.address, "toy", settings=QUICK) as second,
    ):
        assert next(first).step == 0
        with pytest.raises(ConflictError):
            next(second)
        with Loader(server.address, "toy", mode="observe", settings=QUICK) as looking:
            assert next(looking).step == 0
        assert next(first).step == 1


def test_a_child_that_exits_does_not_close_its_parents_loader(server: ToyServer) -> None:
    with Loader(server.address, "toy", settings=QUICK) as loader:
        assert next(loader).step == 0
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            child = os.fork()
        if child == 0:
            try:
                loader.close()
            except HeadraceError:
                os._exit(1)
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        assert [next(loader).step for _ in range(20)] == list(range(1, 21))
        assert server.service.job is not None
