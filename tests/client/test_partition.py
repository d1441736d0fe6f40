"""The path between trainer and server fails silently, one way or both, and comes back: nothing is lost or twice."""

from __future__ import annotations

import json
import os
import random
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from corpora import build_small_corpus
from headrace.client import Loader, Settings
from headrace.native import step_digest
from headrace.proto.errors import UnavailableError
from partition import HOOKS, Partition, why_not
from rig import HEADRACE, planned_digests, write_run
from toy_server import Toy, step_digests

PROGRAM = Path(__file__).with_name("toy_server.py")
SLOW = [pytest.mark.slow, pytest.mark.skipif(not os.environ.get("HEADRACE_SLOW"), reason="set HEADRACE_SLOW=1")]
KEEPALIVE, TIMEOUT = 0.7, 0.3
QUICK = Settings(stall_timeout=60, open_timeout=20, call_timeout=20, keepalive=KEEPALIVE, keepalive_timeout=TIMEOUT)
# A busy machine is late: what may come on top of the times that are promised.
LATE = 1.5


@pytest.fixture
def path() -> Iterator[Partition]:
    if why_not():
        pytest.skip(why_not())
    with Partition() as made:
        yield made


@contextmanager
def serving(path: Partition, toy: Toy) -> Iterator[str]:
    process = path.spawn(str(PROGRAM), json.dumps({"shapes": toy.shapes, "host": path.host}))
    try:
        assert process.stdout is not None
        yield process.stdout.readline().strip()
    finally:
        process.kill()
        process.communicate()


@contextmanager
def really_serving(path: Partition, folder: Path, run: Path) -> Iterator[str]:
    """The real server in the namespace: its loaders fetch over one stream."""
    config = folder / "SERVER.toml"
    config.write_text(
        f'[server]\nlisten = "{path.host}:7750"\nallow_insecure = true\nstore = "sqlite:///{folder}/control.db"\n'
        f'runs = ["{run}"]\n'
    )
    process = path.spawn(*HEADRACE[1:], "serve", str(config))
    try:
        assert process.stdout is not None
        assert any("serves on" in line for line in process.stdout)
        yield f"{path.host}:7750"
    finally:
        process.kill()
        process.communicate()


class Trainer(threading.Thread):
    """Takes every step, one each few milliseconds, and writes down when."""

    def __init__(self, loader: Loader, pause: float) -> None:
        super().__init__(daemon=True)
        self._loader, self._pause = loader, pause
        self.digests: list[bytes] = []
        self.times: list[float] = []
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            for batch in self._loader:
                self.times.append(time.monotonic())
                self.digests.append(batch.row_digests.tobytes())
                time.sleep(self._pause)
        except BaseException as error:
            self.error = error

    def first_after(self, moment: float, *, within: float) -> float:
        """How long after a moment the next batch came."""
        while time.monotonic() < moment + within:
            late = [at for at in self.times if at > moment]
            if late:
                return late[0] - moment
            assert self.error is None, self.error
            time.sleep(0.01)
        raise AssertionError(f"no batch within {within} s after {len(self.times)} steps: {self._loader.stats}")

    def wait_for(self, steps: int) -> None:
        until = time.monotonic() + 60
        while len(self.times) < steps:
            assert self.error is None, self.error
            assert time.monotonic() < until
            time.sleep(0.01)


def went_silent(loader: Loader, before: int, *, within: float) -> float:
    """How long it took until a call was given up."""
    begun = time.monotonic()
    while loader.stats.retries == before:
        assert time.monotonic() - begun < within, "the partition was not noticed"
        time.sleep(0.01)
    return time.monotonic() - begun


def test_each_direction_is_noticed_by_keepalive_and_healed_within_a_second(path: Partition) -> None:
    toy = Toy(shapes=((1_000, 4, 16),))
    with serving(path, toy) as address, Loader(address, "toy", job="j", settings=QUICK) as loader:
        trainer = Trainer(loader, 0.002)
        trainer.start()
        for direction in sorted(HOOKS):
            trainer.wait_for(len(trainer.times) + 10)
            before = loader.stats.retries
            path.cut(direction)
            noticed = went_silent(loader, before, within=KEEPALIVE + TIMEOUT + LATE)
            time.sleep(0.7)
            healed = time.monotonic()
            path.heal()
            back = trainer.first_after(healed, within=1 + LATE)
            print(f"{direction}: noticed after {noticed:.2f} s, the next batch {back:.2f} s after it healed")
        trainer.join(60)
        assert trainer.error is None
    assert trainer.digests == [step_digests(toy, step) for step in range(toy.end)]


