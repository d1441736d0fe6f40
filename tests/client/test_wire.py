"""Replies are read as protobuf reads them, and one that is not whole is named, never half used."""

from __future__ import annotations

import numpy as np
import pytest
from headrace.client.wire import Part, read_reply, take_plain
from headrace.native import row_digests
from headrace.proto.errors import DataLossError
from headrace.proto.v1 import data_pb2
from hypothesis import given
from hypothesis import strategies as st

NAMES = tuple("abcdefghij")


@st.composite
def replies(draw: st.DrawFn) -> data_pb2.GetBatchResponse:
    rows, seq_len = draw(st.integers(1, 5)), draw(st.integers(1, 300))
    edges = [draw(st.lists(st.integers(1, seq_len), max_size=3)) for _ in range(rows)]
    batch = data_pb2.Batch(
        step=draw(st.integers(0, 2**53)),
        segment=draw(st.integers(0, 2**20)),
        first_slot=draw(st.integers(0, 2**20)),
        rows=rows,
        seq_len=seq_len,
        token_ids=draw(st.binary(min_size=2 * rows * (seq_len + 1), max_size=2 * rows * (seq_len + 1))),
        domains=np.array(draw(st.lists(st.integers(0, 9), min_size=rows, max_size=rows)), "<u4").tobytes(),
        edge_ends=np.cumsum([len(row) for row in edges]).astype("<u4").tobytes(),
        edges=np.array([edge for row in edges for edge in row], "<u4").tobytes(),
        real_ids=np.full(rows, seq_len, "<u4").tobytes(),
        loss_weights=draw(st.sampled_from([b"", np.full(rows, 0.5, "<f4").tobytes()])),
        row_digests=bytes(16 * rows),
        plan_hash=bytes(32),
        next_plan_hash=bytes(range(32)),
        domain_names=draw(st.lists(st.text(max_size=5), max_size=3)),
    )
    return data_pb2.GetBatchResponse(batch=batch, seal=draw(st.integers(0, 2**40)), confirmed=3)


@given(replies(), st.booleans())
def test_every_field_is_what_protobuf_reads(reply: data_pb2.GetBatchResponse, unknown: bool) -> None:
    data = reply.SerializeToString()
    if unknown:  # fields of a newer server: number 99, of each wire type
        data += b"\x98\x06\x07" + b"\x9a\x06\x02ab" + b"\x99\x06" + bytes(8) + b"\x9d\x06" + bytes(4)
    read = read_reply(data, id_bytes=2)
    part, batch = read.part, reply.batch
    assert part is not None
    assert bytes(read.ids) == batch.token_ids
    assert (part.step, part.segment, part.first_slot) == (batch.step, batch.segment, batch.first_slot)
    assert (part.rows, part.seq_len) == (batch.rows, batch.seq_len)
    assert part.domains.astype("<u4").tobytes() == batch.domains
    assert part.edges.astype("<u4").tobytes() == batch.edges
    assert part.loss_weights.tolist() == [0.5 if batch.loss_weights else 1.0] * batch.rows
    assert part.domain_names == tuple(batch.domain_names)
    assert (part.plan_hash, part.next_plan_hash) == (batch.plan_hash, batch.next_plan_hash)


@given(replies(), st.data())
def test_a_cut_reply_is_no_reply(reply: data_pb2.GetBatchResponse, data: st.DataObject) -> None:
    whole = reply.SerializeToString()
    cut = whole[: data.draw(st.integers(0, len(whole.rpartition(reply.batch.token_ids)[0]) + 1))]
    with pytest.raises(DataLossError):
        read_reply(cut, id_bytes=2)


@pytest.mark.parametrize(
    "change",
    [
        {"token_ids": b"abc"},
        {"edge_ends": b""},
        {"row_digests": b"x"},
        {"plan_hash": b""},
        {"next_plan_hash": b""},
        {"real_ids": bytes(4)},
    ],
)
def test_fields_that_do_not_fit_each_other(change: dict[str, bytes]) -> None:
    fields = {
        "rows": 2,
        "seq_len": 1,
        "token_ids": bytes(8),
        "domains": bytes(8),
        "edge_ends": bytes(8),
        "real_ids": bytes(8),
        "row_digests": bytes(32),
        "plan_hash": bytes(32),
        "next_plan_hash": bytes(32),
    }
    good = data_pb2.GetBatchResponse(batch=data_pb2.Batch(**fields))
    assert read_reply(good.SerializeToString(), id_bytes=2).part is not None
    bad = data_pb2.GetBatchResponse(batch=data_pb2.Batch(**(fields | change)))
    with pytest.raises(DataLossError):
        read_reply(bad.SerializeToString(), id_bytes=2)


def test_the_end_and_nothing() -> None:
    end = data_pb2.GetBatchResponse(end=data_pb2.End(end_step=7, reason="last phase"), seal=7)
    read = read_reply(end.SerializeToString(), id_bytes=4)
    assert (read.part, read.end_step, read.end_reason) == (None, 7, "last phase")
    with pytest.raises(DataLossError, match="neither"):
        read_reply(data_pb2.GetBatchResponse(seal=1).SerializeToString(), id_bytes=4)


