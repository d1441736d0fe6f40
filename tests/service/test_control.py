"""Changing a run over the wire: one validator, one winner, nothing changed by what is refused, all of it in the log."""

from __future__ import annotations

import json
import math
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from headrace.native import step_digest
from headrace.proto.errors import (
    ConfigError,
    ConflictError,
    ExistsError,
    HeadraceError,
    NotFoundError,
    StaleError,
    UsageError,
)
from headrace.server.corpus.manifest import Corpus
from rig import Raw, ServerProcess, Trainer, digest_rows, headrace

MakeRun = Callable[..., str]
GOOD = {"a": 0.2, "b": 0.3, "c": 0.5}

BAD = {
    "sum": {"a": 0.2, "b": 0.3, "c": 0.5001},
    "hundred": {"a": 20.0, "b": 30.0, "c": 50.0},
    "nan": {"a": math.nan, "b": 0.3, "c": 0.5},
    "inf": {"a": math.inf, "b": 0.3, "c": 0.5},
    "minus inf": {"a": -math.inf, "b": 0.3, "c": 0.5},
    "negative": {"a": -0.1, "b": 0.6, "c": 0.5},
    "all zero": {"a": 0.0, "b": 0.0, "c": 0.0},
    "denormal": {"a": 5e-324, "b": 0.5, "c": 0.5},
    "too small": {"a": 1e-12, "b": 0.5, "c": 0.5},
    "unknown": {"a": 0.2, "b": 0.3, "c": 0.4, "d": 0.1},
    "missing": {"a": 0.5, "b": 0.5},
    "empty": {},
    "many": {f"domain-{n}": 1e-4 for n in range(5_000)},
}


@pytest.mark.parametrize("name", BAD)
def test_bad_weights_change_nothing(raw: Raw, make_run: MakeRun, name: str) -> None:
    run = make_run()
    with pytest.raises(UsageError):
        raw("SetWeights", run=run, weights=BAD[name])
    assert raw("ListEvents", run=run).events == []
    assert dict(zip("abc", raw("GetRun", run=run).run.weights, strict=True)) == pytest.approx(
        {"a": 0.5, "b": 0.3, "c": 0.2}
    )


@pytest.mark.parametrize("weights", [{"a": 0.9999985, "b": 0.0, "c": 0.0}, {"a": 0.7, "b": 0.1 + 0.1, "c": 0.1}])
def test_rounding_within_the_tolerance_is_taken(raw: Raw, make_run: MakeRun, weights: dict[str, float]) -> None:
    assert raw("SetWeights", run=make_run(), weights=weights).event.sequence == 1


