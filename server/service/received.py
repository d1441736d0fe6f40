"""Compares what clients say they received with what was sent, row by row.

Digests of rows sent are kept for the newest steps of each run; for an older step, or one that another server sent, they
are made again from plan and corpus. A difference is counted and logged as an error: bytes changed between the two, or
one side counts wrongly. Serving goes on, since stopping a training job is the operator's decision.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Iterable

from headrace.proto.errors import UsageError
from headrace.proto.v1 import data_pb2 as pb
from headrace.server.service.handle import RunHandle
from headrace.server.service.logs import told
from headrace.server.service.metrics import Metrics
from headrace.server.service.rows import DIGEST_BYTES, StepRows, build_rows

logger = logging.getLogger("headrace.server")

_KEPT_BYTES = 32 << 20
# What an entry costs besides its digests, measured: most of it where ranks ask for a row at a time.
_ENTRY_BYTES = 256


class Received:
    """Digests sent, by (run id, step, first slot, rows), bounded by their bytes."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._sent: OrderedDict[tuple[str, int, int, int], bytes] = OrderedDict()
        self._bytes = 0

    def sent(self, run_id: str, built: StepRows) -> None:
        """Remembers the digests of rows that go out now."""
        key = (run_id, built.step, built.first_slot, built.rows)
        if key in self._sent:
            return
        self._sent[key] = built.digests
        self._bytes += _ENTRY_BYTES + len(built.digests)
        while self._bytes > _KEPT_BYTES:
            self._bytes -= _ENTRY_BYTES + len(self._sent.popitem(last=False)[1])

    async def compare(self, handle: RunHandle, label: str, received: Iterable[pb.RowsReceived]) -> None:
        """Counts and logs every row whose digest differs; `label` is the rank that says so."""
        for rows in received:
            count, rest = divmod(len(rows.row_digests), DIGEST_BYTES)
            if rest or not count:
                raise UsageError(f"row_digests of step {rows.step} has {len(rows.row_digests)} bytes, not 16 a row")
            sent = await self._digests(handle, rows.step, rows.first_slot, count)
            if sent != rows.row_digests:
                self._alarm(handle, label, rows, sent)

    async def _digests(self, handle: RunHandle, step: int, first_slot: int, count: int) -> bytes:
        known = self._sent.get((handle.view.run.id, step, first_slot, count))
        if known is not None:
            return known
        if step >= handle.view.run.seal:
            raise UsageError(f"step {step} is not sealed, so no row of it was ever sent; confirm steps received")
        built = await asyncio.to_thread(build_rows, handle.view.plan, handle.view.library, step, first_slot, count)
        return built.digests

    def _alarm(self, handle: RunHandle, label: str, rows: pb.RowsReceived, sent: bytes) -> None:
        width = DIGEST_BYTES
        starts = range(0, len(sent), width)
        bad = [
            at // width + rows.first_slot for at in starts if sent[at : at + width] != rows.row_digests[at : at + width]
        ]
        name = handle.view.run.name
        self._metrics.row_mismatch(name, len(bad))
        logger.error(
            "run %s: rank %s received other bytes than were sent in step %d, slots %s; check memory and network of "
            "that rank and compare with `headrace run digest %s --steps %d:%d`",
            name,
            label,
            rows.step,
            ", ".join(map(str, bad[:16])),
            name,
            rows.step,
            rows.step + 1,
            extra=told(
                "rows-received-wrong",
                run=name,
                step=rows.step,
                remedy="take the rank's node out and go back to a checkpoint from before the step",
                rank=label,
            ),
        )