def _taken(
    data: bytes, step: int, slot: int, rows: int, seq_len: int, shared: bytes | None
) -> tuple[Part | None, bytes]:
    into = np.zeros(rows * (seq_len + 1) * 2, np.uint8)
    place = None if shared is None else memoryview(shared)
    part = take_plain(data, step, slot, rows, id_bytes=2, into=into, shared=place, names=NAMES)
    return part, into.tobytes()


@st.composite
def whole_replies(draw: st.DrawFn) -> tuple[data_pb2.GetBatchResponse, bytes]:
    """A reply with the digests that are due, and its ids; often without anything that makes it special."""
    reply = draw(replies())
    batch = reply.batch
    names = draw(st.sampled_from([[], [], list(NAMES)]))
    del batch.domain_names[:]
    batch.domain_names.extend(names)
    ends = np.frombuffer(batch.edge_ends, "<u4").astype(np.uint32)
    weights = np.frombuffer(batch.loss_weights or np.ones(batch.rows, "<f4").tobytes(), "<f4").astype(np.float32)
    batch.row_digests = row_digests(
        batch.token_ids,
        2 * (batch.seq_len + 1),
        ends,
        np.frombuffer(batch.edges, "<u4").astype(np.uint32),
        list(NAMES),
        np.frombuffer(batch.domains, "<u4").astype(np.uint32),
        weights,
    )
    return reply, batch.token_ids


@given(whole_replies(), st.booleans())
def test_a_plain_reply_is_taken_as_it_is_read(whole: tuple[data_pb2.GetBatchResponse, bytes], shared: bool) -> None:
    reply, ids = whole
    batch = reply.batch
    if shared:
        batch.token_ids, batch.shared = b"", True
    data = reply.SerializeToString()
    part, into = _taken(data, batch.step, batch.first_slot, batch.rows, batch.seq_len, ids if shared else None)
    read = read_reply(data, id_bytes=2, shared=memoryview(ids) if shared else None)
    assert part is not None
    assert read.part is not None
    assert into == ids == bytes(read.ids)
    for name, ours, theirs in zip(Part._fields, part, read.part, strict=True):
        if isinstance(theirs, np.ndarray):
            assert ours.dtype == theirs.dtype
            assert ours.tobytes() == theirs.tobytes()
            assert ours.flags.writeable or not ours.size
        elif name != "domain_names":
            assert ours == theirs


@given(whole_replies(), st.data())
def test_what_was_changed_on_the_way_is_not_plain(
    whole: tuple[data_pb2.GetBatchResponse, bytes], data: st.DataObject
) -> None:
    reply, _ = whole
    batch = reply.batch
    sent = bytearray(reply.SerializeToString())
    at = data.draw(st.integers(0, len(sent) - 1))
    sent[at] ^= data.draw(st.integers(1, 255))
    part, into = _taken(bytes(sent), batch.step, batch.first_slot, batch.rows, batch.seq_len, None)
    if part is None:
        return
    read = read_reply(bytes(sent), id_bytes=2)  # what no digest covers: hashes, real ids, the seal
    assert read.part is not None
    assert into == bytes(read.ids) == batch.token_ids
    assert part.row_digests == read.part.row_digests == batch.row_digests
    assert (part.plan_hash, part.real_ids.tolist()) == (read.part.plan_hash, read.part.real_ids.tolist())


@given(whole_replies(), st.data())
def test_only_what_was_asked_for_is_plain(whole: tuple[data_pb2.GetBatchResponse, bytes], data: st.DataObject) -> None:
    reply, _ = whole
    batch = reply.batch
    asked = [batch.step, batch.first_slot, batch.rows, batch.seq_len]
    asked[data.draw(st.integers(0, 3))] += data.draw(st.sampled_from([1, 7]))
    assert _taken(reply.SerializeToString(), *asked, None)[0] is None
    change = data.draw(st.sampled_from(["end", "refused", "note", "share", "more", "masks", "names", "unknown"]))
    other = data_pb2.GetBatchResponse.FromString(reply.SerializeToString())
    if change == "end":
        other.end.end_step = 3
    elif change == "refused":
        other.refused.message = "no"
    elif change == "note":
        other.note = "careful"
    elif change == "share":
        other.share.nonce = b"x"
    elif change == "more":
        other.more.add(seal=1)
    elif change == "masks":
        other.batch.mask_ends, other.batch.masks = bytes(4 * batch.rows - 4) + b"\2\0\0\0", b"\0\0\0\0\1\0\0\0"
    elif change == "names":
        other.batch.domain_names.extend(["one more"] * 11)
    sent = other.SerializeToString() + (b"\x98\x06\x07" if change == "unknown" else b"")
    assert _taken(sent, batch.step, batch.first_slot, batch.rows, batch.seq_len, None)[0] is None
