"""Three servers on one PostgreSQL: whichever dies, stops or lags, the stream is the one that was planned."""

from __future__ import annotations

import functools
import os
import random
import re
import signal
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from headrace.proto.errors import DeadlineError, FencedError, HeadraceError, StaleError, UnavailableError
from history import History, check, patiently
from postgres import PostgresServer
from rig import Fleet, Raw, ServerProcess, Trainer, planned_digests, serving, write_run

_numbers = count()
SLOW = os.environ.get("HEADRACE_SLOW") == "1"
DEATHS, ROUNDS, CRASHES, AWAY = (50, 17, 100, 60.0) if SLOW else (4, 1, 3, 0.0)
GOOD = {"a": 0.1, "b": 0.1, "c": 0.8}


@pytest.fixture(scope="module")
def fleet(
    tmp_path_factory: pytest.TempPathFactory, corpus: Path, postgres: PostgresServer
) -> Iterator[list[ServerProcess]]:
    """Three servers that start at one moment on an empty store, each naming the same run."""
    tmp_path = tmp_path_factory.mktemp("fleet")
    store = postgres.new_database()
    servers: list[ServerProcess] = []
    with ExitStack() as stack:

        def start(number: int) -> None:
            folder = tmp_path / str(number)
            folder.mkdir()
            servers.append(stack.enter_context(serving(folder, [write_run(folder, corpus)], store=store)))

        threads = [threading.Thread(target=start, args=(number,)) for number in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(servers) == 3
        with Raw(servers[0].address) as raw:
            assert [run.name for run in raw("ListRuns").runs] == ["r"]
        yield servers


@pytest.fixture
def run(fleet: list[ServerProcess], tmp_path: Path, corpus: Path) -> str:
    """A new run."""
    name = f"run-{next(_numbers)}"
    with Raw(fleet[0].address) as raw:
        spec = write_run(tmp_path, corpus, name=name).read_text()
        raw("CreateRun", spec_toml=spec, base_dir=str(tmp_path))
    return name


def assert_planned(trainer: Trainer, store: str, steps: int) -> None:
    assert sorted(trainer.digests) == list(range(steps))
    assert trainer.digests == planned_digests(store, trainer.run, f"0:{steps}")


def test_any_of_them_may_die_and_any_of_them_may_answer(run: str, fleet: list[ServerProcess]) -> None:
    with Fleet(fleet) as raw:
        trainer = Trainer(raw, run=run, world=2).open()
        for turn in range(DEATHS):
            trainer.take(15 if DEATHS == 4 else 3)
            fleet[turn % 3].kill()
            trainer.take(15 if DEATHS == 4 else 4)
            fleet[turn % 3].start()
        assert_planned(trainer, fleet[0].store, 120 if DEATHS == 4 else 350)


def batches(server: ServerProcess, run: str) -> float:
    """How many a server has answered for a run since it started."""
    with urllib.request.urlopen(f"http://127.0.0.1:{server.metrics_port}/metrics", timeout=10) as page:
        found = re.search(rf'^headrace_batches_total{{run="{run}"}} (\S+)', page.read().decode(), re.MULTILINE)
    return float(found[1]) if found else 0.0


def test_one_name_that_leads_to_all_of_them(run: str, fleet: list[ServerProcess]) -> None:
    """Behind `round_robin` each call goes to the next one: a step is confirmed here, the one after it asked there."""
    with Raw("ipv4:" + ",".join(server.address for server in fleet)) as raw:
        trainer = Trainer(raw, run=run, world=2).open().take(30)
        assert min(batches(server, run) for server in fleet) > 10
        for server in fleet if SLOW else ():
            server.kill()
            trainer.take(20)
            server.start()
        assert_planned(trainer, fleet[0].store, trainer.next_step)


def test_a_rolling_restart_fails_no_call(run: str, fleet: list[ServerProcess]) -> None:
    """SIGTERM one after the other: each drains, and a client with several endpoints never sees an error."""
    with Fleet(fleet) as raw:
        trainer = Trainer(raw, run=run).open()
        for _ in range(ROUNDS):
            for server in fleet:
                stopper = threading.Thread(target=server.stop)
                stopper.start()
                trainer.take(15 if ROUNDS == 1 else 5)
                stopper.join()
                server.start()
                trainer.take(5 if ROUNDS == 1 else 2)
        assert_planned(trainer, fleet[0].store, 60 if ROUNDS == 1 else 21 * ROUNDS)


def test_a_server_that_stood_still_serves_nothing_stale(run: str, fleet: list[ServerProcess]) -> None:
    """It wakes with an old snapshot: what it serves below its old seal is right, above it it asks the store.

    A change that it was sent meets its deadline, goes to another with the same key, and is in the log once although
    the one that wakes finds it too.
    """
    swap = {"run": run, "weights": GOOD, "idempotency_key": "swap"}
    with Fleet(fleet) as raw, Raw(fleet[0].address) as old:
        trainer = Trainer(raw, run=run).open().take(10)
        fleet[0].pause()
        with pytest.raises(DeadlineError):
            old("SetWeights", **swap, timeout=0.5)
        trainer.take(2)
        step = raw("SetWeights", **swap).event.from_step
        trainer.take(40)
        fleet[0].go_on()
        assert old("SetWeights", **swap).event.from_step == step
        assert [event.sequence for event in old("ListEvents", run=run).events] == [1]
        late = Trainer(old, run=run, digests=dict(trainer.digests), segments=dict(trainer.segments))
        late.opened, late.next_step = trainer.opened, 5
        late.take(45)  # `check` fails if any step differs
        assert trainer.segments[step] != trainer.segments[step - 1]
        assert_planned(trainer, fleet[0].store, 52)


def test_two_swaps_at_one_instant_through_two_servers(run: str, fleet: list[ServerProcess]) -> None:
    with Raw(fleet[0].address) as one, Raw(fleet[1].address) as two, Raw(fleet[2].address) as three:
        for turn in range(5):
            head = three("GetRun", run=run).run.log_head
            outcomes: list[str] = []
            barrier = threading.Barrier(2)

            def push(raw: Raw, part: float, head: bytes = head, barrier: threading.Barrier = barrier) -> None:
                barrier.wait()
                try:
                    raw("SetWeights", run=run, weights={"a": part, "b": 1 - part, "c": 0.0}, expected_head=head)
                    outcomes.append("won")  # noqa: B023
                except StaleError:
                    outcomes.append("told")  # noqa: B023

            threads = [threading.Thread(target=push, args=pair) for pair in ((one, 0.2), (two, 0.7))]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert sorted(outcomes) == ["told", "won"]
            assert [e.sequence for e in three("ListEvents", run=run).events] == list(range(1, turn + 2))
        trainer = Trainer(three, run=run).open().take(10)
        assert trainer.digests == planned_digests(fleet[0].store, run, "0:10")


def test_a_newer_attempt_elsewhere_fences_within_a_second(run: str, fleet: list[ServerProcess]) -> None:
    with Raw(fleet[0].address) as one, Raw(fleet[1].address) as two:
        old = Trainer(one, run=run).open().take(5)
        Trainer(two, run=run, attempt=1).open(old.state()).take(5)
        time.sleep(1.5)
        with pytest.raises(FencedError, match="attempt 1 of job `job`"):
            old.fetch(5)


def picture(server: ServerProcess, run: str) -> tuple[Any, dict[str, int], list[str]]:
    """What a server tells of a run: the run with its figures, its ranks' steps, and its series of confirmed steps."""
    with Raw(server.address) as raw:
        watched = raw.stream("WatchRun", run=run)
        told = next(watched)
        watched.close()
    with urllib.request.urlopen(f"http://127.0.0.1:{server.metrics_port}/metrics", timeout=10) as page:
        text = page.read().decode()
    names = "confirmed_step|seal_step|served_tokens_total|served_share_ratio|domain_epochs|window_share_ratio"
    series = [line for line in text.splitlines() if re.match(rf'headrace_({names}){{.*run="{run}"', line)]
    return told, {rank.label: rank.next_step for rank in told.ranks}, series


def test_every_server_says_the_same_within_a_second(run: str, fleet: list[ServerProcess]) -> None:
    """Confirmed and seal, realized figures, events, ranks and how far behind they are; and what `/metrics` has."""
    with Fleet(fleet) as raw:
        fast = Trainer(raw, run=run, world=2, rank="0").open()
        slow = Trainer(raw, run=run, world=2, rank="1").open()
        late = []
        for turn in range(3):
            raw("SetWeights", run=run, weights=GOOD if turn % 2 else {"a": 0.5, "b": 0.5, "c": 0.0})
            fast.take(10).settle()
            lease = {"run_id": slow.opened.run_id, "lease": slow.opened.lease}
            raw("Confirm", **lease, confirmation={"next_step": fast.next_step - 7})
            said = time.monotonic()
            while True:
                shown = [picture(server, run) for server in fleet]
                due = {"0": fast.next_step, "1": fast.next_step - 7}
                if all(one == shown[0] for one in shown) and shown[0][1] == due:
                    break
                assert time.monotonic() < said + 10, shown
            late.append(time.monotonic() - said)
            told, _, series = shown[0]
            assert (told.run.confirmed, told.run.seal) == (fast.next_step, fast.next_step + 8)
            assert len(told.events) == turn + 1
            assert sum(figure.share for figure in told.figures) == pytest.approx(1)
            assert len(series) == 2 + 4 * 3
    assert min(late) < 1.0 + 0.5, late  # to write it takes up to a second, to look at three servers another moment


def test_the_store_away_serving_goes_on_up_to_the_seal(
    run: str, fleet: list[ServerProcess], postgres: PostgresServer
) -> None:
    with Raw(fleet[0].address) as raw:
        trainer = Trainer(raw, run=run).open().take(10)
        seal = trainer.settle()
        postgres.stop(signal.SIGQUIT)
        try:
            trainer.take(seal - trainer.next_step)
            assert trainer.next_step == seal
            begun = time.monotonic()
            with pytest.raises(UnavailableError, match="did not answer"):
                trainer.fetch(seal, patience=0)
            with pytest.raises(UnavailableError):
                raw("SetWeights", run=run, weights=GOOD)
            with pytest.raises(UnavailableError):
                Trainer(raw, run=run, attempt=1).open()
            assert time.monotonic() - begun < 20
            time.sleep(AWAY)
        finally:
            postgres.start()
        trainer.take(20)
        assert_planned(trainer, fleet[0].store, seal + 20)


def test_the_store_dies_in_the_middle_of_commits(
    run: str, fleet: list[ServerProcess], postgres: PostgresServer
) -> None:
    """Row 34: killed while changes are committed; what was acknowledged is there, once, in one chain."""
    history, seed = History(), random.randrange(1 << 32)
    dice, stop = random.Random(seed), threading.Event()
    trouble: list[str] = []

    def push(number: int) -> None:
        with Fleet(fleet, first=number) as raw:
            turn = 0
            while not stop.is_set():
                key, part = f"{number}-{turn}", 0.1 + 0.01 * (turn % 80)
                weights = {"a": part, "b": 1 - part, "c": 0.0}
                try:
                    send = functools.partial(raw, "SetWeights", run=run, weights=weights, idempotency_key=key)
                    history.note(key, patiently(send))
                except HeadraceError as error:
                    trouble.append(str(error))
                turn += 1
                time.sleep(0.05)

    pushers = [threading.Thread(target=push, args=(number,)) for number in range(2)]
    with Fleet(fleet) as raw:
        trainer = Trainer(raw, run=run).open()
        for thread in pushers:
            thread.start()
        for _ in range(CRASHES):
            patiently(lambda: trainer.take(2))
            time.sleep(dice.uniform(0.0, 0.2))
            postgres.stop(signal.SIGQUIT)
            postgres.start()
        stop.set()
        for thread in pushers:
            thread.join()
        patiently(lambda: trainer.take(5))
        assert not trouble
        check(trainer, history, fleet[0].store, steps=trainer.next_step)
    print(
        f"{CRASHES} crashes of the store, {trainer.next_step} steps, {len(history.acknowledged)} changes, seed {seed}"
    )
