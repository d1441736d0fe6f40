"""Generator and permutation in plain Python: slow, short, no NumPy. The Rust core must give the same numbers."""

from __future__ import annotations

import functools

import blake3

MASK = (1 << 64) - 1
ROTATIONS = (16, 42, 12, 31, 16, 32, 24, 21)


def key(seed: int, purpose: str, number: int, name: str) -> tuple[int, int]:
    """BLAKE3 in key derivation mode over length-prefixed fields."""
    parts = [
        seed.to_bytes(8, "little"),
        len(purpose.encode()).to_bytes(8, "little"),
        purpose.encode(),
        number.to_bytes(8, "little"),
        len(name.encode()).to_bytes(8, "little"),
        name.encode(),
    ]
    digest = blake3.blake3(b"".join(parts), derive_key_context="headrace 2026 plan key v1").digest()
    return int.from_bytes(digest[:8], "little"), int.from_bytes(digest[8:16], "little")


def random_u64(a_key: tuple[int, int], counter: int) -> int:
    """First word of Threefry-2x64-20 of (counter, 0)."""
    return threefry(a_key, counter, 0)[0]


def threefry(a_key: tuple[int, int], high: int, low: int) -> tuple[int, int]:
    """Threefry-2x64 with 20 rounds."""
    schedule = (*a_key, 0x1BD11BDAA9FC1A22 ^ a_key[0] ^ a_key[1])
    x, y = (high + schedule[0]) & MASK, (low + schedule[1]) & MASK
    for number in range(20):
        x = (x + y) & MASK
        turn = ROTATIONS[number % 8]
        y = ((y << turn | y >> (64 - turn)) & MASK) ^ x
        if number % 4 == 3:
            injection = number // 4 + 1
            x = (x + schedule[injection % 3]) & MASK
            y = (y + schedule[(injection + 1) % 3] + injection) & MASK
    return x, y


def _mix(z: int) -> int:
    z = ((z ^ z >> 30) * 0xBF58476D1CE4E5B9) & MASK
    z = ((z ^ z >> 27) * 0x94D049BB133111EB) & MASK
    return z ^ z >> 31


@functools.cache
def round_keys(a_key: tuple[int, int]) -> list[int]:
    return [random_u64(a_key, number) for number in range(8)]


def permute(a_key: tuple[int, int], n: int, index: int) -> int:
    """Feistel with eight rounds on the smallest power of two that holds n (64 at least), walked until below n."""
    bits = max((n - 1).bit_length(), 6)
    low_bits = bits // 2
    low_mask, high_mask = (1 << low_bits) - 1, (1 << (bits - low_bits)) - 1
    keys = round_keys(a_key)
    value = index
    while True:
        low, high = value & low_mask, value >> low_bits
        for pair in range(0, 8, 2):
            low ^= _mix((high + keys[pair]) & MASK) & low_mask
            high ^= _mix((low + keys[pair + 1]) & MASK) & high_mask
        value = high << low_bits | low
        if value < n:
            return value
