"""A tokenizer on several parallel sets: what is fair on the news may not be on laws or on small talk.

    report = evaluate_domains(tokenizer, {"news": {"eng": lines, "swa": lines}, "law": {...}})
    report.domains["law"].gini, report.overall.gini

Each set is aligned in itself. `overall` pools the lines of the languages that every set has, so that each line counts
once; its languages are named when sets differ.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from headrace.proto.errors import UsageError
from headrace.tokenizer.evaluate import FairnessReport, evaluate
from headrace.tokenizer.tokenizer import Tokenizer

Lines = Mapping[str, Sequence[str]]


@dataclass(frozen=True, kw_only=True, slots=True)
class DomainsReport:
    """Reports by domain, and of all lines together; `left_out` are languages that some domain lacks."""

    domains: Mapping[str, FairnessReport]
    overall: FairnessReport
    left_out: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """The reports as plain values."""
        return {
            "domains": {name: report.to_json() for name, report in self.domains.items()},
            "overall": self.overall.to_json(),
            "left_out": list(self.left_out),
        }


def evaluate_domains(tokenizer: Tokenizer, sets: Mapping[str, Lines], *, threads: int | None = None) -> DomainsReport:
    """Measure a tokenizer on each set and on all; UsageError for a set that is not aligned, or nothing in common."""
    if not sets:
        raise UsageError("there is no parallel text to measure on; give at least one set of aligned lines")
    found = {}
    for domain, lines in sets.items():
        try:
            found[domain] = evaluate(tokenizer, lines, threads=threads)
        except UsageError as error:
            raise UsageError(f"in the parallel set `{domain}`: {error}") from None
    common = [name for name in next(iter(sets.values())) if all(name in lines for lines in sets.values())]
    if not common:
        raise UsageError(
            f"the parallel sets {', '.join(sets)} have no language in common, so there is no overall figure"
        )
    left_out = sorted({name for lines in sets.values() for name in lines} - set(common))
    if len(sets) == 1:
        return DomainsReport(domains=found, overall=next(iter(found.values())), left_out=())
    pooled = {name: [line for lines in sets.values() for line in lines[name]] for name in common}
    return DomainsReport(domains=found, overall=evaluate(tokenizer, pooled, threads=threads), left_out=tuple(left_out))