def test_two_pushes_at_once_one_wins_and_the_other_is_told(raw: Raw, make_run: MakeRun) -> None:
    run = make_run()
    head = raw("GetRun", run=run).run.log_head
    outcomes: list[str] = []

    def push(part: float) -> None:
        try:
            raw("SetWeights", run=run, weights={"a": part, "b": 1 - part, "c": 0.0}, expected_head=head)
            outcomes.append("won")
        except StaleError:
            outcomes.append("told")

    threads = [threading.Thread(target=push, args=(0.1 + n / 20,)) for n in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(outcomes) == ["told"] * 11 + ["won"]
    assert [event.sequence for event in raw("ListEvents", run=run).events] == [1]


def test_a_step_in_the_past_is_refused_with_the_first_free_one(raw: Raw, make_run: MakeRun) -> None:
    run = make_run()
    seal = Trainer(raw, run=run).open().take(5).settle()
    for step in (0, 4, seal - 1):
        with pytest.raises(ConflictError, match=f"first free step is {seal}"):
            raw("SetWeights", run=run, weights=GOOD, from_step=step)
    assert raw("SetWeights", run=run, weights=GOOD, from_step=seal).event.from_step == seal
    with pytest.raises(HeadraceError):
        raw("SetWeights", run=run, weights=GOOD, from_step=400)
    with pytest.raises(HeadraceError):
        raw("SetWeights", run=run, weights=GOOD, from_step=2**63)


def test_key_twice_is_one_event(raw: Raw, make_run: MakeRun) -> None:
    run = make_run()
    answers = [raw("SetWeights", run=run, weights=GOOD, idempotency_key="k") for _ in range(3)]
    assert {answer.event.hash for answer in answers} == {answers[0].event.hash}
    assert [event.idempotency_key for event in raw("ListEvents", run=run).events] == ["k"]


def test_the_history_has_the_keys_of_requests(server: ServerProcess, raw: Raw, make_run: MakeRun) -> None:
    run = make_run()
    raw("SetWeights", run=run, weights=GOOD, idempotency_key="nightly-7")
    raw("SetWeights", run=run, weights=GOOD)
    for place in (("--server", server.address), ("--store", server.store)):
        log = json.loads(headrace("weights", "history", run, "--json", *place).stdout)
        assert [event.get("idempotency_key", "") for event in log] == ["nightly-7", ""]


def test_dry_run_changes_nothing(raw: Raw, make_run: MakeRun) -> None:
    run = make_run()
    answer = raw("SetWeights", run=run, weights=GOOD, from_step=30, dry_run=True)
    assert answer.event.from_step == 30
    assert raw("ListEvents", run=run).events == []


def test_range_cancel_and_history(raw: Raw, make_run: MakeRun) -> None:
    run = make_run()
    raw("SetWeights", run=run, weights=GOOD, from_step=20, until_step=30, author="ann", reason="ramp")
    hiding = raw("SetWeights", run=run, weights={"a": 1.0, "b": 0.0, "c": 0.0}, from_step=10, until_step=40)
    assert "hides steps 20 to 29 of event 1 (by ann, from step 20), which keeps no step" in hiding.notes
    back = raw("CancelEvent", run=run, sequence=2, reason="no")
    assert "weights of steps 20 to 29 come from event 1 (by ann, from step 20) instead" in back.notes
    with pytest.raises(ConflictError):
        raw("CancelEvent", run=run, sequence=2)
    with pytest.raises(ConflictError):
        raw("CancelEvent", run=run, sequence=99)
    events = raw("ListEvents", run=run).events
    assert [(event.sequence, event.cancelled) for event in events] == [(1, False), (2, True), (3, False)]
    assert (events[0].author, events[0].reason, events[0].until_step) == ("ann", "ramp", 30)
    assert [event.previous_hash for event in events[1:]] == [event.hash for event in events[:-1]]
    trainer = Trainer(raw, run=run).open().take(35)
    changes = [step for step in range(1, 35) if trainer.segments[step] != trainer.segments[step - 1]]
    assert changes == [20, 30]
    with pytest.raises(ConflictError, match="sealed"):
        raw("CancelEvent", run=run, sequence=1)


def test_a_branch_says_which_changes_of_its_parent_it_leaves_out(
    server: ServerProcess, raw: Raw, make_run: MakeRun
) -> None:
    """And a name that would steer a terminal does not."""
    run = make_run()
    raw("SetWeights", run=run, weights=GOOD, from_step=2, until_step=30, author="ann")
    raw("SetWeights", run=run, weights=GOOD, from_step=20, until_step=25, author="b\x1b[2Jb")
    Trainer(raw, run=run).open().take(8).settle()
    at = ("--at", "6", "--server", server.address)
    done = headrace("run", "branch", run, f"{run}-kept", *at)
    assert (
        f"in run `{run}`, event 2 (by b\N{REPLACEMENT CHARACTER}[2Jb, from step 20) gives the weights of" in done.stdout
    )
    assert "steps 20 to 24, which it does not here" in done.stdout
    assert "event 1 " not in done.stdout
    words = ("--dry-run", "--weight", "a=1", "--weight", "b=1", "--weight", "c=1")
    done = headrace("run", "branch", run, f"{run}-new", *words, *at)
    assert "(by ann, from step 2) gives the weights of steps 6 to 19 and steps 25 to 29, which it" in done.stdout


def test_create_run(raw: Raw, make_run: MakeRun, tmp_path: Path, corpus: Path) -> None:
    name = make_run(name="same")
    assert make_run(name="same") == name  # an equal run is success
    with pytest.raises(ExistsError, match="another name"):
        make_run(name="same", seed=99)
    text = (
        f'[run]\nname = "x"\ncorpus = "{corpus}"\nseed = 1\n[[phase]]\nname = "p"\nsteps = 1\nseq_len = 8\nbatch = 1\n'
    )
    with pytest.raises(ConfigError, match=r"RUN.toml:10.*wieghts"):
        raw("CreateRun", spec_toml=f"{text}wieghts = 1\nweights = {{ a = 1.0 }}\n", base_dir=str(tmp_path))
    with pytest.raises((NotFoundError, ConfigError)):
        make_run(name="lost", corpus=Path("/nowhere/manifest.json"))
    with pytest.raises(UsageError, match="has not"):
        raw("CreateRun", spec_toml=f"{text}weights = {{ zz = 1.0 }}\n", base_dir=str(tmp_path))


def test_eval_run_is_sealed_whole_and_never_trained(raw: Raw, tmp_path: Path, corpus: Path) -> None:
    text = (
        f'[run]\nname = "held-out"\ncorpus = "{corpus}"\nseed = 1\nkind = "eval"\n'
        '[[phase]]\nname = "p"\nsteps = 10\nseq_len = 32\nbatch = 4\nweights = { a = 1.0, b = 1.0, c = 1.0 }\n'
    )
    run = raw("CreateRun", spec_toml=text, base_dir=str(tmp_path)).run
    assert (run.seal, run.end_step) == (10, 10)
    opened = raw("OpenRun", run="held-out", mode="OPEN_MODE_OBSERVE")
    assert raw("GetBatch", run_id=opened.run_id, step=9, rows=4).batch.rows == 4
    assert raw("GetBatch", run_id=opened.run_id, step=10, rows=4).end.end_step == 10
    with pytest.raises(ConflictError, match="kind eval"):
        raw("OpenRun", run="held-out", mode="OPEN_MODE_TRAIN")


def test_an_evaluation_serves_every_window_once_and_fills_the_last_batch(
    raw: Raw, tmp_path: Path, corpus: Path, server: ServerProcess
) -> None:
    """Rows that fill it are padding without a label and weigh nothing; sums over all rows are those of the corpus."""
    text = (
        f'[run]\nname = "whole"\ncorpus = "{corpus}"\nkind = "eval"\n[[phase]]\nname = "p"\nseq_len = 32\nbatch = 64\n'
    )
    run = raw("CreateRun", spec_toml=text, base_dir=str(tmp_path)).run
    assert run.seal == run.end_step > 0
    opened = raw("OpenRun", run="whole", mode="OPEN_MODE_OBSERVE")
    real = 0
    for step in range(run.end_step):
        batch = raw("GetBatch", run_id=opened.run_id, step=step, rows=64).batch
        counts = np.frombuffer(batch.real_ids, "<u4")
        real += int(np.minimum(counts, 32).sum())
        assert batch.row_digests == digest_rows(batch, opened)
        weights = np.frombuffer(batch.loss_weights, "<f4") if batch.loss_weights else np.ones(64, "<f4")
        assert ((counts == 0) == (weights == 0)).all()
        assert (counts == 0).any() == (step == run.end_step - 1)
    whole = Corpus.open(corpus)
    assert real == sum(whole.tokens(name) for name in whole.domains)
    done = headrace("run", "explain", "whole", "--step", str(run.end_step - 1), "--server", server.address)
    assert "fills the batch with padding" in done.stdout
    listed = headrace("run", "list", "--server", server.address).stdout
    shown = f"whole: evaluation of {run.end_step} steps, sealed whole\n  spec digest {run.spec_digest.hex()}\n"
    assert f"{shown}  domains a, b, c\n" in listed
    weights = headrace("weights", "show", "whole", "--server", server.address).stdout
    assert weights.startswith(f"run whole is an evaluation of {run.end_step} steps, sealed whole")
    with pytest.raises(ConflictError, match="`whole` is an evaluation, sealed whole when it was made"):
        raw("SetWeights", run="whole", weights=GOOD)
    assert raw("Explain", run="whole", step=run.end_step - 1).step_digest == step_digest(bytes(batch.row_digests))


def test_explain_names_every_document(raw: Raw, make_run: MakeRun) -> None:
    run = make_run()
    trainer = Trainer(raw, run=run).open().take(3)
    seal = trainer.settle()
    answer = raw("Explain", run=run, step=2)
    assert answer.sealed
    assert answer.step_digest == trainer.digests[2]
    assert [slot.slot for slot in answer.slots] == list(range(8))
    assert all(slot.sources for slot in answer.slots)
    assert all(source.file.endswith(f"{slot.domain}.jsonl") for slot in answer.slots for source in slot.sources)
    assert not raw("Explain", run=run, step=300).sealed
    assert raw("GetRun", run=run).run.seal == seal
    with pytest.raises(HeadraceError, match="step 400"):
        raw("Explain", run=run, step=400)


def test_losses_bad_values_are_refused_one_by_one(raw: Raw, make_run: MakeRun) -> None:
    trainer = Trainer(raw, run=make_run()).open().take(3)
    losses = [
        {"domain": "a", "loss_sum": 10.0, "tokens": 5, "excess_sum": 1.0},
        {"domain": "b", "loss_sum": math.nan, "tokens": 5},
        {"domain": "c", "loss_sum": -1.0, "tokens": 5},
        {"domain": "c", "loss_sum": 1.0, "tokens": 0},
        {"domain": "z", "loss_sum": 1.0, "tokens": 1},
        {"domain": "c", "loss_sum": 1.0, "tokens": 1, "excess_sum": math.inf},
    ]
    known = {"run_id": trainer.opened.run_id, "lease": trainer.opened.lease}
    answer = raw("ReportLosses", **known, step=1, losses=losses)
    assert answer.accepted == 1
    assert [text.split(":")[0] for text in answer.refused] == [f"domain `{name}`" for name in ("b", "c", "c", "z", "c")]
    early = raw("ReportLosses", **known, step=300, losses=losses[:1])
    assert (early.accepted, len(early.refused)) == (0, 1)
    again = raw("ReportLosses", **known, step=1, losses=losses[:1])
    assert again.accepted == 1


def test_losses_are_watched_each_step_once_when_it_has_settled(raw: Raw, make_run: MakeRun) -> None:
    run = make_run(steps=30)
    trainer = Trainer(raw, run=run, world=2).open()
    second = Trainer(raw, run=run, world=2, rank="1").open()

    def report(steps: range) -> None:
        for step in steps:
            for rank in (trainer, second):
                known = {"run_id": rank.opened.run_id, "lease": rank.opened.lease}
                raw("ReportLosses", **known, step=step, losses=[{"domain": "a", "loss_sum": step, "tokens": 2}])

    watched = raw.stream("WatchLosses", run=run, from_step=2, follow=True)
    trainer.take(12).settle()
    report(range(12))
    first = next(watched)
    assert [step.step for step in first.steps] == [2, 3]  # 12 confirmed, the lead is 8
    assert [(loss.loss_sum, loss.tokens) for step in first.steps for loss in step.losses] == [(4.0, 4), (6.0, 4)]
    trainer.take(100)
    report(range(12, 30))
    trainer.close()
    second.close()
    rest = [step.step for answer in watched for step in answer.steps]
    assert rest == list(range(4, 30))
    now = raw("WatchLosses", run=run, from_step=5, to_step=8)
    assert [step.step for answer in now for step in answer.steps] == [5, 6, 7]
    assert raw("WatchLosses", run=run, from_step=100) == []
