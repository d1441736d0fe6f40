"""What a trainer measured over one step or a window of steps, by domain, and which of its values may be used.

Values are sums and token counts, so reports of ranks and steps add up and no result depends on how many ranks there
were. What holds: a value that is not finite, negative, without tokens, of an unknown domain, or beyond any possible
loss is left out by itself and named; a report that is not newer than the last one is left out whole. What is left is
safe to feed to any method.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

# Nats a token; a uniform guess over the largest vocabularies costs 13, so more than this is no cross-entropy.
LARGEST_LOSS = 100.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Measured:
    """A domain's sums over its labelled tokens: loss in nats, max(loss - reference, 0) where there is a reference."""

    loss: float
    tokens: int
    excess: float | None = None

    @property
    def mean_loss(self) -> float:
        """Nats a token."""
        return self.loss / self.tokens

    @property
    def mean_excess(self) -> float | None:
        """Nats a token above the reference, clamped by token before the sum; None without a reference."""
        return None if self.excess is None else self.excess / self.tokens


@dataclass(frozen=True, kw_only=True, slots=True)
class Report:
    """Measurements of the steps up to and including `step`."""

    step: int
    domains: Mapping[str, Measured] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """A JSON object; `from_json` reads it."""
        values = {name: [m.loss, m.tokens, m.excess] for name, m in self.domains.items()}
        return {"step": self.step, "domains": values}

    @staticmethod
    def from_json(document: Mapping[str, Any]) -> Report:
        """The report that `to_json` wrote."""
        values = {
            name: Measured(loss=loss, tokens=tokens, excess=excess)
            for name, (loss, tokens, excess) in document["domains"].items()
        }
        return Report(step=document["step"], domains=values)


@dataclass(frozen=True, kw_only=True, slots=True)
class Screened:
    """A report that holds only usable values, and why each other one was left out, by domain."""

    report: Report
    refused: Mapping[str, str]


def screen(report: Report, domains: Collection[str], *, after: int) -> Screened:
    """Leave out what must not be used. `after`: step of the last report that was used (-1: none)."""
    if report.step <= after:
        reason = f"step {report.step} is not after step {after}, which was reported already"
        return Screened(report=Report(step=report.step), refused=dict.fromkeys(report.domains, reason))
    reasons = {name: _fault(name, measured, domains) for name, measured in report.domains.items()}
    good = {name: measured for name, measured in report.domains.items() if not reasons[name]}
    return Screened(
        report=Report(step=report.step, domains=dict(sorted(good.items()))),
        refused={name: reason for name, reason in reasons.items() if reason},
    )


def _fault(name: str, measured: Measured, domains: Collection[str]) -> str:
    if name not in domains:
        return "unknown domain"
    if measured.tokens <= 0:
        return f"{measured.tokens} tokens"
    if not math.isfinite(measured.loss) or measured.loss < 0:
        return f"loss sum {measured.loss}"
    if measured.mean_loss > LARGEST_LOSS:
        return f"loss of {measured.mean_loss:.3g} nats a token"
    if measured.excess is not None and not (math.isfinite(measured.excess) and measured.excess >= 0):
        return f"excess sum {measured.excess}"
    return ""


def add(reports: Iterable[Report]) -> Report:
    """The sum of reports of ranks, or of a window of steps: exact for any grouping, up to rounding of float sums.

    Sums run over sorted values (`fsum`), so the order of arrival does not matter at all.
    """
    every = list(reports)
    names = sorted({name for report in every for name in report.domains})
    total = {name: _sum([report.domains[name] for report in every if name in report.domains]) for name in names}
    return Report(step=max(report.step for report in every), domains=total)


def _sum(values: list[Measured]) -> Measured:
    excesses = [value.excess for value in values if value.excess is not None]
    return Measured(
        loss=math.fsum(value.loss for value in values),
        tokens=sum(value.tokens for value in values),
        excess=math.fsum(excesses) if len(excesses) == len(values) else None,
    )
