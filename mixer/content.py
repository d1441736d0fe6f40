"""The tokenizer's share of a mixture: how much text each language gets, not how many tokens.

    content_i = weight_i * rate_i          rate: text a token carries (bytes, characters, or aligned lines, one unit
    for all)

Two languages with equal weights do not get equal text when the tokenizer cuts one of them finer. What holds: shares
sum to 1; each domain names the factor that leaves it short: its weight, its rate, or neither. Aligned lines are the
fair unit: a byte says less in some scripts than in others.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from headrace.mixer.simplex import normalise, numbers
from headrace.proto.errors import ConfigError, UsageError

# Within a tenth of the mean a factor is not called short.
SHORT = math.log(0.9)


@dataclass(frozen=True, kw_only=True, slots=True)
class Content:
    """A domain's weight, text a token, and share of all text; short: `weight`, `rate`, `both` or empty."""

    domain: str
    weight: float
    rate: float
    share: float
    short: str


def content(weights: Mapping[str, float], rates: Mapping[str, float]) -> tuple[Content, ...]:
    """One entry a domain, those with the least content first. Raises UsageError for a rate that is missing or 0."""
    parts, text = normalise(weights, place="content"), numbers(rates, place="content", what="rate")
    missing = [name for name in parts if not text.get(name)]
    if missing:
        raise UsageError(f"content: no rate above 0 for `{missing[0]}`; give the text a token of every domain")
    shares = normalise({name: weight * text[name] for name, weight in parts.items()}, place="content")
    positive = [name for name, weight in parts.items() if weight > 0]
    mean_weight = sum(math.log(parts[name]) for name in positive) / len(positive)
    mean_rate = sum(math.log(text[name]) for name in positive) / len(positive)
    entries = [
        Content(
            domain=name,
            weight=weight,
            rate=text[name],
            share=shares[name],
            short=_short(weight, text[name], mean_weight, mean_rate),
        )
        for name, weight in parts.items()
    ]
    return tuple(sorted(entries, key=lambda entry: (entry.share, entry.domain)))


def rates_of(reports: Mapping[str, Any], *, place: str) -> dict[str, float]:
    """Aligned lines a token by language, from the JSON of `headrace tokenizer eval` of one tokenizer.

    Raises ConfigError when it is none, or is of several tokenizers.
    """
    if len(reports) != 1:
        raise ConfigError(f"`{place}`: reports of {len(reports)} tokenizers; evaluate the one of the corpus alone")
    (report,) = reports.values()
    try:
        return {name: 1.0 / figures["tokens_per_line"] for name, figures in report["languages"].items()}
    except (KeyError, TypeError, AttributeError, ZeroDivisionError) as error:
        raise ConfigError(f"`{place}`: not a report of `headrace tokenizer eval --json`: {error!r}") from error


def _short(weight: float, rate: float, mean_weight: float, mean_rate: float) -> str:
    low_weight = weight == 0 or math.log(weight) - mean_weight < SHORT
    low_rate = math.log(rate) - mean_rate < SHORT
    if low_weight and low_rate:
        return "both"
    return "weight" if low_weight else "rate" if low_rate else ""


def correct(weights: Mapping[str, float], rates: Mapping[str, float]) -> dict[str, float]:
    """The token weights that give each domain the share of text that `weights` name: in proportion to weight / rate."""
    parts, text = normalise(weights, place="content"), numbers(rates, place="content", what="rate")
    missing = [name for name in parts if not text.get(name)]
    if missing:
        raise UsageError(f"content: no rate above 0 for `{missing[0]}`; give the text a token of every domain")
    return normalise({name: weight / text[name] for name, weight in parts.items()}, place="content")
