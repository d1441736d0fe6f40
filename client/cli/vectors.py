"""Weight vectors on the command line: any finite parts of at least 0, normalised and shown back."""

from __future__ import annotations

import math
from collections.abc import Mapping

from headrace.proto.errors import UsageError


def vector_lines(parts: Mapping[str, float]) -> list[str]:
    """A weight vector for people."""
    width = max((len(name) for name in parts), default=0)
    return [f"  {name:<{width}}  {part:.6f}" for name, part in parts.items()]


def parse_parts(words: tuple[str, ...]) -> dict[str, float]:
    """Weights from `DOMAIN=PART` words, normalised: any finite parts >= 0. Raises UsageError naming the word."""
    parts: dict[str, float] = {}
    for word in words:
        name, equals, text = word.rpartition("=")
        if not equals or not name:
            raise UsageError(f"`{word}` is no weight; write DOMAIN=PART, such as deu=0.3")
        if name in parts:
            raise UsageError(f"domain `{name}` is named twice")
        try:
            parts[name] = float(text)
        except ValueError:
            raise UsageError(f"domain `{name}`: `{text}` is no number") from None
        if not math.isfinite(parts[name]) or parts[name] < 0:
            raise UsageError(f"domain `{name}`: a part must be finite and at least 0, not {text}")
    total = math.fsum(parts.values())
    if not 0 < total < math.inf:
        raise UsageError("the parts sum to nothing that can be divided; at least one domain needs a part above 0")
    return {name: part / total for name, part in parts.items()}
