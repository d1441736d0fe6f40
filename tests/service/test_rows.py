"""Rows of a step that is built whole are, byte for byte, the rows that are built alone."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from headrace.proto.v1 import data_pb2 as pb
from headrace.server.control.store import Store
from headrace.server.service.cache import BuiltSteps
from headrace.server.service.loading import Opener, new_run
from headrace.server.service.rows import StepRows, build_rows, encode_answer, slice_rows
from headrace.server.service.view import View
from rig import write_run


@pytest.fixture
def view(tmp_path: Path, corpus: Path) -> View:
    store = Store(f"sqlite:///{tmp_path}/control.db", writable=True)
    opener = Opener(store)
    text = write_run(tmp_path, corpus, batch=12, seq_len=20).read_text()
    store.create_run(new_run(text, place="RUN.toml", base_dir=str(tmp_path), author="", corpora=opener.corpora))
    made = opener.view("r")
    store.close()
    return made


def build(view: View, step: int, first_slot: int, rows: int) -> StepRows:
    return build_rows(view.plan, view.library, step, first_slot, rows)


def test_every_part_of_a_whole_step(view: View) -> None:
    for step in range(5):
        whole = build(view, step, 0, 12)
        for first_slot in range(12):
            for rows in range(1, 13 - first_slot):
                part, alone = slice_rows(whole, first_slot, rows), build(view, step, first_slot, rows)
                assert all(getattr(part, name) == getattr(alone, name) for name in StepRows.__dataclass_fields__)


def test_the_answer_is_what_protobuf_reads(view: View) -> None:
    part = slice_rows(build(view, 3, 0, 12), 4, 5)
    answer = pb.GetBatchResponse.FromString(b"".join(encode_answer(view, part, seal=8, confirmed=2)))
    assert (answer.seal, answer.confirmed) == (8, 2)
    batch = answer.batch
    assert (batch.step, batch.first_slot, batch.rows, batch.seq_len) == (3, 4, 5, 20)
    assert batch.token_ids == bytes(part.ids)
    assert len(batch.token_ids) == 5 * 21 * 2
    ends = np.frombuffer(batch.edge_ends, "<u4")
    assert len(batch.edges) == 4 * int(ends[-1])
    assert batch.plan_hash == batch.next_plan_hash == view.plan.hash(3)


def test_built_steps_are_bounded_and_the_oldest_go_first(view: View) -> None:
    steps = [build(view, step, 0, 12) for step in range(6)]
    kept = BuiltSteps(largest_bytes=3 * max(step.size for step in steps))
    kept.keep(steps)
    kept.keep(steps[-1:])
    there = [step for step in range(6) if kept.rows(step, 0, 1) is not None]
    assert there == [3, 4, 5]
    for first_slot, rows in ((0, 0), (0, 13), (12, 1)):
        assert kept.rows(5, first_slot, rows) is None
