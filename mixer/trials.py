"""Measured mixtures: one proxy each, its held-out loss by domain, and what follows from a set of them.

    target loss = sum_i p*_i loss_i          p*: how much each domain matters, not the weights trained on

What holds: a trial is one JSON file, complete or absent, so that a sweep goes on where it stopped; trials of
different sizes, steps, seeds or held-out runs are never ranked together; the best measured mixture is always named
beside any predicted one.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from headrace.mixer.caps import Bounds, project
from headrace.mixer.files import parse_json, write_atomic
from headrace.mixer.simplex import Weights, normalise
from headrace.proto.errors import ConfigError, UsageError

SCHEMA = "headrace.trial/1"

# A measured loss is clearly better than a predicted one when it is lower by this part; weights that bounds move by
# less than this keep them.
CLEARLY, WITHIN = 0.005, 1e-6


@dataclass(frozen=True, kw_only=True, slots=True)
class Trial:
    """A proxy trained on `weights`: its mean held-out loss by domain, nats a token. setting: what must be equal for two
    trials to be compared (size, steps, seed, held-out run)."""

    name: str
    weights: Weights
    losses: Weights
    setting: Mapping[str, Any]
    flops: float
    seconds: float

    def __post_init__(self) -> None:
        bad = [name for name, loss in self.losses.items() if not (math.isfinite(loss) and loss >= 0)]
        if bad or not self.losses:
            raise UsageError(f"trial `{self.name}`: the held-out loss of `{bad[0] if bad else '?'}` is no finite loss")

    def target(self, importance: Mapping[str, float] | None = None) -> float:
        """The target-weighted held-out loss; every held-out domain matters alike when nothing is said."""
        parts = normalise(importance or dict.fromkeys(self.losses, 1.0), place="target")
        unknown = [name for name, part in parts.items() if part > 0 and name not in self.losses]
        if unknown:
            raise UsageError(f"target: `{unknown[0]}` has no held-out loss in trial `{self.name}`")
        return math.fsum(part * self.losses[name] for name, part in parts.items() if part > 0)

    def save(self, path: Path) -> None:
        """Write the JSON file durably."""
        write_atomic(path, (json.dumps({"schema": SCHEMA} | asdict(self), sort_keys=True, indent=2) + "\n").encode())


def load_trial(path: Path) -> Trial:
    """Read one file. Raises ConfigError."""
    try:
        document = parse_json(path.read_text(encoding="utf-8"))
        if document.pop("schema") != SCHEMA:
            raise ValueError(f"not of schema {SCHEMA}")
        return Trial(**document)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ConfigError(f"`{path}`: not a trial that can be read: {error}") from error


def load_trials(folder: Path) -> tuple[Trial, ...]:
    """All trials of a folder, by name. Raises ConfigError when there are none."""
    found = tuple(load_trial(path) for path in sorted(folder.glob("*.trial.json")))
    if not found:
        raise ConfigError(f"`{folder}`: no *.trial.json in it; `headrace mixer ablate` writes them")
    return found


def rank(trials: Sequence[Trial], importance: Mapping[str, float] | None = None) -> tuple[Trial, ...]:
    """Trials of one setting from the best target loss to the worst."""
    settings = {json.dumps(trial.setting, sort_keys=True) for trial in trials}
    if len(settings) > 1:
        raise UsageError("trials: they differ in size, steps, seed or held-out run; rank one setting at a time")
    return tuple(sorted(trials, key=lambda trial: (trial.target(importance), trial.name)))


def beside(
    trials: Sequence[Trial], predicted: float, bounds: Bounds, importance: Mapping[str, float] | None = None
) -> tuple[dict[str, Any], tuple[str, ...]]:
    """What to say of a mixture that trials predict: diagnostics that name the best measured one and what all have cost,
    and a warning when one that keeps the bounds was measured clearly better than this one is predicted to be."""
    ranked = rank(trials, importance)
    found = {
        "predicted_target": predicted,
        "best_measured": ranked[0].name,
        "best_measured_target": ranked[0].target(importance),
        "flops": sum(trial.flops for trial in trials),
        "seconds": sum(trial.seconds for trial in trials),
    }
    better = [trial for trial in ranked if trial.target(importance) < predicted * (1 - CLEARLY)]
    kept = next((trial for trial in better if _keeps(trial.weights, bounds)), None)
    if kept is None:
        return found, ()
    measured = kept.target(importance)
    return found, (
        f"`{kept.name}` was measured at a target loss of {measured:.4f}, better than the {predicted:.4f} predicted for "
        "this mixture: what was fitted does not hold here; take that one, or leave out trials that give "
        "a domain next to nothing, whose losses bend the fit",
    )


def _keeps(weights: Weights, bounds: Bounds) -> bool:
    """Whether the bounds leave the weights as they are."""
    try:
        return project(weights, bounds)[1].moved < WITHIN
    except UsageError:  # what is at 0 cannot take what the bounds take from others
        return False


def agreement(
    small: Sequence[Trial], large: Sequence[Trial], importance: Mapping[str, float] | None = None
) -> tuple[float, int]:
    """Rank correlation (Spearman) of two settings over the mixtures measured in both, and their number."""
    first, second = ({t.name: t.target(importance) for t in trials} for trials in (small, large))
    both = sorted(set(first) & set(second))
    if len(both) < 3:
        raise UsageError(f"trials: {len(both)} mixtures were measured in both settings; at least 3 are needed")
    ranks = [_ranks([losses[name] for name in both]) for losses in (first, second)]
    mean = (len(both) - 1) / 2
    left, right = ([value - mean for value in values] for values in ranks)
    scale = math.sqrt(sum(x * x for x in left) * sum(y * y for y in right))
    return (sum(x * y for x, y in zip(left, right, strict=True)) / scale if scale else 0.0), len(both)


def _ranks(values: Sequence[float]) -> list[float]:
    """Ranks from 0, ties sharing their mean."""
    return [
        sum(other < value for other in values) + (sum(other == value for other in values) - 1) / 2 for value in values
    ]
