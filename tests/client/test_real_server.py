"""The loader against the real server on a real corpus: what it yields equals what the pure functions say."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from corpora import build_small_corpus
from headrace.client import Batch, DomainLoss, Loader, Settings
from headrace.native import step_digest
from headrace.proto.errors import ConflictError, FencedError, StateMismatchError, UsageError
from rig import Raw, ServerProcess, planned_digests, serving, write_run

STEPS = 60
QUICK = Settings(stall_timeout=60, open_timeout=30, backoff=0.01, backoff_max=0.2)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_small_corpus(tmp_path_factory.mktemp("corpus"))


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with serving(tmp_path_factory.mktemp("server"), []) as started:
        yield started


class Runs:
    """Makes runs on the server of the module, and says what was planned for them."""

    def __init__(self, server: ServerProcess, corpus: Path, folder: Path) -> None:
        self.server, self._corpus, self._folder = server, corpus, folder

    def make(self, name: str, *, only: str = "", **changes: Any) -> str:
        path = write_run(self._folder, corpus=self._corpus, name=name, steps=STEPS, **changes)
        if only:
            path.write_text(re.sub(r"weights = .*", f"weights = {{ {only} = 1.0 }}", path.read_text()))
        with Raw(self.server.address) as raw:
            raw("CreateRun", spec_toml=path.read_text(), base_dir=str(self._folder), author="test")
        return name

    def planned(self, name: str) -> list[bytes]:
        digests = planned_digests(self.server.store, name, f"0:{STEPS}")
        return [digests[step] for step in range(STEPS)]

    def loader(self, name: str, **more: Any) -> Loader:
        return Loader(self.server.address, name, settings=QUICK, **more)

    def ranks(self, stack: ExitStack, name: str, world: int, state: Any = None, **more: Any) -> list[Loader]:
        loaders = [stack.enter_context(self.loader(name, rank=r, world=world, **more)) for r in range(world)]
        for loader in loaders if state is not None else []:
            loader.load_state_dict(state)
        return loaders


@pytest.fixture
def runs(server: ServerProcess, corpus: Path, tmp_path: Path) -> Runs:
    return Runs(server, corpus, tmp_path)


def join(parts: list[Batch]) -> bytes:
    """Step digest of the rows that all ranks got."""
    assert len({part.step for part in parts}) == 1
    return step_digest(b"".join(part.row_digests.tobytes() for part in parts))


def take(loaders: list[Loader], steps: int) -> list[bytes]:
    return [join([next(loader) for loader in loaders]) for _ in range(steps)]


@pytest.mark.parametrize("world", [1, 2, 4, 8])
def test_every_world_size_gets_the_planned_steps(runs: Runs, world: int) -> None:
    name = runs.make(f"world-{world}")
    with ExitStack() as stack:
        loaders = runs.ranks(stack, name, world, job="j")
        assert take(loaders, STEPS) == runs.planned(name)
        assert [next(loader, None) for loader in loaders] == [None] * world


def test_another_seed_is_another_stream(runs: Runs) -> None:
    first, second = runs.make("seed-7"), runs.make("seed-8", seed=8)
    assert runs.planned(first) == runs.planned(runs.make("seed-7-again"))
    assert not set(runs.planned(first)) & set(runs.planned(second))


def test_world_sizes_change_over_resume_of_resume(runs: Runs) -> None:
    name = runs.make("resize", batch=16)
    seen: list[bytes] = []
    state = None
    for number, (world, steps) in enumerate([(8, 11), (4, 0), (4, 1), (16, 20), (8, 28)]):
        with ExitStack() as stack:
            loaders = runs.ranks(stack, name, world, state, job=f"job-{number}")
            seen += take(loaders, steps)
            states = [loader.state_dict() for loader in loaders]
            state = states[0]
            assert all(other == state for other in states), "the state depends on the rank"
    assert seen == runs.planned(name)


def test_every_step_can_be_resumed_at(runs: Runs) -> None:
    name = runs.make("every")
    planned = runs.planned(name)
    with runs.loader(name, job="whole") as loader:
        states = [loader.state_dict()]
        for _ in range(STEPS):
            next(loader)
            states.append(loader.state_dict())
    with runs.loader(name, job="again") as loader:
        for step, state in enumerate(states):
            loader.load_state_dict(state)
            batch = next(loader, None)
            assert (batch is None) == (step == STEPS)
            if batch is not None:
                assert (batch.step, join([batch])) == (step, planned[step])


@pytest.mark.parametrize(("batch", "left"), [(5, 0), (4, 1)])
def test_a_state_at_the_end_of_an_epoch_goes_on_with_the_next(runs: Runs, batch: int, left: int) -> None:
    """A domain of 25 windows: five batches of five are exactly an epoch, after six of four there is one window left."""
    name = runs.make(f"epoch-{batch}", only="c", seq_len=240, batch=batch)
    planned, steps, states = runs.planned(name), 50 // batch, []
    with runs.loader(name, job="whole") as loader, Raw(runs.server.address) as raw:
        for _ in range(steps):
            next(loader)
            states.append(loader.state_dict())
        told = [slot for step in range(steps) for slot in raw("Explain", run=name, step=step).slots]
    passes = [getattr(slot, "pass") for slot in told]
    assert [slot.index for slot in told] == [index % 25 for index in range(len(told))]
    assert {slot.window for slot in told[:25]} == set(range(25)), "an epoch holds each window once"
    end = 25 // batch  # the last step that ends within the first epoch is the one before
    assert passes[end * batch - 1] == 0
    assert passes[end * batch : end * batch + 2] == ([0] * left + [1, 1])[:2]
    with runs.loader(name, job="again") as loader:
        for step in (end - 1, end, end + 1, steps - 1):
            loader.load_state_dict(states[step - 1])
            rest = [next(loader) for _ in range(step, steps)]
            assert [join([part]) for part in rest] == planned[step:steps]


def test_a_state_in_the_middle_of_an_accumulation_names_its_step(runs: Runs) -> None:
    """Before, between and after the micro-batches of steps on both sides of a swap of weights."""
    name = runs.make("middle")
    with runs.loader(name, job="j", micro_batches=4) as loader, Raw(runs.server.address) as raw:
        states = []
        for micro in loader:
            whole = micro.micro == (3, 4)
            states.append((micro.step + whole, loader.state_dict()))
            assert loader.state_after(micro) == states[-1][1]
            if (micro.step, *micro.micro) == (5, 1, 4):
                raw("SetWeights", run=name, weights={"a": 0.1, "b": 0.1, "c": 0.8}, author="t", reason="test")
            if micro.step == 12 and whole:
                break
    planned = runs.planned(name)
    with runs.loader(name, job="again", micro_batches=2) as loader:
        for step, state in states:
            assert state["next_step"] == step
            loader.load_state_dict(json.loads(json.dumps(state)))
            parts = [next(loader), next(loader)]
            assert [part.micro for part in parts] == [(0, 2), (1, 2)]
            assert (parts[0].step, join(parts)) == (step, planned[step])


def test_a_world_that_does_not_divide_is_refused_naming_the_step(runs: Runs) -> None:
    name = runs.make("odd")
    with runs.loader(name, rank=0, world=3, job="j") as loader, pytest.raises(ConflictError, match="step 0"):
        next(loader)


def test_goes_on_over_a_killed_server(tmp_path: Path, corpus: Path) -> None:
    with serving(tmp_path, [write_run(tmp_path, corpus=corpus, name="r", steps=STEPS)]) as server:
        runs = Runs(server, corpus, tmp_path)
        with ExitStack() as stack:
            loaders = runs.ranks(stack, "r", 2, job="j")
            seen = take(loaders, 12)
            server.kill()
            starting = threading.Thread(target=server.start)
            starting.start()
            seen += take(loaders, STEPS - 12)
            starting.join()
        assert seen == runs.planned("r")


def test_a_weight_change_takes_hold_at_one_step_on_every_rank(runs: Runs) -> None:
    name = runs.make("swap")
    with ExitStack() as stack, Raw(runs.server.address) as raw:
        loaders = runs.ranks(stack, name, 2, job="j")
        seen = take(loaders, 10)
        answer = raw("SetWeights", run=name, weights={"a": 0.0, "b": 0.0, "c": 1.0}, author="t", reason="test")
        change = answer.event.from_step
        assert 10 <= change <= 10 + 8
        while len(seen) < STEPS:
            parts = [next(loader) for loader in loaders]
            seen.append(join(parts))
            assert len({part.segment for part in parts}) == 1
            only_c = all(set(part.names) == {"c"} for part in parts)
            assert only_c == (parts[0].step >= change)
    assert seen == runs.planned(name)


def test_second_job_is_refused_and_a_newer_attempt_takes_over(runs: Runs) -> None:
    name = runs.make("lease")
    with runs.loader(name, job="first") as first:
        next(first)
        with runs.loader(name, job="second") as second, pytest.raises(ConflictError, match="first"):
            next(second)
        state = first.state_dict()
        with runs.loader(name, job="first", attempt=1) as newer:
            newer.load_state_dict(state)
            assert next(newer).step == 1
            with pytest.raises(FencedError):
                list(first)


def test_ranks_that_begin_at_different_steps_are_both_named(runs: Runs) -> None:
    name = runs.make("apart")
    with runs.loader(name, rank=0, world=2, job="a") as zero, runs.loader(name, rank=1, world=2, job="a") as one:
        states = [zero.state_dict()]
        next(zero)
        next(one)
        states.append(one.state_dict())
    with runs.loader(name, rank=0, world=2, job="b") as zero, runs.loader(name, rank=1, world=2, job="b") as one:
        zero.load_state_dict(states[0])
        one.load_state_dict(states[1])
        next(zero)
        with pytest.raises(ConflictError, match=r"(?s)step 0.*step 1|step 1.*step 0"):
            next(one)


def test_a_lone_rank_rejoins_at_the_step_it_asks_for(runs: Runs) -> None:
    name = runs.make("rejoin")
    with ExitStack() as stack:
        zero, one = runs.ranks(stack, name, 2, job="j")
        assert [next(zero).step for _ in range(5)] == list(range(5))
        assert [next(one).step for _ in range(3)] == [0, 1, 2]
        saved = one.state_dict()
        before = next(one)
        again = stack.enter_context(runs.loader(name, rank=1, world=2, job="j"))
        again.load_state_dict(saved)
        batch = next(again)
        assert batch.step == before.step == 3
        assert np.array_equal(batch.token_ids, before.token_ids)
        assert next(zero).step == 5


def test_state_of_another_run_is_refused(runs: Runs) -> None:
    with runs.loader(runs.make("mine")) as mine, runs.loader(runs.make("theirs", seed=9)) as theirs:
        mine.load_state_dict(theirs.state_dict())
        with pytest.raises(StateMismatchError):
            next(mine)


def test_observers_follow_what_is_sealed(runs: Runs) -> None:
    name = runs.make("watched")
    with runs.loader(name, job="j") as trainer, runs.loader(name, mode="observe") as observer:
        for step in range(STEPS):
            assert next(trainer).step == step
            if step % 10 == 9:
                assert [next(observer).step for _ in range(10)] == list(range(step - 9, step + 1))
        assert next(trainer, None) is None
        assert next(observer, None) is None


def test_a_trainer_that_pauses_keeps_its_connection(runs: Runs, caplog: pytest.LogCaptureFixture) -> None:
    """While it validates or saves nothing is asked for, and keepalive goes on: a server that took the pings for an
    attack would hang up after the fourth."""
    name = runs.make("pauses")
    settings = replace(QUICK, keepalive=0.55)
    with caplog.at_level("INFO", "headrace.client"), Loader(runs.server.address, name, settings=settings) as loader:
        next(loader)
        time.sleep(3.5)
        assert next(loader).step == 1
        assert loader.stats.retries == 0, caplog.text


def test_losses_are_taken(runs: Runs) -> None:
    name = runs.make("losses")
    with runs.loader(name) as loader:
        batch = next(loader)
        loader.report(batch.step, batch.segment, {"a": DomainLoss(loss_sum=12.5, tokens=7, excess_sum=0.5)})
        loader.report(batch.step, batch.segment, {"nonsense": DomainLoss(loss_sum=1.0, tokens=1)})
        reporter = loader._connected().reporter()
    assert (reporter.sent, reporter.refused, reporter.lost) == (2, 1, 0)


def test_nothing_was_received_that_was_not_sent(server: ServerProcess) -> None:
    """Runs last: every digest that the loaders of this module returned was equal to the one sent."""
    log = server.log.read_text()
    assert not re.search("received other bytes", log)


ONE_STEP = """
import sys
from headrace.client import Loader
with Loader(sys.argv[1], sys.argv[2], job="j", attempt=0, peers=int(sys.argv[3])) as loader:
    next(loader)
