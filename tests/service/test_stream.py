"""The stream is one and the same over world sizes, kills, swaps and resumes: real server processes, real sockets.

Every test compares the digests of what was received with those that the pure functions give without a server, and with
another seed, so that a server that ignored the seed could not pass.
"""

from __future__ import annotations

import random
import threading
import time
from pathlib import Path

import pytest
from headrace.proto.errors import HeadraceError, UnavailableError
from rig import Raw, Trainer, planned_digests, serving, write_run


def assert_planned(digests: dict[int, bytes], store: str, other: str | None = None) -> None:
    """These are the digests of the plan, and (with another seed) those of another run at no step."""
    planned = planned_digests(store, "r", f"0:{max(digests) + 1}")
    assert digests == {step: planned[step] for step in digests}
    if other is not None:
        different = planned_digests(store, other, f"0:{max(digests) + 1}")
        assert all(different[step] != digest for step, digest in digests.items())


def test_every_world_gets_the_same_stream_and_another_seed_another(tmp_path: Path, corpus: Path) -> None:
    runs = [write_run(tmp_path, corpus), write_run(tmp_path, corpus, name="other", seed=8)]
    with serving(tmp_path, runs) as server, Raw(server.address) as raw:
        seen = []
        for attempt, world in enumerate((1, 2, 4, 8)):
            trainer = Trainer(raw, world=world, attempt=attempt).open().take(40)
            trainer.close()
            seen.append(trainer.digests)
        assert len(seen[0]) == 40
        assert all(digests == seen[0] for digests in seen)
        assert_planned(seen[0], server.store, other="other")


def test_resume_of_resume_of_resume(tmp_path: Path, corpus: Path) -> None:
    runs = [write_run(tmp_path, corpus), write_run(tmp_path, corpus, name="other", seed=8)]
    with serving(tmp_path, runs) as server, Raw(server.address) as raw:
        trainer = Trainer(raw, world=4).open().take(10)
        digests = dict(trainer.digests)
        for attempt, (world, back) in enumerate(((2, 0), (8, 3), (1, 7)), 1):
            state = trainer.state()
            trainer.take(back)  # taken after the checkpoint, taken again after the resume
            trainer = Trainer(raw, world=world, attempt=attempt, digests=digests).open(state)
            assert trainer.next_step == state["next_step"]
            trainer.take(10)
        assert sorted(digests) == list(range(40))
        assert_planned(digests, server.store, other="other")


def test_swap_at_an_announced_step_on_every_rank(tmp_path: Path, corpus: Path) -> None:
    runs = [write_run(tmp_path, corpus), write_run(tmp_path, corpus, name="other", seed=8)]
    with serving(tmp_path, runs) as server, Raw(server.address) as raw:
        trainer = Trainer(raw, world=4).open().take(10)
        answer = raw("SetWeights", run="r", weights={"a": 0.1, "b": 0.1, "c": 0.8}, reason="try", author="t")
        step = answer.event.from_step
        assert answer.confirmed < step <= answer.confirmed + 8
        trainer.take(40)
        changes = [s for s in range(1, 50) if trainer.segments[s] != trainer.segments[s - 1]]
        assert changes == [step]
        other = raw("SetWeights", run="other", weights={"a": 0.1, "b": 0.1, "c": 0.8}, from_step=step)
        assert other.event.from_step == step
        assert_planned(trainer.digests, server.store, other="other")


def test_kills_at_random_moments_with_swaps(tmp_path: Path, corpus: Path) -> None:
    """The server dies again and again, in the middle of anything; the trainer sees waits, never another stream."""
    seed = random.randrange(1 << 32)
    dice = random.Random(seed)
    runs = [write_run(tmp_path, corpus), write_run(tmp_path, corpus, name="other", seed=8)]
    with serving(tmp_path, runs) as server, Raw(server.address) as raw:
        stop = threading.Event()

        def murder() -> None:
            """Mostly after a step since the last start: a busy machine comes to none within half a second."""
            while not stop.wait(dice.uniform(0.2, 0.9)):
                server.kill()
                server.start()
                taken = trainer.next_step
                while trainer.next_step == taken and dice.random() > 0.02 and not stop.wait(0.05):
                    pass

        trainer = Trainer(raw).open()
        killer = threading.Thread(target=murder)
        killer.start()
        acknowledged = []
        try:
            for push in range(8):
                trainer.take(25)
                acknowledged.append(push_weights(raw, f"push-{push}", dice))
        finally:
            stop.set()
            killer.join()
        try:
            events = raw("ListEvents", run="r").events
            assert [event.from_step for event in events] == acknowledged, f"seed {seed}"
            assert sorted(trainer.digests) == list(range(200))
            assert_planned(trainer.digests, server.store)
        except AssertionError as error:
            error.add_note(f"seed {seed}\n{server.log.read_text()[-2000:]}")
            raise


