"""Many who change one run at once, and changes that come too late."""

from __future__ import annotations

import functools
import os
import random
import threading
from pathlib import Path

import pytest
from headrace.proto.errors import ConflictError, StaleError
from headrace.server.plan import log
from history import patiently
from rig import Raw, Trainer, planned_digests, serving, write_run

SLOW = os.environ.get("HEADRACE_SLOW") == "1"
PUSHERS, PUSHES = (32, 100) if SLOW else (6, 4)


def test_of_changes_at_once_one_wins_and_the_others_are_told(tmp_path: Path, corpus: Path) -> None:
    """Row 27: each pusher names the log head it has seen; it grows by one event for each that won."""
    run = write_run(tmp_path, corpus, steps=10**6)
    with serving(tmp_path, [run], extra="changes_per_second = 0") as server, Raw(server.address) as raw:
        trainer = Trainer(raw).open().take(3)
        won: list[int] = []
        told: list[str] = []
        failed: list[BaseException] = []

        def push(number: int) -> None:
            dice = random.Random(number)
            with Raw(server.address) as mine:
                for turn in range(PUSHES):
                    head = patiently(lambda: mine("GetRun", run="r")).run.log_head
                    part = dice.uniform(0.1, 0.9)
                    weights = {"a": part, "b": 1 - part, "c": 0.0}
                    words = {"weights": weights, "expected_head": head, "idempotency_key": f"{number}-{turn}"}
                    try:
                        answer = patiently(functools.partial(mine, "SetWeights", run="r", **words))
                        won.append(answer.event.sequence)
                    except StaleError as error:
                        told.append(str(error))

        def guarded(number: int) -> None:
            try:
                push(number)
            except BaseException as error:
                failed.append(error)

        threads = [threading.Thread(target=guarded, args=(number,)) for number in range(PUSHERS)]
        for thread in threads:
            thread.start()
        trainer.take(5)
        for thread in threads:
            thread.join()
        assert not failed
        assert len(won) + len(told) == PUSHERS * PUSHES
        assert sorted(won) == list(range(1, len(won) + 1)), "a number is missing or was given twice"
        assert all("the log of run `r` has moved on" in words for words in told)
        events = raw("ListEvents", run="r").events
        assert [event.sequence for event in events] == sorted(won)
        assert len({event.hash for event in events}) == len(events)
        trainer.take(10)
        assert trainer.digests == planned_digests(server.store, "r", f"0:{trainer.next_step}")
        print(f"{len(won)} won, {len(told)} were told")


def test_a_change_for_a_step_that_is_sealed_is_refused_and_leaves_no_trace(tmp_path: Path, corpus: Path) -> None:
    """Row 28: taken, served, prefetched and sealed steps are refused naming the first free one, which is then good."""
    weights = {"a": 0.1, "b": 0.1, "c": 0.8}
    with serving(tmp_path, [write_run(tmp_path, corpus)]) as server, Raw(server.address) as raw:
        trainer = Trainer(raw).open().take(10)
        seal = trainer.settle()
        trainer.fetch(seal - 1)  # prefetched, not taken
        before = raw("GetRun", run="r").run.log_head
        for step in (0, 9, 10, seal - 1):
            with pytest.raises(ConflictError, match=f"first free step is {seal}"):
                raw("SetWeights", run="r", weights=weights, from_step=step)
        assert raw("GetRun", run="r").run.log_head == before
        assert not raw("ListEvents", run="r").events
        with pytest.raises(ConflictError, match="ends at step 400"):
            raw("SetWeights", run="r", weights=weights, from_step=400)
        for step in (seal, seal + 5):
            assert raw("SetWeights", run="r", weights=weights, from_step=step).event.from_step == step
        trainer.take(20)
        assert trainer.segments[seal] == trainer.segments[seal - 1] + 1
        assert trainer.digests == planned_digests(server.store, "r", f"0:{trainer.next_step}")
        assert before == log.EMPTY_HEAD