"""


@pytest.mark.parametrize("peers", [1, 2])
def test_two_processes_that_hold_one_rank_are_both_warned(
    runs: Runs, caplog: pytest.LogCaptureFixture, peers: int
) -> None:
    name = runs.make(f"twice-{peers}")
    with runs.loader(name, job="j", attempt=0, peers=peers) as loader:
        next(loader)
        command = [sys.executable, "-c", ONE_STEP, runs.server.address, name, str(peers)]
        other = subprocess.run(command, capture_output=True, text=True, check=True)
        for _ in range(20):
            next(loader)
    told = [record.getMessage() for record in caplog.records if "same rows twice" in record.getMessage()]
    assert len(told) == (peers == 1)
    assert ("same rows twice; stop one" in other.stderr) == (peers == 1)
    assert all(f"pid {os.getpid()} held it" in words for words in (*told, *filter(None, [other.stderr])))


def test_a_job_without_a_state_is_warned_of_what_is_confirmed(runs: Runs, caplog: pytest.LogCaptureFixture) -> None:
    name = runs.make("begun")
    with runs.loader(name, job="a") as loader:
        for _ in range(3):
            next(loader)
        state = loader.state_dict()
    assert not caplog.records
    with runs.loader(name, job="b") as resumed:
        resumed.load_state_dict(state)
        next(resumed)
    assert not caplog.records
    with runs.loader(name, job="c") as anew:
        assert next(anew).step == 0
    (record,) = caplog.records
    assert "has 4 confirmed steps" in record.getMessage()
    assert "load_state_dict" in record.getMessage()
    assert f"headrace run branch {name}" in record.getMessage()
    caplog.clear()
    with runs.loader(name, job="d", start="beginning") as meant:
        assert next(meant).step == 0
    assert not caplog.records


def test_asking_for_the_state_of_a_loader_that_was_given_none_gives_it_none(
    runs: Runs, caplog: pytest.LogCaptureFixture
) -> None:
    name = runs.make("asked")
    with runs.loader(name, job="a") as loader:
        for _ in range(20):
            next(loader)
    with runs.loader(name, job="b", start="resume") as refused:
        assert refused.state_dict()["next_step"] == 0
        with pytest.raises(UsageError, match="was given no state"):
            next(refused)
    with runs.loader(name, job="c") as warned:
        warned.state_dict()
        assert next(warned).step == 0
    (record,) = caplog.records
    assert "names no state and begins at step 0" in record.getMessage()