def push_weights(raw: Raw, key: str, dice: random.Random) -> int:
    """Sends one change until it is acknowledged, as a client with an idempotency key may."""
    part = dice.uniform(0.1, 0.8)
    weights = {"a": part, "b": 0.9 - part, "c": 1 - part - (0.9 - part)}
    until = time.monotonic() + 20
    while True:
        try:
            return int(raw("SetWeights", run="r", weights=weights, idempotency_key=key).event.from_step)
        except HeadraceError as error:
            if error.exit_code != 75 or time.monotonic() > until:
                raise
            time.sleep(0.05)


def test_the_seal_never_passes_confirmed_and_lead(tmp_path: Path, corpus: Path) -> None:
    with serving(tmp_path, [write_run(tmp_path, corpus, lead=3)]) as server, Raw(server.address) as raw:
        trainer = Trainer(raw).open()
        for step in range(20):
            trainer.take(1)
            run = raw("GetRun", run="r").run
            assert run.confirmed <= run.seal <= run.confirmed + 3
            assert step <= run.confirmed <= step + 1


def test_sigterm_drains_and_writes_what_was_confirmed(tmp_path: Path, corpus: Path) -> None:
    with serving(tmp_path, [write_run(tmp_path, corpus)]) as server:
        with Raw(server.address) as raw:
            trainer = Trainer(raw).open().take(12)
            raw(
                "Confirm",
                run_id=trainer.opened.run_id,
                lease=trainer.opened.lease,
                confirmation={"next_step": trainer.next_step},
            )
        assert server.stop() == 0
        server.start()
        with Raw(server.address) as raw:
            assert raw("GetRun", run="r").run.confirmed == 12


def test_the_end(tmp_path: Path, corpus: Path) -> None:
    with serving(tmp_path, [write_run(tmp_path, corpus, steps=30)]) as server, Raw(server.address) as raw:
        trainer = Trainer(raw).open().take(100)
        assert sorted(trainer.digests) == list(range(30))
        (answer,) = trainer.fetch(30)
        assert answer.end.end_step == 30
        assert "last phase" in answer.end.reason
        (far,) = trainer.fetch(10**6)
        assert far.HasField("end")


@pytest.mark.parametrize("world", [1, 3])
def test_a_fresh_store_serves_the_same_run_again(tmp_path: Path, corpus: Path, world: int) -> None:
    """Nothing of a stream depends on the store but the log: a new store with the same spec gives the same digests."""
    digests = []
    for name in ("one", "two"):
        folder = tmp_path / name
        folder.mkdir()
        with serving(folder, [write_run(folder, corpus, batch=12)]) as server, Raw(server.address) as raw:
            digests.append(Trainer(raw, world=world).open().take(20).digests)
    assert digests[0] == digests[1]


def test_a_restarted_server_serves_at_once(tmp_path: Path, corpus: Path) -> None:
    with serving(tmp_path, [write_run(tmp_path, corpus)]) as server, Raw(server.address) as raw:
        trainer = Trainer(raw).open().take(5)
        server.kill()
        server.start()
        up = time.monotonic()
        trainer.take(1)
        assert time.monotonic() - up < 5  # a second on an idle machine, as in the table of the fault tests


def test_a_stopping_server_finishes_what_is_under_way_and_refuses_the_rest(tmp_path: Path, corpus: Path) -> None:
    with serving(tmp_path, [write_run(tmp_path, corpus)]) as server, Raw(server.address) as raw:
        opened = raw("OpenRun", run="r", mode="OPEN_MODE_OBSERVE")
        asked = threading.Thread(target=lambda: outcome.append(waiting(raw, opened.run_id)))
        outcome: list[str] = []
        asked.start()
        time.sleep(0.5)  # it waits for a step that nobody seals
        stopper = threading.Thread(target=server.stop)
        stopper.start()
        time.sleep(0.3)
        with pytest.raises(UnavailableError, match=r"is stopping|refused|connect"):
            raw("GetRun", run="r")
        asked.join()
        stopper.join()
        assert "no trainer holds the run" in outcome[0]


def waiting(raw: Raw, run_id: str) -> str:
    try:
        raw("GetBatch", run_id=run_id, step=0, rows=1)
    except UnavailableError as error:
        return str(error)
    return "served"
