"""The loader over real sockets: what it yields, what it confirms, how it resumes."""

from __future__ import annotations

import json
from collections.abc import Iterator

import numpy as np
import pytest
from headrace.client import Batch, ClosedError, Loader, Settings
from headrace.proto.errors import ConflictError, FencedError, NotFoundError, StateMismatchError, UsageError
from toy_server import Toy, ToyServer, step_digests

QUICK = Settings(stall_timeout=20, open_timeout=5, call_timeout=5)


@pytest.fixture(params=[False, True], ids=["calls", "stream"])
def server(request: pytest.FixtureRequest) -> Iterator[ToyServer]:
    with ToyServer(Toy(streams=request.param)) as running:
        yield running


def loader(server: ToyServer, **more: object) -> Loader:
    return Loader(server.address, "toy", settings=QUICK, **more)  # type: ignore[arg-type]


def digests(batches: list[Batch]) -> list[bytes]:
    return [batch.row_digests.tobytes() for batch in batches]


def test_yields_every_step_of_the_run_as_planned(server: ToyServer) -> None:
    toy = server.service.toy
    with loader(server) as batches:
        seen = list(batches)
    assert [batch.step for batch in seen] == list(range(toy.end))
    assert digests(seen) == [step_digests(toy, step) for step in range(toy.end)]
    for batch in seen:
        rows = toy.rows(batch.step)
        assert np.array_equal(batch.token_ids, rows["ids"])
        assert np.array_equal(batch.real_ids, rows["real"])
        assert batch.token_ids.flags.writeable


def test_another_seed_gives_another_stream(server: ToyServer) -> None:
    with ToyServer(Toy(seed=2)) as other, loader(server) as ours, loader(other) as theirs:
        assert next(ours).row_digests.tobytes() != next(theirs).row_digests.tobytes()


