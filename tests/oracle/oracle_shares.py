"""Weights to shares in plain Python: exact rationals, rounded where the plan says and nowhere else."""

from __future__ import annotations

from decimal import Decimal, getcontext
from fractions import Fraction


def largest_remainder(whole: int, sizes: list[int]) -> list[int]:
    """`whole` in proportion to sizes; what rounding leaves goes to the largest remainders, ties to the first."""
    total = sum(sizes)
    if total == 0:
        return [0] * len(sizes)
    exact = [Fraction(whole * size, total) for size in sizes]
    parts = [int(part) for part in exact]
    order = sorted(range(len(sizes)), key=lambda i: (int(exact[i]) - exact[i], i))
    for i in order[: whole - sum(parts)]:
        parts[i] += 1
    return parts


def parts(weights: dict[str, float], names: list[str]) -> list[int]:
    """Weights as parts of 2^62, rounded down."""
    exact = [Fraction(weights.get(name, 0)) for name in names]
    return [int(weight * 2**62 / sum(exact)) for weight in exact]


def shares(weight_parts: list[int], views: list[tuple[int, int, int]]) -> list[int]:
    """Shares of 2^32 from parts and views (windows, real tokens, seq_len): weight / fill by largest remainder."""
    corrected = [
        part * windows * seq_len // real if part else 0
        for part, (windows, real, seq_len) in zip(weight_parts, views, strict=True)
    ]
    return largest_remainder(2**32, corrected)


def gone(curve: str, offset: int, length: int) -> int:
    """How much of a ramp lies behind after `offset` of `length` steps, in units of 2^-32."""
    linear = min(offset, length) * 2**32 // length
    if curve == "linear":
        return linear
    cell, inside = divmod(linear, 2**24)
    if cell == 256:
        return 2**32
    low, high = half_cosine(cell), half_cosine(cell + 1)
    return low + (high - low) * inside // 2**24


def between(start: int, end: int, way: int) -> int:
    """Parts on the way from start to end."""
    return (start * (2**32 - way) + end * way) // 2**32


_COSINES: dict[int, int] = {}


def half_cosine(i: int) -> int:
    """round((1 - cos(pi i / 256)) / 2 * 2^32), by Decimal arithmetic."""
    if i not in _COSINES:
        getcontext().prec = 50
        x = _pi() * i / 256
        term = total = Decimal(1)
        for n in range(2, 80, 2):
            term = -term * x * x / (n * (n - 1))
            total += term
        _COSINES[i] = int(((1 - total) / 2 * 2**32).to_integral_value())
    return _COSINES[i]


def _pi() -> Decimal:
    """Machin's formula."""

    def arctan_of_inverse(x: int) -> Decimal:
        term = Decimal(1) / x
        total, n = term, 1
        while abs(term) > Decimal(10) ** -48:
            term = -term / (x * x)
            n += 2
            total += term / n
        return total

    return 4 * (4 * arctan_of_inverse(5) - arctan_of_inverse(239))