def test_a_partition_while_it_connects(path: Partition) -> None:
    path.cut("both")
    begun = time.monotonic()
    settings = Settings(open_timeout=1.0)
    with Loader(f"{path.host}:7750", "toy", settings=settings) as loader, pytest.raises(UnavailableError) as caught:
        next(loader)
    assert path.host in str(caught.value)
    assert time.monotonic() - begun < 1 + 2 * LATE
    path.heal()
    toy = Toy(shapes=((5, 4, 16),))
    with serving(path, toy) as address, Loader(address, "toy", job="j", settings=QUICK) as loader:
        path.cut("both")
        trainer = Trainer(loader, 0)
        trainer.start()
        time.sleep(0.7)
        assert not trainer.times
        healed = time.monotonic()
        path.heal()
        trainer.first_after(healed, within=1 + LATE)
        trainer.join(30)
    assert trainer.digests == [step_digests(toy, step) for step in range(toy.end)]


@pytest.mark.timeout(900)
@pytest.mark.parametrize("seconds", [pytest.param(s, marks=SLOW) for s in (5, 30, 120)])
def test_a_long_partition_with_the_settings_that_ship(path: Partition, tmp_path: Path, seconds: float) -> None:
    """Nobody has tuned anything: the trainer waits, and goes on by itself within a second."""
    steps = 300
    run = write_run(tmp_path, build_small_corpus(tmp_path), steps=steps)
    with really_serving(path, tmp_path, run) as address, Loader(address, "r", job="j") as loader:
        trainer = Trainer(loader, 0.01)
        trainer.start()
        trainer.wait_for(10)
        path.cut("both")
        time.sleep(seconds)
        healed = time.monotonic()
        path.heal()
        back = trainer.first_after(healed, within=1 + LATE)
        trainer.join(60)
        assert trainer.error is None
    planned = planned_digests(f"sqlite:///{tmp_path}/control.db", "r", f"0:{steps}")
    assert [step_digest(rows) for rows in trainer.digests] == [planned[step] for step in range(steps)]
    print(f"{seconds} s: the next batch {back:.2f} s after it healed")


@pytest.mark.timeout(900)
@pytest.mark.parametrize("partitions", [pytest.param(10, marks=SLOW)])
def test_many_partitions_from_the_real_server(path: Partition, tmp_path: Path, partitions: int) -> None:
    seed = random.randrange(2**32)
    chance = random.Random(seed)
    steps, backs = 2_000, []
    corpus = build_small_corpus(tmp_path)
    run = write_run(tmp_path, corpus, steps=steps)
    # The server takes a client that asks more often than four times a second whether it lives for a hostile one.
    settings = replace(QUICK, call_timeout=1, keepalive=2, keepalive_timeout=1)
    with really_serving(path, tmp_path, run) as address, Loader(address, "r", job="j", settings=settings) as loader:
        trainer = Trainer(loader, 0.005)
        trainer.start()
        for _ in range(partitions):
            trainer.wait_for(len(trainer.times) + 10)
            path.cut(chance.choice(sorted(HOOKS)))
            time.sleep(chance.uniform(0.1, 4))
            healed = time.monotonic()
            path.heal()
            backs.append(trainer.first_after(healed, within=12))
        trainer.join(300)
        assert trainer.error is None, f"seed {seed}"
    planned = planned_digests(f"sqlite:///{tmp_path}/control.db", "r", f"0:{steps}")
    assert [step_digest(rows) for rows in trainer.digests] == [planned[step] for step in range(steps)], f"seed {seed}"
    print(f"the next batch {sorted(backs)[len(backs) // 2]:.2f} s after it healed, {max(backs):.2f} s at most")


@pytest.mark.timeout(900)
@pytest.mark.parametrize("partitions", [pytest.param(20, marks=SLOW)])
def test_many_partitions_at_random(path: Partition, partitions: int) -> None:
    seed = random.randrange(2**32)
    chance = random.Random(seed)
    toy = Toy(shapes=((4_000, 4, 16),))
    backs = []
    with serving(path, toy) as address, Loader(address, "toy", job="j", settings=QUICK) as loader:
        trainer = Trainer(loader, 0.005)
        trainer.start()
        for _ in range(partitions):
            trainer.wait_for(len(trainer.times) + 10)
            time.sleep(chance.uniform(0, 0.1))
            path.cut(chance.choice(sorted(HOOKS)))
            time.sleep(chance.uniform(0.1, 4))
            healed = time.monotonic()
            path.heal()
            backs.append(trainer.first_after(healed, within=5))
        trainer.join(300)
        assert trainer.error is None, f"seed {seed}"
    assert trainer.digests == [step_digests(toy, step) for step in range(toy.end)], f"seed {seed}"
    print(
        f"the next batch at most {max(backs):.2f} s after it healed, {sorted(backs)[len(backs) // 2]:.2f} s the median"
    )
