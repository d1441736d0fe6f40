"""DoReMi in rounds: each round's reference trains on the average weights of the round before (Xie et al., section 3).

The first reference has the weights of its own run (token shares, as published, or equal ones, which want more rounds).
What holds: a round that is there is not trained again; the rounds end when no weight moved by `tolerance` any more
(published: 1e-3, after three rounds), and the result says what each round said. What was given up: a reference that
starts from the last one's weights; every round trains anew, as published.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from headrace.mixer.proxy.learned import doremi_weights
from headrace.mixer.result import Mixture
from headrace.mixer.simplex import Weights
from headrace.proto.errors import UsageError

TOLERANCE = 1e-3


def doremi_rounds(
    endpoint: str | Sequence[str],
    *,
    reference_run: str,
    make_reference: Callable[[int, Weights], str],
    run: str,
    folder: Path,
    rounds: int,
    tolerance: float = TOLERANCE,
    **details: Any,
) -> Mixture:
    """The mixture of the last round, `mixture.json` in `folder`; of several, each has a folder of its own below it.

    make_reference: makes a run of round n's reference at the weights and returns its name; details: of
    `doremi_weights`. Raises UsageError for less than one round.
    """
    if rounds < 1 or not tolerance >= 0:
        raise UsageError(f"doremi: {rounds} rounds to a tolerance of {tolerance}: at least 1 and 0 are needed")
    if rounds == 1:
        return doremi_weights(endpoint, reference_run=reference_run, run=run, folder=folder, **details)
    found: list[Mixture] = []
    for number in range(rounds):
        reference = make_reference(number, dict(found[-1].raw)) if found else reference_run
        where = folder / f"round-{number}"
        found.append(doremi_weights(endpoint, reference_run=reference, run=run, folder=where, **details))
        if len(found) > 1 and largest_move(found[-2].raw, found[-1].raw) < tolerance:
            break
    mixture = _joined(found, tolerance)
    mixture.save(folder / "mixture.json")
    seconds = sum(float((folder / f"round-{n}" / "seconds.txt").read_text()) for n in range(len(found)))
    (folder / "seconds.txt").write_text(f"{seconds:.1f}\n", encoding="utf-8")
    return mixture


def largest_move(old: Mapping[str, float], new: Mapping[str, float]) -> float:
    """The largest change of any weight."""
    return max(abs(new[name] - old[name]) for name in new)


def _joined(found: Sequence[Mixture], tolerance: float) -> Mixture:
    """The last round's mixture, with what all of them said and cost."""
    moves = [largest_move(old.raw, new.raw) for old, new in itertools.pairwise(found)]
    settled = bool(moves) and moves[-1] < tolerance
    unsettled = f"after {len(found)} rounds a weight still moved by {moves[-1]:.4f}" if moves and not settled else ""
    last = found[-1]
    return dataclasses.replace(
        last,
        parameters=dict(last.parameters) | {"rounds": len(found), "tolerance": tolerance},
        diagnostics=dict(last.diagnostics)
        | {
            "rounds": [dict(each.raw) for each in found],
            "largest_moves": moves,
            "flops": sum(_flops(each) for each in found),
        },
        warnings=(*last.warnings, unsettled) if unsettled else last.warnings,
    )


def _flops(mixture: Mixture) -> float:
    value = mixture.diagnostics["flops"]
    assert isinstance(value, int | float)
    return float(value)
