"""Row 4 and its kin: states saved anywhere, loaded by any world, over restarts and a store that is lost."""

from __future__ import annotations

import os
import random
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from headrace.native import step_digest
from headrace.proto.errors import ConflictError, HeadraceError, StateMismatchError, UsageError
from history import patiently
from rig import Raw, ServerProcess, Trainer, digest_rows, planned_digests, serving, write_run

SLOW = os.environ.get("HEADRACE_SLOW") == "1"
RESUMES, RESTARTS, CLIENTS = (50, 20, 32) if SLOW else (8, 2, 8)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, corpus: Path) -> Iterator[ServerProcess]:
    """A server of runs whose batches many worlds divide."""
    folder = tmp_path_factory.mktemp("resuming")
    runs = [
        write_run(folder, corpus, name=name, batch=batch) for name, batch in (("w24", 24), ("w16", 16), ("pair", 8))
    ]
    with serving(folder, runs) as started:
        yield started


def test_other_worlds_read_on_as_one(server: ServerProcess) -> None:
    """4 ranks save at step 20; 2, 8 and 3 load it; 5 do not divide the batch and are told so."""
    with Raw(server.address) as raw:
        saved = Trainer(raw, run="w24", world=4).open().take(20)
        state = saved.state()
        for attempt, world in enumerate((2, 8, 3), start=1):
            resumed = Trainer(raw, run="w24", world=world, attempt=attempt, digests=dict(saved.digests))
            assert resumed.open(state).next_step == 20
            resumed.take(15)
            assert resumed.digests == planned_digests(server.store, "w24", "0:35")
        with pytest.raises((ConflictError, UsageError), match=r"(?s)5.*24|24.*5"):
            Trainer(raw, run="w24", world=5, attempt=9).open(state)


def test_eight_four_sixteen_eight_at_random_steps(server: ServerProcess) -> None:
    """Each resumes from the newest state or the one before, so that some steps are taken twice, and twice in a pass."""
    seed = random.randrange(1 << 32)
    dice, digests = random.Random(seed), {}
    with Raw(server.address) as raw:
        states = [Trainer(raw, run="w16", world=8, digests=digests).open().take(4).state()]
        for attempt in range(1, RESUMES):
            world = (8, 4, 16, 8)[attempt % 4]
            trainer = Trainer(raw, run="w16", world=world, attempt=attempt, digests=digests)
            trainer.open(dice.choice(states[-2:])).take(dice.randrange(1, 7))
            states.append(trainer.state())
        top = max(digests) + 1
        assert digests == planned_digests(server.store, "w16", f"0:{top}"), f"seed {seed}"


def test_a_rank_that_lost_a_batch_gets_it_again(server: ServerProcess) -> None:
    """Rank 1 receives step 41 and dies; rank 0 goes on; rank 1 comes back and asks for 41: the same bytes."""
    with Raw(server.address) as raw:
        ranks = [Trainer(raw, run="pair", world=2, rank=str(rank)).open() for rank in range(2)]

        def part(rank: int, step: int) -> bytes:
            batch = ranks[rank]._part(step, 4 * rank, 4, 20.0).batch
            assert batch.row_digests == digest_rows(batch, ranks[rank].opened)
            ranks[rank].plan_hash = batch.next_plan_hash
            return bytes(batch.row_digests)

        for step in range(41):
            for rank in range(2):
                part(rank, step)
                ranks[rank].next_step = step + 1
        state = ranks[1].state()
        lost = part(1, 41)
        ranks[0].next_step = 42
        kept = part(0, 42)
        ranks[1] = Trainer(raw, run="pair", world=2, rank="1").open({**state, "next_step": 41})
        assert ranks[1].next_step == 41
        assert part(1, 41) == lost
        ranks[1].next_step = 42
        digest = step_digest(kept + part(1, 42))
        assert digest == planned_digests(server.store, "pair", "42")[42]


def test_changes_before_a_kill_hold_and_a_lost_store_is_no_silent_default(tmp_path: Path, corpus: Path) -> None:
    """Swaps at 20, 50 and 80, killed at 100: steps 0 to 150 as announced. Without the store the state is refused."""
    spec = write_run(tmp_path, corpus)
    with serving(tmp_path, [spec]) as server, Raw(server.address) as raw:
        trainer = Trainer(raw).open()
        for step, weights in ((20, (0.1, 0.1, 0.8)), (50, (0.8, 0.1, 0.1)), (80, (0.2, 0.6, 0.2))):
            named = dict(zip("abc", weights, strict=True))
            assert raw("SetWeights", run="r", weights=named, from_step=step).event.from_step == step
        trainer.take(100)
        server.kill()
        server.start()
        patiently(lambda: trainer.take(50))
        segments = {step: trainer.segments[step] for step in (19, 20, 49, 50, 79, 80, 149)}
        assert segments == {19: 0, 20: 1, 49: 1, 50: 2, 79: 2, 80: 3, 149: 3}
        assert trainer.digests == planned_digests(server.store, "r", "0:150")
        state = trainer.state()
        server.stop()
        for path in tmp_path.glob("control.db*"):
            path.unlink()
        server.start()
        with pytest.raises(StateMismatchError, match="run"):
            patiently(lambda: Trainer(raw, attempt=1).open(state))


def test_every_client_finds_its_way_back_after_restarts(tmp_path: Path, corpus: Path) -> None:
    """Ranks on channels of their own, the server killed again and again: each goes on at its own step, untouched."""
    found: list[dict[int, bytes]] = [{} for _ in range(CLIENTS)]
    errors: list[BaseException] = []
    stop = threading.Event()
    spec = write_run(tmp_path, corpus, batch=CLIENTS, steps=10**6)
    with serving(tmp_path, [spec]) as server:

        def go(rank: int) -> None:
            with Raw(server.address) as raw:
                trainer = Trainer(raw, world=CLIENTS, rank=str(rank))
                patiently(trainer.open)
                while not stop.is_set():
                    step = trainer.next_step
                    batch = trainer._part(step, rank, 1, 60.0).batch
                    found[rank][step] = bytes(batch.row_digests)
                    trainer.next_step = step + 1

        def guarded(rank: int) -> None:
            try:
                go(rank)
            except HeadraceError as error:
                errors.append(error)

        threads = [threading.Thread(target=guarded, args=(rank,)) for rank in range(CLIENTS)]
        for thread in threads:
            thread.start()
        for _ in range(RESTARTS):
            reached = [len(one) for one in found]
            until = time.monotonic() + 60
            while any(len(one) < before + 3 for one, before in zip(found, reached, strict=True)):
                assert time.monotonic() < until, f"a client did not come back: {[len(one) for one in found]} {errors}"
                time.sleep(0.05)
            server.kill()
            server.start()
        stop.set()
        for thread in threads:
            thread.join()
        assert not errors
        whole = min(len(one) for one in found)
        for one in found:
            assert sorted(one) == list(range(len(one)))
        digests = {step: step_digest(b"".join(one[step] for one in found)) for step in range(whole)}
        assert digests == planned_digests(server.store, "r", f"0:{whole}")
