"""Digests that were sent are remembered for as long as there is room, and no longer."""

from __future__ import annotations

import tracemalloc

from headrace.server.service.metrics import Metrics
from headrace.server.service.received import Received
from headrace.server.service.rows import StepRows

BOUND = 32 << 20


def test_ranks_that_ask_for_a_row_at_a_time_cost_no_more_memory() -> None:
    received = Received(Metrics("0"))
    nothing = dict.fromkeys(("ids", "domains", "edge_ends", "edges", "real_ids", "loss_weights"), b"")
    tracemalloc.start()
    try:
        for number in range(250_000):
            digests = number.to_bytes(16, "little")
            step, slot = divmod(number + (1 << 20), 1 << 10)
            received.sent("run", StepRows(step=step, first_slot=slot, rows=1, seq_len=1, digests=digests, **nothing))
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert BOUND / 2 < held < 1.3 * BOUND
