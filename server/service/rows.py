"""Builds the rows of a step from plan and corpus, and the bytes of the answer.

The ids are gathered once, for the whole step when it is sealed, and copied once more into each message: all else is
encoded by protobuf and they are put behind it by hand (fields may stand in any order), because protobuf's own encoder
would copy them twice more.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from headrace.native import row_digests
from headrace.proto.errors import UsageError
from headrace.proto.v1 import data_pb2
from headrace.server.plan.answers import Draw
from headrace.server.plan.plan import Plan
from headrace.server.plan.whole import NO_WINDOW
from headrace.server.service.library import Library
from headrace.server.service.masked import emptied
from headrace.server.service.view import View

_BATCH = data_pb2.GetBatchResponse.BATCH_FIELD_NUMBER
_MORE = data_pb2.GetBatchResponse.MORE_FIELD_NUMBER
_IDS = data_pb2.Batch.TOKEN_IDS_FIELD_NUMBER
DIGEST_BYTES = 16
Answer = tuple[bytes | memoryview, ...]
"""A `GetBatchResponse` on the wire, in pieces that are put together once, whatever it travels with."""
_ONE = np.ones(1, dtype="<f4").tobytes()
_U4 = np.dtype("<u4")


@dataclass(frozen=True, kw_only=True, slots=True)
class StepRows:
    """Rows [first_slot, first_slot + rows) of a step as they are served; arrays are little-endian."""

    step: int
    first_slot: int
    rows: int
    seq_len: int
    ids: bytes | memoryview
    domains: bytes
    edge_ends: bytes
    edges: bytes
    real_ids: bytes
    loss_weights: bytes
    digests: bytes
    mask_ends: bytes = b""
    masks: bytes = b""

    @property
    def size(self) -> int:
        """Bytes held, nearly all of them ids."""
        return len(self.ids) + len(self.edges) + len(self.masks) + (24 + DIGEST_BYTES) * self.rows


@lru_cache(maxsize=64)
def _draw(plan: Plan, step: int) -> Draw:
    return plan.draw(step)


def build_rows(plan: Plan, library: Library, step: int, first_slot: int, rows: int) -> StepRows:
    """The rows asked for. Raises UsageError for slots that the step does not have, DataLossError for bad bytes."""
    shape = plan.shape(step)
    if rows < 1 or first_slot + rows > shape.batch:
        raise UsageError(
            f"step {step} has slots 0 to {shape.batch - 1}, slots {first_slot} to {first_slot + rows - 1} were asked "
            f"for; ask within the batch of the step"
        )
    draw = _draw(plan, step)
    chosen = slice(first_slot, first_slot + rows)
    names = list(plan.domains)
    domains = np.ascontiguousarray(draw.domains[chosen])
    weights = np.array(draw.loss_weights[chosen], dtype=np.float32)  # a copy: masks may change it
    read = library.read(plan, shape, domains, np.ascontiguousarray(draw.windows[chosen]), plan.masks(step))
    weights[emptied(read.real_ids, read.mask_ends, read.masks)] = 0.0
    weights[draw.windows[chosen] == np.uint64(NO_WINDOW)] = 0.0
    row_bytes = (shape.seq_len + 1) * library.base.id_bytes
    return StepRows(
        step=step,
        first_slot=first_slot,
        rows=rows,
        seq_len=shape.seq_len,
        ids=read.ids,
        domains=_little(domains, "<u4"),
        edge_ends=_little(read.edge_ends, "<u4"),
        edges=_little(read.edges, "<u4"),
        real_ids=_little(read.real_ids, "<u4"),
        loss_weights=b"" if bool((weights == 1.0).all()) else _little(weights, "<f4"),
        digests=row_digests(
            read.ids, row_bytes, read.edge_ends, read.edges, names, domains, weights, read.mask_ends, read.masks
        ),
        mask_ends=_little(read.mask_ends, "<u4") if read.masks.size else b"",
        masks=_little(read.masks, "<u4"),
    )


def slice_rows(whole: StepRows, first_slot: int, rows: int) -> StepRows:
    """Some rows of a step that is built whole: what `build_rows` makes of them, with the ids left where they are."""
    begin, end = first_slot - whole.first_slot, first_slot - whole.first_slot + rows
    width = len(whole.ids) // whole.rows
    edge_ends, edges = _slice(whole.edge_ends, whole.edges, begin, end)
    mask_ends, masks = _slice(whole.mask_ends, whole.masks, begin, end) if whole.masks else (b"", b"")
    weights = whole.loss_weights[4 * begin : 4 * end]
    return StepRows(
        step=whole.step,
        first_slot=first_slot,
        rows=rows,
        seq_len=whole.seq_len,
        ids=memoryview(whole.ids)[begin * width : end * width],
        domains=whole.domains[4 * begin : 4 * end],
        edge_ends=edge_ends,
        edges=edges,
        real_ids=whole.real_ids[4 * begin : 4 * end],
        loss_weights=b"" if weights == _ONE * rows else weights,
        digests=whole.digests[DIGEST_BYTES * begin : DIGEST_BYTES * end],
        mask_ends=mask_ends if masks else b"",
        masks=masks,
    )


def _slice(ends: bytes, values: bytes, begin: int, end: int) -> tuple[bytes, bytes]:
    """Ends and values of rows [begin, end), of which there is one at least."""
    before = int.from_bytes(ends[4 * begin - 4 : 4 * begin], "little") if begin else 0
    last = int.from_bytes(ends[4 * end - 4 : 4 * end], "little")
    chosen = np.frombuffer(ends, _U4, end - begin, 4 * begin)
    return (chosen - np.uint32(before)).tobytes(), values[4 * before : 4 * last]


def _little(values: np.ndarray[tuple[int], np.dtype[np.generic]], kind: str) -> bytes:
    return values.astype(kind, copy=False).tobytes()


def encode_answer(view: View, built: StepRows, *, seal: int, confirmed: int, shared: bool = False) -> Answer:
    """A `GetBatchResponse` with these rows as it is on the wire; it lists the domains of a run whose have grown.

    Ids that are `shared` lie in memory that the client has mapped, and are left out.
    """
    plan = view.plan
    segment, plan_hash, next_plan_hash = _facts(plan, built.step)
    has_new = len(plan.domains) > len(view.library.base.domains)
    batch = data_pb2.Batch(
        step=built.step,
        segment=segment,
        first_slot=built.first_slot,
        rows=built.rows,
        seq_len=built.seq_len,
        domains=built.domains,
        edge_ends=built.edge_ends,
        edges=built.edges,
        loss_weights=built.loss_weights,
        row_digests=built.digests,
        plan_hash=plan_hash,
        next_plan_hash=next_plan_hash,
        real_ids=built.real_ids,
        mask_ends=built.mask_ends,
        masks=built.masks,
        domain_names=plan.domains if has_new else (),
        shared=shared,
    ).SerializeToString()
    ids = (_length_prefix(_IDS, len(built.ids)), built.ids) if built.ids and not shared else ()
    size = len(batch) + sum(map(len, ids))
    return (_around(seal, confirmed), _length_prefix(_BATCH, size), batch, *ids)


@lru_cache(maxsize=256)
def _facts(plan: Plan, step: int) -> tuple[int, bytes, bytes]:
    """Segment, and plan hashes at the step and at the next."""
    return plan.segment(step), plan.hash(step), plan.hash(step + 1)


@lru_cache(maxsize=64)
def _around(seal: int, confirmed: int) -> bytes:
    return data_pb2.GetBatchResponse(seal=seal, confirmed=confirmed).SerializeToString()


def pack(answers: Sequence[Answer]) -> bytes:
    """One message with these answers, all behind the first in its `more`; the only copy of the ids made here."""
    parts = list(answers[0])
    for answer in answers[1:]:
        parts.append(_length_prefix(_MORE, sum(map(len, answer))))
        parts.extend(answer)
    return b"".join(parts)


@lru_cache(maxsize=1 << 14)
def _length_prefix(field: int, length: int) -> bytes:
    """Tag and length of a length-delimited protobuf field."""
    return _varint(field << 3 | 2) + _varint(length)


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)
