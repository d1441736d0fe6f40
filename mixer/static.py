"""Mixing rules that need no model: uniform, natural, temperature, UniMax, target epochs, manual.

Each is a function from names and token counts to weights. Weights are parts of tokens, never of documents: equal
document weights with mean lengths 1k, 5k and 50k are token weights 0.018, 0.089 and 0.893.

What holds: powers run in log space; what UniMax cannot spend within its epochs is returned as a shortfall, not
hidden by normalising. What was given up: nothing of the published rules.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
from headrace.mixer.epochs import check_budget, sizes_of
from headrace.mixer.simplex import Weights, named, names_of, normalise, numbers, softmax, vector
from headrace.proto.errors import UsageError


def uniform(domains: Iterable[str]) -> Weights:
    """1 / k for each of k domains."""
    names = names_of(domains, place="uniform")
    return dict.fromkeys(names, 1.0 / len(names))


def natural(tokens: Mapping[str, float]) -> Weights:
    """In proportion to the token counts."""
    return normalise(sizes_of(tokens, place="natural"), place="natural")


def temperature(tokens: Mapping[str, float], t: float) -> Weights:
    """In proportion to tokens^(1/t): 1 is natural, larger is flatter (mT5 and XLM-R: 1/t = 0.3)."""
    if not (math.isfinite(t) and t > 0):
        raise UsageError(f"temperature: it is {t}; it must be finite and above 0 (1 is natural, larger is flatter)")
    sizes = sizes_of(tokens, place="temperature")
    return named(sizes, softmax(np.log(vector(sizes, sizes)) / t))


@dataclass(frozen=True, kw_only=True, slots=True)
class UniMax:
    """Weights, and how many tokens of the budget no domain may take within its epochs."""

    weights: Weights
    shortfall: float


def unimax(tokens: Mapping[str, float], budget: float, epochs: float) -> UniMax:
    """As uniform as `epochs` allow: from the smallest domain up, an even part of the rest or epochs * tokens.

    Chung et al., "UniMax", ICLR 2023, arXiv 2304.09151. The weights are parts of what can be spent.
    """
    sizes = sizes_of(tokens, place="unimax")
    if not (math.isfinite(epochs) and epochs > 0):
        raise UsageError(f"unimax: epochs is {epochs}; it must be finite and above 0")
    rest, given = check_budget(budget, place="unimax"), dict.fromkeys(sizes, 0.0)
    order = sorted(sizes, key=lambda name: (sizes[name], name.encode()))
    for place, name in enumerate(order):
        given[name] = min(rest / (len(order) - place), epochs * sizes[name])
        rest -= given[name]
    shortfall = rest if rest > 1e-12 * budget else 0.0
    return UniMax(weights=normalise(given, place="unimax"), shortfall=shortfall)


@dataclass(frozen=True, kw_only=True, slots=True)
class FromEpochs:
    """Weights from target epochs; realized epochs are scale * target, because weights must spend the budget exactly."""

    weights: Weights
    realized: Weights
    scale: float


def from_epochs(tokens: Mapping[str, float], target: Mapping[str, float], budget: float) -> FromEpochs:
    """In proportion to tokens * target epochs. A scale below 1 says that the budget is short of the targets."""
    sizes, wanted = sizes_of(tokens, place="epochs"), numbers(target, place="epochs", what="target")
    if set(sizes) != set(wanted):
        odd = sorted(set(sizes) ^ set(wanted))
        raise UsageError(
            f"epochs: `{odd[0]}` has a token count or a target but not both; name the same domains in both"
        )
    asked = {name: sizes[name] * wanted[name] for name in sizes}
    weights = normalise(asked, place="epochs")
    scale = check_budget(budget, place="epochs") / math.fsum(asked.values())
    return FromEpochs(weights=weights, realized={name: scale * wanted[name] for name in sizes}, scale=scale)


def manual(parts: Mapping[str, object]) -> Weights:
    """Weights as someone wrote them: any finite parts >= 0, normalised."""
    return normalise(parts, place="manual weights")


def document_weights(parts: Mapping[str, float], mean_tokens: Mapping[str, float]) -> Weights:
    """Token weights that document weights stand for: in proportion to part * mean tokens a document."""
    shares, lengths = normalise(parts, place="document weights"), sizes_of(mean_tokens, place="document weights")
    if set(shares) != set(lengths):
        odd = sorted(set(shares) ^ set(lengths))
        raise UsageError(f"document weights: `{odd[0]}` lacks a part or a mean length; name the same domains in both")
    return normalise({name: shares[name] * lengths[name] for name in shares}, place="document weights")
