"""Changes that come too often are refused with the time after which one is taken, and cost nobody else anything."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from headrace.proto.errors import BusyError
from headrace.server.service.limiter import Limiter
from rig import Raw, Trainer, headrace, serving, write_run

GOOD = {"a": 0.2, "b": 0.3, "c": 0.5}


def test_a_bucket_fills_with_time_and_each_run_has_its_own() -> None:
    now = 0.0
    limiter = Limiter(5, clock=lambda: now)
    for _ in range(20):
        limiter.take("r")
    with pytest.raises(BusyError, match="5 changes a second") as refused:
        limiter.take("r")
    assert refused.value.retry_after == pytest.approx(0.2)
    limiter.take("other")
    now = refused.value.retry_after
    limiter.take("r")
    with pytest.raises(BusyError):
        limiter.take("r")
    now = 1e6
    for _ in range(20):
        limiter.take("r")
    with pytest.raises(BusyError):
        limiter.take("r")
    free = Limiter(0)
    for _ in range(10_000):
        free.take("r")


def test_a_pusher_in_a_loop_is_held_back_and_trainers_are_not(tmp_path: Path, corpus: Path) -> None:
    runs = [write_run(tmp_path, corpus, name=name) for name in ("r", "other")]
    with serving(tmp_path, runs, extra="changes_per_second = 2") as server, Raw(server.address) as raw:
        trainer = Trainer(raw).open().take(2)
        taken = 0
        refused: list[BusyError] = []
        begun = time.monotonic()
        for _ in range(24):
            try:
                raw("SetWeights", run="r", weights=GOOD)
                taken += 1
            except BusyError as error:
                refused.append(error)
        assert refused
        for error in refused:
            assert 0 < error.retry_after <= 0.5
            assert error.exit_code == 75
            assert "RESOURCE_EXHAUSTED" in str(error)
        assert taken <= 8 + 2 * (time.monotonic() - begun) + 1
        done = headrace("weights", "set", "r", "a=1", "b=1", "c=1", "--server", server.address)
        if done.returncode:
            assert done.returncode == 75
            assert "try again in" in done.stderr
        raw("SetWeights", run="other", weights=GOOD)
        trainer.take(5)
        time.sleep(0.6)
        raw("SetWeights", run="r", weights=GOOD)
        assert not raw("ListRefusals", run="r").refusals
        assert len(raw("ListEvents", run="r").events) == taken + 1 + (done.returncode == 0)
        assert server.log.read_text().count("too many changes") == 1
