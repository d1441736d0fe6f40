"""From weights to integers. Nothing after this file sees a float.

A weight vector becomes *parts* of 2^62, each rounded down from the exact rational; the kernel corrects parts by fill
and makes *shares* of 2^32 from them by largest remainder, ties to the bytewise smallest name.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

PARTS = 1 << 62
SHARES = 1 << 32


def parts(weights: Mapping[str, float], domains: Iterable[str]) -> list[int]:
    """Parts of 2^62 in the order of `domains`; a domain without a weight has 0. Some weight must be above 0."""
    exact = {name: float(weight).as_integer_ratio() for name, weight in weights.items()}
    # Denominators of floats are powers of two, so the largest is common to all.
    common = max(bottom for _, bottom in exact.values())
    whole = {name: top * (common // bottom) for name, (top, bottom) in exact.items()}
    total = sum(whole.values())
    return [whole.get(name, 0) * PARTS // total for name in domains]
