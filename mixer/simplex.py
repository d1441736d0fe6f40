"""Weights by domain name: reading parts, normalising them, and the exponentials that make them.

What holds: every vector that leaves this file is keyed by name, sorted bytewise, finite, >= 0, and sums to 1 to float
precision; nothing is repaired silently, a part that is no number is refused by name. Exponentials run in log space.
What was given up: exact rationals; the server makes exact shares of the floats.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping

import numpy as np
import numpy.typing as npt
from headrace.proto.errors import UsageError

Weights = dict[str, float]
Vector = npt.NDArray[np.float64]

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,63}")


def check_name(name: object, *, place: str) -> str:
    """The domain name itself, or UsageError when it is none."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise UsageError(
            f"{place}: `{name}` is no domain name; use 1 to 64 of A-Z a-z 0-9 . _ + - and begin with a letter or digit"
        )
    return name


def names_of(keys: Iterable[str], *, place: str) -> tuple[str, ...]:
    """The names sorted bytewise; refuses an empty set."""
    names = tuple(sorted((check_name(name, place=place) for name in keys), key=str.encode))
    if not names:
        raise UsageError(f"{place}: no domain is named; name at least one")
    return names


def numbers(values: Mapping[str, object], *, place: str, what: str = "weight") -> Weights:
    """Finite numbers >= 0 by name, sorted; booleans, strings, null, NaN, infinities, negatives are refused by name."""
    checked: Weights = {}
    for name in names_of(values, place=place):
        value = values[name]
        if isinstance(value, bool) or not isinstance(value, int | float | np.integer | np.floating):
            raise UsageError(f"{place}: the {what} of `{name}` is {value!r}, not a number; write one such as 0.25")
        number = float(value)
        if not math.isfinite(number) or number < 0:
            raise UsageError(f"{place}: the {what} of `{name}` is {number}; it must be finite and not below 0")
        checked[name] = abs(number)  # -0.0 becomes 0.0
    return checked


def normalise(parts: Mapping[str, object], *, place: str) -> Weights:
    """The weights that any finite parts >= 0 stand for; they may sum to anything above 0, without overflow."""
    checked = numbers(parts, place=place)
    largest = max(checked.values())
    if largest == 0:
        raise UsageError(f"{place}: every weight is 0; give at least one domain a part above 0")
    scaled = {name: value / largest for name, value in checked.items()}
    total = math.fsum(scaled.values())
    return {name: value / total for name, value in scaled.items()}


def softmax(logits: Vector) -> Vector:
    """exp(x) / sum(exp(x)), shifted by the largest entry so that nothing overflows; -inf gives 0."""
    shifted = np.exp(logits - np.max(logits))
    result: Vector = shifted / shifted.sum()
    return result


def log_weights(weights: Vector) -> Vector:
    """Natural logarithm with log(0) = -inf and no warning: a domain of weight 0 stays at 0."""
    result: Vector = np.full(weights.shape, -np.inf)
    np.log(weights, out=result, where=weights > 0)
    return result


def named(names: Iterable[str], values: Vector) -> Weights:
    """A vector as a mapping by name."""
    return {name: float(value) for name, value in zip(names, values, strict=True)}


def vector(weights: Mapping[str, float], names: Iterable[str]) -> Vector:
    """A mapping as a vector in the order of `names`."""
    return np.array([weights[name] for name in names], dtype=np.float64)
