"""Arithmetic of epochs: what a mixture reads of each domain, when data runs out, and what repeating it is worth.

epochs_i = budget * w_i / tokens_i. Budget and tokens are in one unit, any unit. Source of the repetition law:
Muennighoff et al., "Scaling Data-Constrained Language Models", 2023, with the authors' fitted constants, on English
web text only.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from headrace.mixer.simplex import Weights, normalise, numbers
from headrace.proto.errors import UsageError

# Fitted by Muennighoff et al.: half-lives of repeated data and of excess parameters, and the loss law.
REPEAT_DATA = 15.387756
REPEAT_PARAMETERS = 5.309743
LOG_A, LOG_B, LOG_E, EXPONENT = 6.255414, 7.3049974, 0.6254804, 0.3526596


def sizes_of(tokens: Mapping[str, float], *, place: str) -> Weights:
    """Checked token counts, all above 0."""
    sizes = numbers(tokens, place=place, what="token count")
    empty = [name for name, size in sizes.items() if size == 0]
    if empty:
        raise UsageError(f"{place}: `{empty[0]}` has no tokens; leave it out or build its corpus")
    return sizes


def check_budget(budget: float, *, place: str) -> float:
    """A budget in tokens that is finite and above 0."""
    if not (math.isfinite(budget) and budget > 0):
        raise UsageError(f"{place}: the budget is {budget} tokens; it must be finite and above 0")
    return float(budget)


def epochs(weights: Mapping[str, float], tokens: Mapping[str, float], budget: float) -> Weights:
    """How often each domain is read when `budget` tokens are trained at these weights."""
    sizes = sizes_of(tokens, place="epochs")
    shares = normalise(weights, place="epochs")
    missing = sorted(set(shares) - set(sizes))
    if missing:
        raise UsageError(f"epochs: no token count for `{missing[0]}`; the counts name {', '.join(sizes)}")
    return {name: check_budget(budget, place="epochs") * share / sizes[name] for name, share in shares.items()}


def schedule_epochs(phases: Iterable[tuple[Mapping[str, float], float]], tokens: Mapping[str, float]) -> Weights:
    """Epochs over a whole schedule of (weights, tokens of the phase): an anneal re-reads what the bulk has read."""
    total = dict.fromkeys(sizes_of(tokens, place="epochs"), 0.0)
    for weights, budget in phases:
        for name, count in epochs(weights, tokens, budget).items():
            total[name] += count
    return total


def first_exhausted(weights: Mapping[str, float], tokens: Mapping[str, float]) -> float:
    """Tokens trained when the first domain of weight > 0 has been read once."""
    return 1.0 / max(epochs(weights, tokens, 1.0).values())


def all_exhausted(weights: Mapping[str, float], tokens: Mapping[str, float]) -> float:
    """Tokens trained when the last domain of weight > 0 has been read once."""
    return 1.0 / min(rate for rate in epochs(weights, tokens, 1.0).values() if rate > 0)


def effective_tokens(unique: float, count: float) -> float:
    """Unique tokens that `count` epochs over `unique` tokens are worth: U + U R* (1 - exp(-R / R*)), R = epochs - 1."""
    if count <= 1:
        return unique * count
    return unique + unique * REPEAT_DATA * -math.expm1(-(count - 1.0) / REPEAT_DATA)


def predicted_loss(parameters: float, trained: float, unique: float) -> float:
    """Loss (nats a token) of a model of `parameters` trained on `trained` tokens of which `unique` are different."""
    data = effective_tokens(min(unique, trained), trained / min(unique, trained))
    optimal = math.exp((LOG_A - LOG_B) / EXPONENT) * min(unique, trained)
    base = min(optimal, parameters)
    excess = max(parameters / base - 1.0, 0.0)
    size: float = base + base * REPEAT_PARAMETERS * -math.expm1(-excess / REPEAT_PARAMETERS)
    return math.exp(LOG_E) + math.exp(LOG_A - EXPONENT * math.log(size)) + math.exp(LOG_B - EXPONENT * math.log(data))
