"""What a batch derives from its ids, against a plain loop over rows and positions."""

from __future__ import annotations

import numpy as np
import pytest
from headrace.client import IGNORE, Batch
from headrace.proto.errors import UsageError
from hypothesis import given
from hypothesis import strategies as st


@st.composite
def batches(draw: st.DrawFn) -> Batch:
    rows = draw(st.integers(1, 6))
    seq_len = draw(st.integers(1, 12))
    real = draw(st.lists(st.integers(0, seq_len + 1), min_size=rows, max_size=rows))
    edges = [sorted(draw(st.sets(st.integers(1, seq_len), max_size=4))) for _ in range(rows)]
    kind = draw(st.sampled_from([np.uint16, np.uint32]))
    ids = np.arange(10, 10 + rows * (seq_len + 1), dtype=kind).reshape(rows, seq_len + 1)
    for row, count in enumerate(real):
        ids[row, count:] = 0
    return Batch(
        step=3,
        segment=1,
        first_slot=rows,
        token_ids=ids,
        real_ids=np.array(real, dtype=np.uint32),
        domain=np.arange(rows, dtype=np.uint32) % 2,
        domain_names=("a", "b"),
        loss_weight=np.arange(rows, dtype=np.float32),
        edge_ends=np.cumsum([len(row) for row in edges], dtype=np.uint32),
        edges=np.array([edge for row in edges for edge in row], dtype=np.uint32),
        row_digests=np.arange(16 * rows, dtype=np.uint8).reshape(rows, 16),
        plan_hash=bytes(32),
        next_plan_hash=bytes(32),
        pad_id=0,
    )


def edges_of(batch: Batch) -> list[list[int]]:
    return [part.tolist() for part in np.split(batch.edges, batch.edge_ends[:-1])]


@given(batches())
def test_labels_are_shifted_and_masked(batch: Batch) -> None:
    for row in range(len(batch)):
        real = int(batch.real_ids[row])
        expected = [int(batch.token_ids[row, i + 1]) if i + 1 < real else IGNORE for i in range(batch.seq_len)]
        assert batch.labels[row].tolist() == expected
        assert batch.loss_mask[row].tolist() == [label != IGNORE for label in expected]
        assert batch.input_ids[row].tolist() == batch.token_ids[row, :-1].tolist()
    assert batch.tokens == int(batch.loss_mask.sum())


@given(batches())
def test_positions_and_documents(batch: Batch) -> None:
    lengths = []
    for row, edges in enumerate(edges_of(batch)):
        real = int(batch.real_ids[row])
        starts = {0, *edges, *([real] if real < batch.seq_len else [])}
        position = piece = -1
        for column in range(batch.seq_len):
            if column in starts:
                position, piece = 0, piece + 1
                lengths.append(0)
            else:
                position += 1
            lengths[-1] += 1
            assert batch.position_ids[row, column] == position
            assert batch.document_ids[row, column] == piece
    assert np.diff(batch.cu_seqlens).tolist() == lengths
    assert batch.max_seqlen == max(lengths)
    assert (batch.cu_seqlens[0], batch.cu_seqlens[-1]) == (0, batch.input_ids.size)


@given(batches())
def test_split_is_the_same_rows(batch: Batch) -> None:
    for parts in (n for n in range(1, len(batch) + 1) if len(batch) % n == 0):
        micros = list(batch.split(parts))
        assert [micro.micro for micro in micros] == [(i, parts) for i in range(parts)]
        for name in ("token_ids", "labels", "position_ids", "loss_weight", "domain", "real_ids", "row_digests"):
            joined = np.concatenate([getattr(micro, name) for micro in micros])
            assert np.array_equal(joined, getattr(batch, name)), name
        assert [edges for micro in micros for edges in edges_of(micro)] == edges_of(batch)
        assert np.shares_memory(micros[0].token_ids, batch.token_ids)
        assert [name for micro in micros for name in micro.names] == batch.names
    with pytest.raises(UsageError, match="cannot be split"):
        batch.split(len(batch) + 1)
