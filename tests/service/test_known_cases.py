"""Cases that other loaders have been known to get wrong, each on the real server with the real client."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest
from headrace.client import Loader, Settings
from headrace.client.state import State
from headrace.native import step_digest
from headrace.proto.errors import ConflictError, HeadraceError, LimitError, OutOfRangeError, StateMismatchError
from rig import Raw, planned_digests, serving, write_run

QUICK = Settings(stall_timeout=60, open_timeout=60, backoff=0.01, backoff_max=0.2, in_flight=8)
SLOW = [pytest.mark.slow, pytest.mark.skipif(not os.environ.get("HEADRACE_SLOW"), reason="set HEADRACE_SLOW=1")]
FAR = [2**31 - 1, 2**31, 2**31 + 1, 2**32, 2**40, 2**53 - 1, 2**53, 2**53 + 1]


def test_a_state_counts_what_was_taken_and_not_what_was_fetched(tmp_path: Path, corpus: Path) -> None:
    """Eight steps are fetched ahead, five are taken, the server is killed: the sixth comes next."""
    with serving(tmp_path, [write_run(tmp_path, corpus, steps=40)]) as server:
        with Loader(server.address, "r", job="j", attempt=0, settings=QUICK) as loader:
            taken = [next(loader) for _ in range(5)]
            time.sleep(0.3)
            state = json.loads(json.dumps(loader.state_dict()))
            server.kill()
        server.start()
        with Loader(server.address, "r", job="j", attempt=1, settings=QUICK) as loader:
            loader.load_state_dict(state)
            taken += list(loader)
        assert [batch.step for batch in taken] == list(range(40))
        served = {batch.step: step_digest(batch.row_digests.tobytes()) for batch in taken}
        assert served == planned_digests(server.store, "r", "0:40")


def test_ranks_that_took_five_and_six_are_told_so(tmp_path: Path, corpus: Path) -> None:
    with serving(tmp_path, [write_run(tmp_path, corpus, steps=40)]) as server:
        states = []
        for rank, taken in ((0, 5), (1, 6)):
            with Loader(server.address, "r", rank=rank, world=2, job="j", attempt=rank, settings=QUICK) as loader:
                for _ in range(taken):
                    next(loader)
                states.append(loader.state_dict())
        ranks = [Loader(server.address, "r", rank=rank, world=2, job="k", attempt=0, settings=QUICK) for rank in (0, 1)]
        with ranks[0], ranks[1]:
            for loader, state in zip(ranks, states, strict=True):
                loader.load_state_dict(state)
            assert next(ranks[0]).step == 5
            with pytest.raises(ConflictError, match=r"(?s)step 5.*step 6|step 6.*step 5"):
                next(ranks[1])


@pytest.mark.parametrize(
    ("size", "stream"),
    [
        ((4 << 20) + 100, True),
        pytest.param((4 << 20) - 100, True, marks=SLOW),
        pytest.param((4 << 20) + 100, False, marks=SLOW),
        pytest.param(64 << 20, True, marks=SLOW),
    ],
)
def test_rows_around_and_far_above_the_usual_limit_of_a_message(
    tmp_path: Path, corpus: Path, size: int, stream: bool
) -> None:
    """4 MiB is what gRPC takes without being told otherwise."""
    run = write_run(tmp_path, corpus, steps=2, seq_len=size // 2 - 1, batch=1)
    settings = Settings(stall_timeout=60, open_timeout=60, stream=stream)
    with serving(tmp_path, [run]) as server:
        with Loader(server.address, "r", settings=settings) as loader:
            batches = list(loader)
        assert [batch.token_ids.nbytes for batch in batches] == [size, size]
        served = {batch.step: step_digest(batch.row_digests.tobytes()) for batch in batches}
        assert served == planned_digests(server.store, "r", "0:2")


def test_a_row_that_no_message_takes_is_refused_when_the_run_is_opened(tmp_path: Path, corpus: Path) -> None:
    size = (64 << 20) + 100
    run = write_run(tmp_path, corpus, steps=2, seq_len=size // 2 - 1, batch=1)
    with (
        serving(tmp_path, [run]) as server,
        Loader(server.address, "r", settings=QUICK) as loader,
        pytest.raises(LimitError, match=rf"has {size} bytes.*at most"),
    ):
        next(loader)


@pytest.mark.parametrize("step", FAR)
def test_numbers_of_steps_survive_json(step: int) -> None:
    state = State(run_id="x", spec_digest=bytes(32), plan_hash=bytes(32), next_step=step)
    text = json.dumps(state.to_dict())
    assert State.from_dict(json.loads(text)) == state
    assert State.from_dict(json.loads(text)).to_message().next_step == step
    rounded = text.replace(str(step), f"{float(step)!r}")
    with pytest.raises(StateMismatchError, match="must be a whole number"):
        State.from_dict(json.loads(rounded))


def test_far_steps_are_out_of_range_in_words(tmp_path: Path, corpus: Path) -> None:
    with serving(tmp_path, [write_run(tmp_path, corpus, steps=2**52)]) as server, Raw(server.address) as raw:
        opened = raw("OpenRun", run="r", mode="OPEN_MODE_TRAIN")
        for step in FAR:
            with pytest.raises(OutOfRangeError, match=r"lead of 8 allows|beyond 2\^53"):
                raw("GetBatch", run_id=opened.run_id, lease=opened.lease, step=step, rows=8)
            state = {"schema": 1, "run_id": opened.run_id, "spec_digest": opened.spec_digest, "next_step": step}
            with pytest.raises(HeadraceError):
                raw("OpenRun", run="r", mode="OPEN_MODE_OBSERVE", state={**state, "plan_hash": bytes(32)})
        assert raw("GetRun", run="r").run.seal == 8
