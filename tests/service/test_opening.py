"""Opening a run: who holds it, what a state must match, which worlds divide, and what each refusal says."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from headrace.proto.errors import ConflictError, FencedError, NotFoundError, StateMismatchError, UsageError
from headrace.proto.v1 import data_pb2
from rig import Raw, Trainer

MakeRun = Callable[..., str]


def test_a_second_job_is_refused_and_told_who_holds_the_run(raw: Raw, make_run: MakeRun) -> None:
    run = make_run()
    first = Trainer(raw, run=run, job="first").open()
    with pytest.raises(ConflictError, match=r"job `first` \(attempt 0, test:first\) holds it"):
        Trainer(raw, run=run, job="second").open()
    first.take(3)  # undisturbed
    first.close()
    second = Trainer(raw, run=run, job="second").open().take(3)
    assert second.digests == first.digests


def test_a_trainer_that_was_killed_and_begins_anew_as_the_same_attempt_is_warned(raw: Raw, make_run: MakeRun) -> None:
    run = make_run()
    killed = Trainer(raw, run=run).open().take(3)
    for state, warned in ((killed.state(), False), (None, True)):
        message = {"id": "job", "world": 1, "rank": "0", "holder": f"another process, {warned}"}
        fields = {} if state is None else {"state": data_pb2.State(**state)}
        opened = raw("OpenRun", run=run, mode="OPEN_MODE_TRAIN", job=message, **fields)
        assert any("train on the same rows twice" in note for note in opened.notes)
        assert any("names no state and begins at step 0" in note for note in opened.notes) == warned


def test_takeover_stops_the_holder(raw: Raw, make_run: MakeRun) -> None:
    run = make_run()
    first = Trainer(raw, run=run, job="first").open().take(2)
    Trainer(raw, run=run, job="second").open(takeover=True).take(2)
    with pytest.raises(FencedError, match="job `second`"):
        first.take(1)


def test_a_restarted_attempt_takes_over_at_once_and_the_older_stops(raw: Raw, make_run: MakeRun) -> None:
    run = make_run()
    old = Trainer(raw, run=run).open().take(5)
    new = Trainer(raw, run=run, attempt=1).open(old.state()).take(1)
    for call in (lambda: old.take(1), old.close):
        with pytest.raises(FencedError, match="attempt 1 of job `job`"):
            call()
    with pytest.raises(FencedError, match=r"attempt 0 of job `job` was fenced by attempt 1.* start it as attempt 2,"):
        Trainer(raw, run=run).open()
    new.take(5)
    assert sorted(new.digests) == list(range(5, 11))


def test_two_jobs_at_one_instant_one_wins(raw: Raw, make_run: MakeRun) -> None:
    run = make_run()
    outcomes: list[str] = []

    def go(job: str) -> None:
        try:
            Trainer(raw, run=run, job=job).open().take(2)
            outcomes.append("won")
        except ConflictError:
            outcomes.append("refused")

    threads = [threading.Thread(target=go, args=(f"job-{n}",)) for n in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(outcomes) == ["refused"] * 5 + ["won"]


def test_ranks_that_disagree_are_both_named(raw: Raw, make_run: MakeRun) -> None:
    run = make_run()
    trainer = Trainer(raw, run=run).open().take(6)
    state = trainer.state()
    ranks = [Trainer(raw, run=run, attempt=1, world=2, rank=rank) for rank in "01"]
    ranks[0].open(state)
    with pytest.raises(ConflictError, match=r"step 6 \(test:job\) and step 0 \(rank 1, test:job\)"):
        ranks[1].open()
    ranks[1].open(state)


def test_an_observer_neither_confirms_nor_seals(raw: Raw, make_run: MakeRun) -> None:
    run = make_run()
    seen = Trainer(raw, run=run).open().take(3)
    seal = raw("GetRun", run=run).run.seal
    opened = raw("OpenRun", run=run, mode="OPEN_MODE_OBSERVE")
    assert opened.lease == ""
    answer = raw("GetBatch", run_id=opened.run_id, step=1, first_slot=0, rows=8)
    assert answer.batch.row_digests == seen.fetch(1)[0].batch.row_digests
    with pytest.raises(ConflictError, match="observer never confirms"):
        raw("GetBatch", run_id=opened.run_id, step=1, first_slot=0, rows=8, confirmation={"next_step": 3})
    with pytest.raises(ConflictError, match="observer never confirms"):
        raw("Confirm", run_id=opened.run_id, confirmation={"next_step": 3})
    assert raw("GetRun", run=run).run.seal <= seal + 3


def test_state_of_another_run_spec_or_plan(raw: Raw, make_run: MakeRun) -> None:
    trainer = Trainer(raw, run=make_run()).open().take(5)
    state = trainer.state()
    other = make_run(seed=8)
    with pytest.raises(StateMismatchError, match="run id"):
        Trainer(raw, run=other).open(state)
    bad = {**state, "spec_digest": bytes(32)}
    with pytest.raises(StateMismatchError, match=f"{'0' * 16}.*{state['spec_digest'].hex()[:16]}"):
        Trainer(raw, run=trainer.run, attempt=1).open(bad)
    bad = {**state, "plan_hash": bytes(32)}
    with pytest.raises(StateMismatchError, match=f"plan hash at step 5 {'0' * 16}.*{state['plan_hash'].hex()[:16]}"):
        Trainer(raw, run=trainer.run, attempt=1).open(bad)
    with pytest.raises(StateMismatchError, match="the store is older than the checkpoint"):
        Trainer(raw, run=trainer.run, attempt=1).open({**state, "next_step": 200})
    with pytest.raises(StateMismatchError, match="schema 2"):
        Trainer(raw, run=trainer.run, attempt=1).open({**state, "schema": 2})
    Trainer(raw, run=trainer.run, attempt=1).open(state)


def test_a_world_that_stops_dividing_is_refused_at_the_start(raw: Raw, tmp_path: Path, corpus: Path) -> None:
    text = (
        f'[run]\nname = "phases"\ncorpus = "{corpus}"\nseed = 1\n'
        '[[phase]]\nname = "one"\nsteps = 10\nseq_len = 32\nbatch = 8\nweights = { a = 1.0, b = 1.0, c = 1.0 }\n'
        '[[phase]]\nname = "two"\nsteps = 10\nseq_len = 16\nbatch = 12\nweights = { a = 1.0, b = 1.0, c = 1.0 }\n'
    )
    raw("CreateRun", spec_toml=text, base_dir=str(tmp_path))
    with pytest.raises(ConflictError, match="world 8 does not divide the batch of 12 rows at step 10"):
        Trainer(raw, run="phases", world=8).open()
    with pytest.raises(ConflictError, match="world 3 does not divide the batch of 8 rows at step 0"):
        Trainer(raw, run="phases", world=3).open()
    trainer = Trainer(raw, run="phases", world=4).open().take(100)
    assert sorted(trainer.digests) == list(range(20))
    assert [(s.from_step, s.to_step, s.batch, s.seq_len) for s in trainer.opened.shapes] == [
        (0, 10, 8, 32),
        (10, 20, 12, 16),
    ]


def test_misuse(raw: Raw, make_run: MakeRun) -> None:
    run = make_run()
    with pytest.raises(NotFoundError, match=f"no run `nope`.*`{run}`"):
        raw("OpenRun", run="nope", mode="OPEN_MODE_TRAIN")
    with pytest.raises(UsageError, match="mode is not set"):
        raw("OpenRun", run=run)
    with pytest.raises(UsageError, match="world is 2 and the job has no id"):
        raw("OpenRun", run=run, mode="OPEN_MODE_TRAIN", job={"world": 2})
    with pytest.raises(NotFoundError):
        raw("GetBatch", run_id="nope", step=0, rows=1)
