"""Mixes of other loaders as weights of ours.

* MosaicML Streaming: streams with `proportion`, or with `repeat` and `choose` (samples an epoch). Every sample of its
  pretraining sets has one length, so parts of samples are parts of tokens. What it resamples each epoch our passes do
  without a boundary: a stream is never read twice before it was read once.
* Megatron-LM: the list of `--data-path`, weights and prefixes by turns, or prefixes alone, which it mixes by size.

Hugging Face's `interleave_datasets` has no list to convert: `first_exhausted` is a cap of 1 with `at_cap = "stop"` on
every domain; `all_exhausted` is no cap and as many tokens as the slowest domain needs, max(size / weight).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Any

from headrace.proto.errors import UsageError
from headrace.server.plan.spec import NAME
from headrace.server.plan.strict import finite, show


@dataclass(frozen=True, kw_only=True, slots=True)
class Mix:
    """Weights that sum to 1, and the samples of one epoch where the source says them."""

    weights: Mapping[str, float]
    samples: int | None = None

    def to_toml(self) -> str:
        """The line of a [[phase]]."""
        return "weights = { " + ", ".join(f'"{name}" = {weight!r}' for name, weight in self.weights.items()) + " }"


def from_mosaic(
    streams: Mapping[str, Mapping[str, Any]], sizes: Mapping[str, int], epoch_size: int | None = None
) -> Mix:
    """MosaicML streams, by domain name, with the samples that each one has.

    All have `proportion` (parts of `epoch_size`, by default all samples), or none has: then a stream gives `choose`
    samples an epoch, or `repeat` times its size, or its size. Raises UsageError for what MosaicML refuses too.
    """
    relative = {name for name, stream in streams.items() if "proportion" in stream}
    if not streams or (relative and relative != set(streams)):
        raise UsageError("either every stream has `proportion` or none has; MosaicML does not mix the two")
    for name in streams:
        if name not in sizes:
            raise UsageError(f"the number of samples of stream `{name}` is not given")
    if relative:
        parts = {name: _part(name, "proportion", stream["proportion"]) for name, stream in streams.items()}
        return Mix(
            weights=_normal(parts), samples=sum(sizes[name] for name in streams) if epoch_size is None else epoch_size
        )
    chosen = {name: _chosen(name, stream, sizes[name]) for name, stream in streams.items()}
    return Mix(weights=_normal(chosen), samples=sum(int(count) for count in chosen.values()))


def _chosen(name: str, stream: Mapping[str, Any], size: int) -> Fraction:
    """Samples that a stream gives each epoch."""
    if "repeat" in stream and "choose" in stream:
        raise UsageError(f"stream `{name}` has both `repeat` and `choose`; it can have one")
    if "choose" in stream:
        return _part(name, "choose", stream["choose"])
    return Fraction(int(_part(name, "repeat", stream.get("repeat", 1)) * size))


def from_megatron(items: Sequence[str], tokens: Mapping[str, int] | None = None) -> Mix:
    """Megatron's blend list: "30 data/web_text_document 70 data/code_text_document", split at blanks.

    A domain is named by the last part of its prefix, without `_text_document`. Prefixes alone are mixed by size, for
    which `tokens` (by domain) must be given.
    """
    weighted = len(items) % 2 == 0 and bool(items) and all(_number(item) is not None for item in items[::2])
    prefixes = items[1::2] if weighted else items
    names = [_domain(prefix) for prefix in prefixes]
    if not names or len(set(names)) != len(names):
        raise UsageError(f"a blend needs prefixes that give different names, not {', '.join(names) or 'none'}")
    if weighted:
        parts = {name: _part(name, "weight", Decimal(item)) for name, item in zip(names, items[::2], strict=True)}
        return Mix(weights=_normal(parts))
    missing = [name for name in names if name not in (tokens or {})]
    if missing:
        raise UsageError(f"a blend without weights is mixed by size, and that of {', '.join(missing)} is not given")
    return Mix(weights=_normal({name: Fraction((tokens or {})[name]) for name in names}))


def _domain(prefix: str) -> str:
    name = re.sub(r"_(text|content)_(document|sentence)$", "", prefix.rstrip("/").rpartition("/")[2])
    if not NAME.fullmatch(name):
        raise UsageError(f"prefix `{prefix}` gives no domain name: `{name}`")
    return name


def _number(item: str) -> Decimal | None:
    try:
        return finite(Decimal(item))
    except ArithmeticError:
        return None


def _part(name: str, what: str, value: object) -> Fraction:
    number = finite(value)
    if number is None or number < 0:
        raise UsageError(f"`{what}` of `{name}` must be a finite number of at least 0, not {show(value)}")
    return Fraction(number)


def _normal(parts: Mapping[str, Fraction]) -> dict[str, float]:
    total = sum(parts.values())
    if total == 0:
        raise UsageError("some domain must have a part above 0")
    return {name: float(part / total) for name, part in parts.items()}
