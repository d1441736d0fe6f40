"""The server is killed: at random moments, at every moment of a commit, together with its trainer. Real processes.

Counts are small by default; `HEADRACE_SLOW=1` runs those of the reliability table.
"""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import sqlite3
import threading
from pathlib import Path

import pytest
from headrace.proto.errors import NotFoundError
from headrace.server.control.failpoints import NAMES
from headrace.server.control.store import Store
from headrace.server.plan import log
from history import History, check, patiently
from rig import Raw, ServerProcess, Trainer, serving, write_run

SLOW = os.environ.get("HEADRACE_SLOW") == "1"
KILLS = 500 if SLOW else 6


def push(raw: Raw, history: History, key: str, dice: random.Random) -> None:
    """One change, sent until it is acknowledged."""
    part = dice.uniform(0.1, 0.8)
    weights = {"a": part, "b": 0.9 - part, "c": 0.1}
    history.note(key, patiently(lambda: raw("SetWeights", run="r", weights=weights, idempotency_key=key)))


def test_kills_at_random_moments_with_changes_of_weights(tmp_path: Path, corpus: Path) -> None:
    """Rows 1 and 2: as many kills as wanted, each at a moment of its own, while steps are taken and weights change."""
    seed = random.randrange(1 << 32)
    dice, history = random.Random(seed), History()
    with serving(tmp_path, [write_run(tmp_path, corpus, steps=10**6)]) as server, Raw(server.address) as raw:
        stop, kills = threading.Event(), 0

        trainer = Trainer(raw).open()

        def murder() -> None:
            """Mostly while steps are taken, now and then before the first answer."""
            nonlocal kills
            while kills < KILLS and not stop.is_set():
                taken = trainer.next_step
                while trainer.next_step == taken and dice.random() > 0.01 and not stop.wait(0.05):
                    pass
                stop.wait(dice.uniform(0.0, 0.3))
                server.kill()
                server.start()
                kills += 1
            stop.set()

        killer = threading.Thread(target=murder)
        killer.start()
        pushes = 0
        try:
            while not stop.is_set():
                patiently(lambda: trainer.take(3))
                push(raw, history, f"push-{pushes}", dice)
                pushes += 1
        finally:
            stop.set()
            killer.join()
        trainer.take(3)
        try:
            check(trainer, history, server.store, steps=trainer.next_step)
        except AssertionError as error:
            error.add_note(f"seed {seed}")
            raise
        assert kills == KILLS
        print(f"{kills} kills, {trainer.next_step} steps, {pushes} changes: none lost, none twice, equal digests")


@pytest.mark.parametrize("name", NAMES)
def test_kills_at_every_moment_of_a_commit(tmp_path: Path, corpus: Path, name: str) -> None:
    """Row 2: all or nothing, and the same key is answered with the first result."""
    history, dice = History(), random.Random(1)
    with serving(tmp_path, [write_run(tmp_path, corpus)]) as server, Raw(server.address) as raw:
        trainer = Trainer(raw).open().take(4)
        for turn in range(20 if SLOW else 1):
            server.stop()
            server.environment = {"HEADRACE_FAILPOINT": f"{name}:{1 if name.startswith('append') else 2}"}
            server.start()
            server.environment = {}
            restarter = threading.Thread(target=restart_when_dead, args=(server,))
            restarter.start()
            push(raw, history, f"{name}-{turn}", dice)
            patiently(lambda: trainer.take(4))
            restarter.join()
        check(trainer, history, server.store, steps=trainer.next_step)


def restart_when_dead(server: ServerProcess) -> None:
    assert server.process is not None
    server.process.wait(timeout=60)
    server.kill()
    server.start()


@pytest.mark.parametrize("turn", range(20 if SLOW else 2))
def test_server_and_trainer_die_together(tmp_path: Path, corpus: Path, turn: int) -> None:
    """Rows 3 and 5: the trainer comes back from its last checkpoint, as another attempt and another world."""
    history, dice = History(), random.Random(turn)
    digests: dict[int, bytes] = {}
    segments: dict[int, int] = {}
    with serving(tmp_path, [write_run(tmp_path, corpus)]) as server:
        checkpoint = None
        for attempt in range(5):
            with Raw(server.address) as raw:
                world = dice.choice((1, 2, 4, 8))
                trainer = Trainer(raw, attempt=attempt, world=world, digests=digests, segments=segments)
                patiently(lambda t=trainer, c=checkpoint: t.open(c))
                trainer.take(dice.randrange(1, 12))
                checkpoint = trainer.state()
                push(raw, history, f"push-{attempt}", dice)
                trainer.take(dice.randrange(0, 6))  # taken after the checkpoint: taken again later
            server.kill()
            server.start()
        check(trainer, history, server.store, steps=max(digests) + 1)


def test_a_server_that_stands_still_and_wakes(tmp_path: Path, corpus: Path) -> None:
    """Row 6: calls meet their deadlines, and go on where they were."""
    history = History()
    with serving(tmp_path, [write_run(tmp_path, corpus)]) as server, Raw(server.address) as raw:
        trainer = Trainer(raw).open().take(5)
        for turn in range(5 if SLOW else 1):
            server.pause()
            wake = threading.Timer(5.0 if SLOW else 1.5, server.go_on)
            wake.start()
            push(raw, history, f"push-{turn}", random.Random(turn))
            trainer.take(10)
            wake.join()
        check(trainer, history, server.store, steps=trainer.next_step)


def test_torn_copies_of_the_store(tmp_path: Path, corpus: Path) -> None:
    """Row 8: a copy made at any moment, or with its write-ahead log cut anywhere, opens and holds a whole chain."""
    history, dice = History(), random.Random(3)
    with serving(tmp_path, [write_run(tmp_path, corpus)]) as server, Raw(server.address) as raw:
        trainer = Trainer(raw).open()
        path = tmp_path / "control.db"
        for number in range(100 if SLOW else 6):
            push(raw, history, f"push-{number}", dice)
            trainer.take(1)
            copy = tmp_path / f"copy-{number}.db"
            server.pause()  # at any moment, also in the middle of a commit of the seal
            for suffix in ("", "-wal"):
                if path.with_name(path.name + suffix).exists():
                    shutil.copy(path.with_name(path.name + suffix), copy.with_name(copy.name + suffix))
            server.go_on()
            wal = copy.with_name(copy.name + "-wal")
            if number % 2 and wal.exists():
                os.truncate(wal, dice.randrange(wal.stat().st_size + 1))
            assert_whole(copy, at_least=0 if number % 2 else number)


def assert_whole(copy: Path, *, at_least: int) -> None:
    with sqlite3.connect(copy) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    connection.close()
    events: tuple[log.Event, ...] = ()
    with contextlib.suppress(NotFoundError):  # cut before the run, or even the tables, were there
        store = Store(f"sqlite:///{copy}", writable=False)
        try:
            events = store.snapshot("r").events
        finally:
            store.close()
    log.verify(events)
    assert len(events) >= at_least
