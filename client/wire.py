"""Reads a GetBatch reply without copying its token ids.

The ids are nearly all of a reply, and protobuf copies a `bytes` field twice on the way to Python. This walks the wire
format for the one field, leaves it where it is, and lets protobuf parse the rest, so every other field, known or not,
is read by the generated code.

`take_plain` is the fast twin for nearly every reply: rows that were asked for, nothing masked, nothing said besides.
What it declines, damaged replies included, is read here, and here alone an error gets its words.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from google.protobuf.message import DecodeError
from google.protobuf.unknown_fields import UnknownFieldSet
from headrace import native
from headrace.client.buffers import Buffer
from headrace.proto.errors import DataLossError
from headrace.proto.v1 import data_pb2
from numpy.typing import NDArray

_BATCH = data_pb2.GetBatchResponse.BATCH_FIELD_NUMBER
_MORE = data_pb2.GetBatchResponse.MORE_FIELD_NUMBER
_SHARE = data_pb2.GetBatchResponse.SHARE_FIELD_NUMBER
_TOKEN_IDS = data_pb2.Batch.TOKEN_IDS_FIELD_NUMBER
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
Bytes = bytes | memoryview
_NOTHING = memoryview(b"")
_NO_WORDS = np.zeros(0, np.uint32)
_Parsed = tuple[data_pb2.GetBatchResponse, data_pb2.Batch | None, memoryview]
_LITTLE: dict[Any, Any] = {kind: np.dtype(kind).newbyteorder("<") for kind in (np.uint32, np.float32)}


# Named tuples, since one of each is made for every range; to make a frozen dataclass takes twice as long (measured).


class Part(NamedTuple):
    """Rows [first_slot, first_slot + rows) of a step as received, but for their ids, which may be `shared` with the
    server."""

    step: int
    segment: int
    first_slot: int
    rows: int
    seq_len: int
    shared: bool
    real_ids: NDArray[np.uint32]
    domains: NDArray[np.uint32]
    loss_weights: NDArray[np.float32]
    edge_ends: NDArray[np.uint32]
    edges: NDArray[np.uint32]
    row_digests: bytes
    plan_hash: bytes
    next_plan_hash: bytes
    domain_names: tuple[str, ...]
    mask_ends: NDArray[np.uint32] = _NO_WORDS
    masks: NDArray[np.uint32] = _NO_WORDS


class Reply(NamedTuple):
    """What was answered: rows, that the stream has ended at `end_step`, or (in StreamBatches) that it is refused.

    `ids` is a view of the reply's bytes, or of what is shared with the server; empty once they were copied.
    """

    part: Part | None
    ids: memoryview = _NOTHING
    end_step: int = 0
    end_reason: str = ""
    refused: data_pb2.Refused | None = None
    note: str = ""


def split(data: bytes) -> list[memoryview]:
    """The answers that share a message, in order, as views of it; one that is not whole, for `read_reply` to refuse."""
    whole = memoryview(data)
    try:
        more = [(tag, begin, end) for number, tag, begin, end in _fields(whole, 0, len(data)) if number == _MORE]
    except (IndexError, ValueError):
        return [whole]
    if not more:
        return [whole]
    # Fields may come in any order; ours come last.
    gaps = zip([0, *(end for _, _, end in more)], [*(tag for tag, _, _ in more), len(data)], strict=True)
    first = [whole[begin:end] for begin, end in gaps if begin < end]
    head = first[0] if len(first) == 1 else memoryview(b"".join(first))
    return [head, *(whole[begin:end] for _, begin, end in more)]


def read_share(data: Bytes) -> data_pb2.Share | None:
    """What an answer says of shared memory, if that is what it is about."""
    try:
        _, begin, end = _find(data, 0, len(data), _SHARE)
        return data_pb2.Share.FromString(bytes(data[begin:end])) if begin < len(data) else None
    except (IndexError, ValueError, DecodeError):
        return None  # it is not whole, which `read_reply` says


def read_reply(data: Bytes, *, id_bytes: int, shared: memoryview | None = None) -> Reply:
    """`shared` is where the ids lie, if the reply does not hold them. Raises DataLossError when it is not whole."""
    try:
        outer, batch, ids = _parse(data) if shared is None else _parse_small(data, shared)
        part = _read_part(batch, len(ids), id_bytes) if batch is not None else None
    except (IndexError, ValueError, DecodeError) as error:
        raise DataLossError(f"a reply of {len(data)} bytes is no whole GetBatchResponse: {error}") from None
    if part is None and outer.WhichOneof("answer") is None:
        raise DataLossError(f"a reply of {len(data)} bytes holds neither rows nor the end of the stream")
    return Reply(
        part=part,
        ids=ids,
        end_step=outer.end.end_step,
        end_reason=outer.end.reason,
        refused=outer.refused if outer.HasField("refused") else None,
        note=outer.note,
    )


def unknown_fields(data: Bytes) -> list[int]:
    """Numbers of what a whole reply says of its rows and this version does not know: a newer server wrote it."""
    batch = data_pb2.GetBatchResponse.FromString(bytes(data)).batch
    unknown = UnknownFieldSet(batch)
    return sorted({unknown[place].field_number for place in range(len(unknown))})


def take_plain(
    data: Bytes,
    step: int,
    first_slot: int,
    rows: int,
    *,
    id_bytes: int,
    into: Buffer,
    shared: memoryview | None,
    names: tuple[str, ...],
) -> Part | None:
    """The rows asked for, if the reply is plain: their ids lie in `into` then, with the digests that the server names.

    None for any other reply, also where `into` was written to: `read_reply` is to read it.
    """
    reply = np.frombuffer(data, np.uint8)
    place = None if shared is None else np.frombuffer(shared, np.uint8)
    found = native.take_plain(reply, place, into, step, first_slot, rows, id_bytes, names)
    if found is None:
        return None
    segment, was_shared, real_ids, domains, loss_weights, edge_ends, edges, row_digests, plan_hash, next_plan_hash = (
        found
    )
    return Part(
        step=step,
        segment=segment,
        first_slot=first_slot,
        rows=rows,
        seq_len=into.size // (rows * id_bytes) - 1,
        shared=was_shared,
        real_ids=real_ids,
        domains=domains,
        loss_weights=loss_weights,
        edge_ends=edge_ends,
        edges=edges,
        row_digests=row_digests,
        plan_hash=plan_hash,
        next_plan_hash=next_plan_hash,
        domain_names=(),
    )


def _parse(data: Bytes) -> _Parsed:
    """A reply with its ids: they stay where they are."""
    tag, begin, end = _find(data, 0, len(data), _BATCH)
    outer = data_pb2.GetBatchResponse.FromString(b"".join((data[:tag], data[end:])))
    if begin == len(data):
        return outer, None, _NOTHING
    tag, ids_begin, ids_end = _find(data, begin, end, _TOKEN_IDS)
    batch = data_pb2.Batch.FromString(b"".join((data[begin:tag], data[ids_end:end])))
    if batch.shared:
        raise ValueError("its ids are said to lie in shared memory, and none was named")
    return outer, batch, memoryview(data)[ids_begin:ids_end]


def _parse_small(data: Bytes, shared: memoryview) -> _Parsed:
    """A reply whose ids lie elsewhere, unless it says otherwise: to walk it would cost more than to parse it."""
    outer = data_pb2.GetBatchResponse.FromString(bytes(data))
    batch = outer.batch if outer.HasField("batch") else None
    return outer, batch, shared if batch is None or batch.shared else memoryview(batch.token_ids)


def _read_part(rest: data_pb2.Batch, id_size: int, id_bytes: int) -> Part:
    size = rest.rows * (rest.seq_len + 1) * id_bytes
    if id_size != size:
        raise ValueError(f"{id_size} bytes of ids, {size} are due for {rest.rows} rows")
    edge_ends = _array(rest.edge_ends, np.uint32, rest.rows, "edge_ends")
    weights = rest.loss_weights or np.ones(rest.rows, dtype="<f4").tobytes()
    if len(rest.row_digests) != 16 * rest.rows:
        raise ValueError(f"{len(rest.row_digests)} bytes of row digests for {rest.rows} rows")
    mask_ends = _array(rest.mask_ends, np.uint32, rest.rows, "mask_ends") if rest.masks else _NO_WORDS
    masks = _array(rest.masks, np.uint32, int(mask_ends[-1]) if mask_ends.size else 0, "masks")
    if masks.size:
        _check_masks(mask_ends, masks, rest.seq_len + 1)
    if len(rest.plan_hash) != 32 or len(rest.next_plan_hash) != 32:
        raise ValueError("its plan hashes are not 32 bytes each; is the server older than the client?")
    return Part(
        step=rest.step,
        segment=rest.segment,
        first_slot=rest.first_slot,
        rows=rest.rows,
        seq_len=rest.seq_len,
        shared=rest.shared,
        real_ids=_array(rest.real_ids, np.uint32, rest.rows, "real_ids"),
        domains=_array(rest.domains, np.uint32, rest.rows, "domains"),
        loss_weights=_array(weights, np.float32, rest.rows, "loss_weights"),
        edge_ends=edge_ends,
        edges=_array(rest.edges, np.uint32, int(edge_ends[-1]) if rest.rows else 0, "edges"),
        row_digests=rest.row_digests,
        plan_hash=rest.plan_hash,
        next_plan_hash=rest.next_plan_hash,
        domain_names=tuple(rest.domain_names),
        mask_ends=mask_ends,
        masks=masks,
    )


def _check_masks(ends: NDArray[np.uint32], masks: NDArray[np.uint32], columns: int) -> None:
    """Masks are pairs of offsets, begin below end, within their row."""
    pairs = masks.reshape(-1, 2) if masks.size % 2 == 0 else np.zeros((1, 2), np.uint32)
    odd = bool((ends % 2).any()) or bool((np.diff(ends.astype(np.int64)) < 0).any())
    if odd or (pairs[:, 0] >= pairs[:, 1]).any() or (pairs[:, 1] > columns).any():
        raise ValueError("its masks are no ranges of offsets in rows")


def _array(data: bytes, kind: Any, length: int, name: str) -> NDArray[Any]:
    if len(data) != 4 * length:
        raise ValueError(f"{name} has {len(data)} bytes, {4 * length} are due")
    return np.frombuffer(data, dtype=_LITTLE[kind]).astype(kind)


def _find(data: Bytes, begin: int, end: int, number: int) -> tuple[int, int, int]:
    """Offsets (tag, first byte, end) of the last `bytes` field of that number; (end, end, end) when there is none."""
    found = (end, end, end)
    for field_number, *place in _fields(data, begin, end):
        if field_number == number:
            found = (place[0], place[1], place[2])
    return found


def _fields(data: Bytes, begin: int, end: int) -> Iterator[tuple[int, int, int, int]]:
    """Number and offsets (tag, first byte, end) of each field with a length."""
    at = begin
    while at < end:
        tag = at
        key, at = _varint(data, at)
        kind = key & 7
        if kind == _BYTES:
            size, at = _varint(data, at)
            yield key >> 3, tag, at, at + size
            at += size
        elif kind == _VARINT:
            _, at = _varint(data, at)
        elif kind in (_FIXED64, _FIXED32):
            at += 8 if kind == _FIXED64 else 4
        else:
            raise ValueError(f"wire type {kind} at byte {tag}")
    if at != end:
        raise ValueError(f"a field ends at byte {at}, its message at {end}")


def _varint(data: Bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
        if shift > 63:
            raise ValueError(f"varint too long at byte {at}")
