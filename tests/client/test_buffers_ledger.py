"""Buffers are used again exactly when nobody refers to them; confirmations lose nothing when calls fail."""

from __future__ import annotations

import gc
import random
from collections.abc import Callable

import numpy as np
import pytest
import torch
from headrace.client.buffers import Buffer, Pool, plain_buffer
from headrace.client.ledger import Ledger


def test_a_buffer_is_used_again_once_it_is_let_go() -> None:
    pool = Pool(keep=4)
    first = pool.take(64)
    address = first.ctypes.data
    assert pool.take(64).ctypes.data != address
    del first
    assert pool.take(64).ctypes.data == address


HOLDS = {
    "view": lambda buffer: buffer[3:5],
    "array of another type": lambda buffer: buffer.view(np.uint16).reshape(4, -1)[1:],
    "tensor": lambda buffer: torch.from_numpy(buffer),
    "view of a tensor": lambda buffer: torch.from_numpy(buffer.view(np.uint16)).view(torch.int16)[::2],
    "memoryview": lambda buffer: memoryview(buffer)[2:],
}


def of_torch(size: int) -> Buffer:
    """Pinned memory is torch's: an array over a tensor."""
    return torch.empty(size, dtype=torch.uint8).numpy()


@pytest.mark.parametrize("make", [plain_buffer, of_torch])
@pytest.mark.parametrize("hold", HOLDS.values(), ids=HOLDS.keys())
def test_whatever_refers_to_a_buffer_keeps_it(hold: object, make: Callable[[int], Buffer]) -> None:
    pool = Pool(keep=4, make=make)
    buffer = pool.take(64)
    address = buffer.ctypes.data
    held = hold(buffer)  # type: ignore[operator]
    del buffer
    gc.collect()
    assert all(pool.take(64).ctypes.data != address for _ in range(3))
    del held
    assert pool.take(64).ctypes.data == address


def test_a_pool_keeps_a_bounded_number_of_one_size() -> None:
    pool = Pool(keep=3)
    held = [pool.take(64) for _ in range(10)]
    assert len({buffer.ctypes.data for buffer in held}) == 10
    del held
    pool.take(128)
    assert len(pool._buffers) == 1


def test_confirmations_survive_failed_calls() -> None:
    seed = random.randrange(2**32)
    chance = random.Random(seed)
    ledger = Ledger(0, told=0)
    heard: dict[tuple[int, int], bytes] = {}
    confirmed = 0
    flying = []
    for step in range(300):
        rows = chance.choice([1, 100, 7_000])
        ledger.take(step, [(0, bytes([step % 251]) * 16 * rows), (rows, b"x" * 16)])
        for _ in range(chance.randrange(3)):
            flying.append(ledger.next(always=chance.random() < 0.3))
        chance.shuffle(flying)
        while len(flying) > 3:
            confirmation = flying.pop()
            if confirmation is None:
                continue
            assert confirmation.ByteSize() < 200_000, seed
            if chance.random() < 0.4:
                ledger.failed(confirmation)
                continue
            ledger.done(confirmation)
            confirmed = max(confirmed, confirmation.next_step)
            heard |= {(item.step, item.first_slot): item.row_digests for item in confirmation.received}
    for confirmation in flying:
        ledger.failed(confirmation)
    while ledger.behind:
        confirmation = ledger.next()
        assert confirmation is not None
        ledger.done(confirmation)
        confirmed = max(confirmed, confirmation.next_step)
        heard |= {(item.step, item.first_slot): item.row_digests for item in confirmation.received}
    assert confirmed == 300, seed
    assert {step for step, _ in heard} == set(range(300)), seed
    assert ledger.next() is None