@pytest.mark.parametrize("world", [1, 2, 4, 8])
def test_ranks_share_each_step_without_overlap(world: int) -> None:
    toy = Toy(shapes=((6, 8, 16),))
    with ToyServer(toy) as server:
        ranks = [loader(server, rank=r, world=world, job="j") for r in range(world)]
        for step in range(toy.end):
            parts = [next(rank) for rank in ranks]
            assert [part.first_slot for part in parts] == [r * 8 // world for r in range(world)]
            assert b"".join(digests(parts)) == step_digests(toy, step)
        for rank in ranks:
            assert next(rank, None) is None
            rank.close()
        assert server.service.job is None


def test_confirms_exactly_what_was_taken(server: ToyServer) -> None:
    toy = server.service.toy
    with loader(server) as batches:
        for _ in range(5):
            next(batches)
    assert server.service.confirmed == 5
    assert {step for step, _ in server.seen.digests} == set(range(5))
    assert server.seen.digests[3, 0] == step_digests(toy, 3)
    assert server.service.job is None, "the lease was not given back"


def test_never_asks_beyond_the_lead(server: ToyServer) -> None:
    with loader(server) as batches:
        for taken in range(1, 10):
            next(batches)
            assert server.seen.highest_step <= taken + server.service.toy.lead - 1


def test_state_counts_taken_steps_not_prefetched_ones(server: ToyServer) -> None:
    with loader(server) as batches:
        for _ in range(5):
            next(batches)
        state = batches.state_dict()
    assert state["next_step"] == 5
    with loader(server) as again:
        again.load_state_dict(state)
        assert next(again).step == 5


def test_state_is_small_and_survives_json(server: ToyServer) -> None:
    with loader(server) as batches:
        next(batches)
        text = json.dumps(batches.state_dict())
    assert len(text) < 400
    with loader(server) as again:
        again.load_state_dict(json.loads(text))
        assert again.next_step == 1
        assert next(again).step == 1


def test_state_before_the_first_step_takes_no_lease(server: ToyServer) -> None:
    with loader(server) as batches:
        state = batches.state_dict()
        assert state["next_step"] == 0
        assert server.service.job is None
        batches.load_state_dict(state)
        assert next(batches).step == 0


def test_resume_of_resume_of_resume(server: ToyServer) -> None:
    toy = server.service.toy
    seen: list[bytes] = []
    state = None
    for cut in (3, 0, 1, 9, 27):
        with loader(server, job="j") as batches:
            if state is not None:
                batches.load_state_dict(state)
            seen += digests([next(batches) for _ in range(cut)])
            state = batches.state_dict()
    assert seen == [step_digests(toy, step) for step in range(toy.end)]


def test_load_state_after_iteration_began(server: ToyServer) -> None:
    with loader(server, job="j") as batches:
        first = iter(batches)
        assert next(first).step == 0
        state = batches.state_dict()
        assert [next(first).step for _ in range(6)] == [1, 2, 3, 4, 5, 6]
        batches.load_state_dict(state)
        assert next(first).step == 1
        assert next(iter(batches)).step == 2


def test_state_of_another_run_is_refused_naming_both(server: ToyServer) -> None:
    with ToyServer(Toy(seed=2)) as other, loader(other) as theirs:
        next(theirs)
        state = theirs.state_dict()
    with loader(server) as ours:
        ours.load_state_dict(state)
        with pytest.raises(StateMismatchError) as caught:
            next(ours)
    for spec in (Toy(seed=2).spec_digest, server.service.toy.spec_digest):
        assert spec.hex() in str(caught.value)


@pytest.mark.parametrize(
    "change",
    [{"schema": 2}, {"next_step": "5"}, {"next_step": -1}, {"plan_hash": "zz"}, {"spec_digest": "00"}, {"more": 1}],
)
def test_what_is_no_state_is_refused_at_once(server: ToyServer, change: dict[str, object]) -> None:
    with loader(server) as batches:
        state = batches.state_dict() | change
        with pytest.raises(StateMismatchError):
            batches.load_state_dict(state)


def test_another_job_is_refused_and_a_newer_attempt_fences(server: ToyServer) -> None:
    with loader(server, job="a") as first:
        next(first)
        with loader(server, job="b") as second, pytest.raises(ConflictError, match="job `a`"):
            next(second)
        with loader(server, job="a", attempt=1) as newer:
            assert next(newer).step == 0
            with pytest.raises(FencedError, match="attempt 1"):
                list(first)


def test_takeover(server: ToyServer) -> None:
    with loader(server, job="a") as first:
        next(first)
        with loader(server, job="b", takeover=True) as second:
            assert next(second).step == 0


def test_observer_confirms_nothing(server: ToyServer) -> None:
    with loader(server, mode="observe") as batches:
        assert [next(batches).step for _ in range(20)] == list(range(20))
    assert server.service.confirmed == 0
    assert server.seen.calls["Confirm"] == server.seen.calls["CloseRun"] == 0


def test_unknown_run_and_closed_loader(server: ToyServer) -> None:
    with Loader(server.address, "other") as batches, pytest.raises(NotFoundError, match="`toy`"):
        next(batches)
    with pytest.raises(ClosedError):
        next(batches)


@pytest.mark.parametrize("world", [1, 2])
def test_phases_change_the_shape(world: int) -> None:
    toy = Toy(shapes=((5, 8, 16), (5, 4, 64), (3, 16, 8)))
    with ToyServer(toy) as server, loader(server, rank=world - 1, world=world, job="j") as batches:
        shapes = [batch.token_ids.shape for batch in batches]
    assert shapes == [(8 // world, 17)] * 5 + [(4 // world, 65)] * 5 + [(16 // world, 9)] * 3


@pytest.mark.parametrize(("max_rows", "id_bytes"), [(1, 2), (3, 4), (5, 2), (64, 4)])
def test_rows_above_one_message_come_in_ranges(max_rows: int, id_bytes: int) -> None:
    toy = Toy(shapes=((4, 24, 16),), max_rows=max_rows, id_bytes=id_bytes)
    with ToyServer(toy) as server, loader(server, rank=1, world=2, job="j") as batches:
        for step, batch in enumerate(batches):
            rows = toy.rows(step)
            assert np.array_equal(batch.token_ids, rows["ids"][12:])
            assert batch.row_digests.tobytes() == step_digests(toy, step)[16 * 12 :]
            edges = np.split(batch.edges, batch.edge_ends[:-1])
            assert [row.tolist() for row in edges] == rows["edges"][12:]
    assert server.seen.calls["GetBatch"] >= 4 * -(-12 // max_rows)


def test_micro_batches_are_the_step_and_the_state_names_a_whole_one(server: ToyServer) -> None:
    toy = server.service.toy
    with loader(server, micro_batches=4) as batches:
        steps: list[int] = []
        for micro in batches:
            whole = micro.micro == (3, 4)
            assert batches.state_dict()["next_step"] == micro.step + whole
            expected = step_digests(toy, micro.step)[32 * micro.micro[0] : 32 * micro.micro[0] + 32]
            assert micro.row_digests.tobytes() == expected
            assert micro.first_slot == 2 * micro.micro[0]
            steps.append(micro.step)
    assert steps == [step for step in range(toy.end) for _ in range(4)]
    for uneven in ({"micro_batches": 3}, {"micro_rows": 3}):
        with loader(server, **uneven) as odd, pytest.raises(UsageError, match="8 rows"):
            next(odd)


def test_micro_rows_follow_the_batch_of_the_phase() -> None:
    toy = Toy(shapes=((2, 8, 16), (2, 4, 16)))
    with ToyServer(toy) as server, loader(server, micro_rows=2) as batches:
        seen = [(batch.step, *batch.micro, len(batch)) for batch in batches]
    assert seen == [(step, part, parts, 2) for step, parts in ((0, 4), (1, 4), (2, 2), (3, 2)) for part in range(parts)]


def test_batches_stay_valid_while_they_are_held(server: ToyServer) -> None:
    toy = server.service.toy
    with loader(server) as batches:
        kept = list(batches)
    for batch in kept:
        assert np.array_equal(batch.token_ids, toy.rows(batch.step)["ids"])


def test_open_looks_without_the_lease_and_checks_the_state(server: ToyServer) -> None:
    with loader(server, job="j") as batches:
        assert batches.open().vocab_size == 60_000
        assert server.service.job is None
        next(batches)
        assert batches.open().lease
        state = batches.state_dict()
    with loader(server, job="j") as batches:
        batches.load_state_dict(state | {"spec_digest": "00" * 32})
        with pytest.raises(StateMismatchError, match="00" * 32):
            batches.open()
        assert server.service.job is None
