"""The last table: what was asked for and what was served, from the server's own /metrics."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from urllib.request import urlopen

from headrace.client.cli.demo.configs import BATCH, SEQ_LEN
from headrace.client.cli.demo.console import table
from headrace.client.cli.demo.processes import DemoError
from prometheus_client.parser import text_string_to_metric_families


@dataclass(frozen=True, kw_only=True, slots=True)
class Scrape:
    """What /metrics says of one run, by domain."""

    target: Mapping[str, float]
    share: Mapping[str, float]
    epochs: Mapping[str, float]
    tokens: Mapping[str, float]


def scrape(address: str, run: str) -> Scrape:
    """Read `http://address/metrics`; DemoError when the run is not in it."""
    with urlopen(f"http://{address}/metrics", timeout=10) as answer:
        text = answer.read().decode()
    values: dict[str, dict[str, float]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            if sample.labels.get("run") == run and "domain" in sample.labels:
                values.setdefault(sample.name, {})[sample.labels["domain"]] = sample.value
    try:
        return Scrape(
            target=values["headrace_target_weight_ratio"],
            share=values["headrace_served_share_ratio"],
            epochs=values["headrace_domain_epochs"],
            tokens=values["headrace_served_tokens_total"],
        )
    except KeyError as missing:
        raise DemoError(f"http://{address}/metrics has no {missing} of run `{run}`") from None


def mean_target(
    before: Mapping[str, float], after: Mapping[str, float], *, swapped: int, steps: int
) -> dict[str, float]:
    """The target over the whole run: the old weights held for `swapped` of `steps` steps, the new ones for the rest."""
    part = swapped / steps
    return {name: part * before[name] + (1 - part) * after[name] for name in before}


def check_shares(target: Mapping[str, float], scraped: Scrape, *, windows: float) -> float:
    """The largest deviation of a domain from its target, in windows; DemoError when it is above `windows`."""
    total = sum(scraped.tokens.values())
    off = {name: abs(scraped.tokens[name] - part * total) / SEQ_LEN for name, part in target.items()}
    worst = max(off, key=lambda name: off[name])
    if off[worst] > windows:
        raise DemoError(f"domain `{worst}` is {off[worst]:.2f} windows from its target; at most {windows} are allowed")
    return off[worst]


def check_complete(scraped: Scrape, *, steps: int) -> None:
    """DemoError unless the tokens counted are those of all steps, windows with padding apart."""
    total, nominal = sum(scraped.tokens.values()), steps * BATCH * SEQ_LEN
    if not 0.95 * nominal < total <= nominal:
        raise DemoError(f"/metrics counts {total:.0f} tokens, and {steps} steps hold at most {nominal}")


def shares_table(target: Mapping[str, float], scraped: Scrape) -> str:
    """Domain, target share, realized share, epochs, tokens; the biggest target first."""
    rows = [
        [
            name,
            f"{target[name]:.4f}",
            f"{scraped.share[name]:.4f}",
            f"{scraped.epochs[name]:.2f}",
            f"{scraped.tokens[name]:,.0f}",
        ]
        for name in sorted(target, key=lambda name: (-target[name], name))
    ]
    return table(("domain", "target share", "realized share", "epochs", "tokens"), rows)
