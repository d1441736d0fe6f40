"""A manual grid of candidate mixtures: some domains take each of the weights named, the others share the rest.

    grid({"web": 8, "code": 1, "math": 1}, {"code": [0.1, 0.3], "math": [0.05]})   -> two mixtures

What holds: every candidate sums to 1, the domains not named keep their proportions to each other, names say what was
set; a combination that leaves the others less than nothing is refused by name, not dropped.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence

from headrace.mixer.simplex import Weights, normalise, numbers
from headrace.proto.errors import UsageError

LARGEST_GRID = 1000


def grid(base: Mapping[str, float], axes: Mapping[str, Sequence[float]]) -> dict[str, Weights]:
    """Mixtures by name, such as `code-0.1+math-0.05`. Raises UsageError naming the axis or combination at fault."""
    start = normalise(base, place="grid")
    unknown = sorted(set(axes) - set(start))
    if unknown or not axes:
        named = f"`{unknown[0]}`" if unknown else "no domain"
        raise UsageError(f"grid: {named} is to be varied, the base mixture names {', '.join(start)}")
    steps = [len(values) for values in axes.values()]
    if not 1 <= math.prod(steps) <= LARGEST_GRID:
        raise UsageError(f"grid: {math.prod(steps)} mixtures; there must be from 1 to {LARGEST_GRID}")
    return dict(_candidate(start, dict(zip(axes, values, strict=True))) for values in itertools.product(*axes.values()))


def _candidate(base: Weights, chosen: Mapping[str, float]) -> tuple[str, Weights]:
    name = "+".join(f"{domain}-{weight:g}" for domain, weight in chosen.items())
    fixed = numbers(chosen, place=f"grid `{name}`")
    others = {domain: weight for domain, weight in base.items() if domain not in fixed}
    rest, room = sum(others.values()), 1.0 - sum(fixed.values())
    if room < -1e-9 or (room > 1e-9 and rest == 0):
        left = "more than the whole" if room < 0 else f"{room:g} that no other domain of the base mixture takes"
        raise UsageError(f"grid: `{name}` leaves {left}; change the weights or the base")
    scale = max(room, 0.0) / rest if rest else 0.0
    return name, normalise(fixed | {domain: weight * scale for domain, weight in others.items()}, place="grid")
