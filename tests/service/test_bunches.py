"""Ranges that wait in a stream are built together with the one that is due: the same rows, in fewer messages."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from headrace.proto.errors import DataLossError
from headrace.proto.v1 import data_pb2 as pb
from headrace.server.service.ahead import MOST_BYTES, MOST_RANGES, Ahead
from headrace.server.service.rows import StepRows
from rig import Raw, ServerProcess
from test_stream_batches import Stream, answers_of

STEPS = 24


def ranges(count: int) -> list[pb.RowRange]:
    return [pb.RowRange(step=step, first_slot=2, rows=4) for step in range(count)]


def rows_of(step: int, first_slot: int, rows: int) -> StepRows:
    nothing = dict.fromkeys(("domains", "edge_ends", "edges", "real_ids", "loss_weights", "digests"), b"")
    return StepRows(step=step, first_slot=first_slot, rows=rows, seq_len=1, ids=b"ids", **nothing)


def test_twice_as_many_each_time_while_as_many_wait() -> None:
    ahead, (due, *waiting) = Ahead(), ranges(20)
    counts = [len(ahead.choose(due, waiting, lambda step: 1)) for _ in range(5)]
    assert counts == [1, 2, 4, 8, MOST_RANGES]
    assert len(ahead.choose(due, waiting[:3], lambda step: 1)) == 4  # bunches of half as many do not make it smaller
    assert len(ahead.choose(due, waiting[:2], lambda step: 1)) == 3
    assert len(ahead.choose(due, waiting, lambda step: 1)) == 4
    alone = [ahead.choose(due, (), lambda step: 1) for _ in range(4)]  # the client takes them as they come
    assert [len(chosen) for chosen in alone] == [1] * 4
    assert len(ahead.choose(due, waiting, lambda step: 1)) == 2


def test_no_more_bytes_than_are_to_be_held() -> None:
    ahead, (due, *waiting) = Ahead(), ranges(20)
    assert [len(ahead.choose(due, waiting, lambda step: MOST_BYTES // 12)) for _ in range(5)] == [1, 2, 3, 3, 3]
    assert ahead.choose(due, waiting, lambda step: MOST_BYTES) == [(0, 2, 4)]


def test_damage_is_told_in_its_own_turn_and_rows_are_given_once() -> None:
    def build(step: int, first_slot: int, rows: int) -> StepRows:
        if step == 2:
            raise DataLossError("bad block")
        return rows_of(step, first_slot, rows)

    ahead, wanted = Ahead(), ranges(4)
    keys = [(one.step, one.first_slot, one.rows) for one in wanted]
    assert ahead.build(keys, build).step == 0
    assert [ahead.size(one) for one in wanted] == [None, 3, None, None]
    assert ahead.take(wanted[1]) == rows_of(1, 2, 4)
    assert ahead.take(wanted[1]) is None
    with pytest.raises(DataLossError, match="bad block"):
        ahead.build(keys[2:], build)


def test_steps_that_nobody_has_built_come_together_and_as_they_would_alone(
    raw: Raw, server: ServerProcess, tmp_path: Path, corpus: Path
) -> None:
    """An evaluation is sealed whole when it is made, and none of it is built."""
    text = f'[run]\nname = "held"\ncorpus = "{corpus}"\nseed = 1\nkind = "eval"\n'
    text += '[[phase]]\nname = "p"\nseq_len = 32\nbatch = 8\n'
    raw(
        "CreateRun",
        spec_toml=text + f"steps = {STEPS}\nweights = {{ a = 1.0, b = 1.0 }}\n",
        base_dir=str(tmp_path),
        author="t",
    )
    opened: Any = raw("OpenRun", run="held", mode="OPEN_MODE_OBSERVE")
    stream = Stream(server, opened)
    stream.ask(*((step, 1, 6) for step in range(STEPS)), (0, 0, 9), (0, 0, 8), pack_bytes=1 << 20)
    messages: list[list[pb.GetBatchResponse]] = []
    while sum(map(len, messages)) < STEPS + 2:
        messages.append(answers_of(stream.read()))
    stream.close()
    assert len(messages) <= 8
    *batches, refused, last = (answer for message in messages for answer in message)
    assert refused.refused.error == "UsageError"
    for answer, (step, slot, rows) in zip(
        [*batches, last], [*((s, 1, 6) for s in range(STEPS)), (0, 0, 8)], strict=True
    ):
        assert answer.batch == raw("GetBatch", run_id=opened.run_id, step=step, first_slot=slot, rows=rows).batch
