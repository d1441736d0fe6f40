"""Requests that are late, early, twice, far ahead or wrong: what they get, and that nothing moves by them."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from typing import Any

import pytest
from headrace.proto.errors import (
    DeadlineError,
    FencedError,
    LimitError,
    OutOfRangeError,
    UnavailableError,
    UsageError,
)
from rig import Raw, ServerProcess, Trainer

MakeRun = Callable[..., str]


def ask(trainer: Trainer, step: int, **changes: Any) -> Any:
    fields = {"run_id": trainer.opened.run_id, "lease": trainer.opened.lease, "step": step, "first_slot": 0, "rows": 8}
    return trainer.raw("GetBatch", **{**fields, **changes})


def test_far_ahead_does_not_seal_the_run(raw: Raw, make_run: MakeRun) -> None:
    trainer = Trainer(raw, run=make_run(steps=10**9)).open()
    for step in (8, 10**6, 10**9 - 1, 2**40, 2**53 + 1, 2**63):
        with pytest.raises(OutOfRangeError):
            ask(trainer, step)
    run = raw("GetRun", run=trainer.run).run
    assert (run.seal, run.confirmed) == (8, 0)
    trainer.take(2)


def test_late_and_twice(raw: Raw, make_run: MakeRun) -> None:
    trainer = Trainer(raw, run=make_run()).open().take(20)
    first, again = (ask(trainer, 3).batch.SerializeToString(deterministic=True) for _ in range(2))
    assert first == again
    trainer.check([ask(trainer, 3)])
    assert raw("GetRun", run=trainer.run).run.confirmed >= 19


def test_own_confirmation_counts_before_the_request_is_judged(raw: Raw, make_run: MakeRun) -> None:
    trainer = Trainer(raw, run=make_run()).open()
    with pytest.raises(OutOfRangeError):
        ask(trainer, 8, confirmation={"next_step": 0})
    assert ask(trainer, 8, confirmation={"next_step": 1}).batch.step == 8


def test_confirmation_of_what_was_never_served(raw: Raw, make_run: MakeRun) -> None:
    trainer = Trainer(raw, run=make_run()).open()
    with pytest.raises(OutOfRangeError, match="only 8 are sealed"):
        ask(trainer, 0, confirmation={"next_step": 9})
    assert raw("GetRun", run=trainer.run).run.confirmed == 0


def test_confirmed_never_falls(raw: Raw, make_run: MakeRun) -> None:
    trainer = Trainer(raw, run=make_run()).open().take(10)
    ask(trainer, 2, confirmation={"next_step": 2})
    assert raw("GetRun", run=trainer.run).run.confirmed >= 9


@pytest.mark.parametrize("name", ["id", "rank", "holder"])
def test_names_that_no_database_keeps(raw: Raw, make_run: MakeRun, name: str) -> None:
    with pytest.raises(UsageError, match="zero byte"):
        raw("OpenRun", run=make_run(), mode="OPEN_MODE_TRAIN", job={"id": "j", name: "a\0b"})


@pytest.mark.parametrize(("first_slot", "rows"), [(0, 0), (0, 9), (8, 1), (7, 2), (2**32 - 1, 1)])
def test_slots_that_the_step_does_not_have(raw: Raw, make_run: MakeRun, first_slot: int, rows: int) -> None:
    trainer = Trainer(raw, run=make_run()).open()
    with pytest.raises(UsageError, match="slots 0 to 7"):
        ask(trainer, 0, first_slot=first_slot, rows=rows)


def test_more_rows_than_a_message_holds(raw: Raw, make_run: MakeRun) -> None:
    run = make_run(seq_len=8191, batch=512)
    trainer = Trainer(raw, run=run).open()
    most = trainer.opened.max_rows
    assert most == (4 << 20) // (8192 * trainer.opened.id_bytes)
    assert ask(trainer, 0, rows=most).batch.rows == most
    with pytest.raises(LimitError, match=f"at most {most} rows"):
        ask(trainer, 0, rows=most + 1)


def test_unknown_lease(raw: Raw, make_run: MakeRun) -> None:
    trainer = Trainer(raw, run=make_run()).open()
    with pytest.raises(FencedError, match="not valid"):
        ask(trainer, 0, lease="00" * 16)


def test_a_run_that_nobody_trains_says_so(raw: Raw, make_run: MakeRun) -> None:
    opened = raw("OpenRun", run=make_run(), mode="OPEN_MODE_OBSERVE")
    with pytest.raises(UnavailableError, match="no trainer holds the run"):
        raw("GetBatch", run_id=opened.run_id, step=0, rows=1)


def test_wrong_digest_raises_an_alarm(raw: Raw, make_run: MakeRun, server: ServerProcess) -> None:
    trainer = Trainer(raw, run=make_run()).open()
    sent = ask(trainer, 0).batch.row_digests
    good = {"step": 0, "first_slot": 0, "row_digests": sent}
    bad = {**good, "row_digests": sent[:16] + bytes(16) + sent[32:]}
    unseen = {"step": 0, "first_slot": 2, "row_digests": sent[32:64]}
    for received in (good, unseen, bad):
        raw(
            "Confirm",
            run_id=trainer.opened.run_id,
            lease=trainer.opened.lease,
            confirmation={"next_step": 1, "received": [received]},
        )
    log = server.log.read_text()
    assert log.count(f"run {trainer.run}: rank 0 received other bytes") == 1
    assert "step 0, slots 1;" in log


def test_oversized_request(raw: Raw, make_run: MakeRun) -> None:
    with pytest.raises(LimitError):
        raw("CreateRun", spec_toml="x" * (300 << 10))


def test_deadline_of_a_millisecond_leaves_nothing_behind(raw: Raw, make_run: MakeRun) -> None:
    trainer = Trainer(raw, run=make_run()).open()
    begun = time.monotonic()
    for _ in range(200):
        # On a busy machine gRPC refuses a stream while it clears those that were reset.
        with contextlib.suppress(DeadlineError, UnavailableError):
            ask(trainer, 7, timeout=0.001)
    assert time.monotonic() - begun < 10
    trainer.take(5)
