"""A forecast as lines for a terminal."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from headrace.server.plan.forecast import DomainForecast, Forecast


def forecast_lines(forecast: Forecast) -> list[str]:
    """The table of domains, the table of phases, and what to look at."""
    domains = forecast.domains
    lines = [
        f"run {forecast.run}: {forecast.end} steps, {short(forecast.tokens)} tokens; ends: {forecast.end_reason}",
        "",
    ]
    head = ("domain", "size", "tokens", "epochs", "worth", "wraps at", "cap at", "ahead", "behind")
    lines += _table([head, *(_row(domain) for domain in domains)])
    tokens = {d.name: [*(short(phase.tokens[d.name]) for phase in forecast.phases), short(d.tokens)] for d in domains}
    epochs = {
        d.name: [*(f"{phase.epochs[d.name]:.3f}" for phase in forecast.phases), f"{d.epochs:.3f}"] for d in domains
    }
    columns = ("domain", *(f"{phase.name} [{phase.first}, {phase.end})" for phase in forecast.phases), "all")
    for what, cells in (("tokens", tokens), ("epochs", epochs)):
        lines += ["", f"{what} by phase", *_table([columns, *((name, *row) for name, row in cells.items())])]
    lines += [f"note: {note}" for note in forecast.notes]
    return lines + [f"warning: {warning}" for warning in forecast.warnings]


def _row(domain: DomainForecast) -> Sequence[str]:
    return (
        domain.name,
        short(domain.size),
        short(domain.tokens),
        f"{domain.epochs:.3f}",
        f"{domain.worth / domain.tokens:.1%}" if domain.tokens else "-",
        "-" if domain.wraps_at is None else str(domain.wraps_at),
        "-" if domain.capped_at is None else str(domain.capped_at),
        f"{domain.ahead:.2f}",
        f"{domain.behind:.2f}",
    )


def _table(rows: Iterable[Sequence[str]]) -> list[str]:
    """Columns aligned: names to the left, figures to the right."""
    cells = [list(row) for row in rows]
    widths = [max(len(row[i]) for row in cells) for i in range(len(cells[0]))]
    return [
        "  ".join(
            cell.ljust(width) if i == 0 else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in cells
    ]


def short(count: int) -> str:
    """A count of tokens as people write it: 950, 12.30K, 80.00B."""
    for unit, size in (("T", 10**12), ("B", 10**9), ("M", 10**6), ("K", 10**3)):
        if count >= size:
            return f"{count / size:.2f}{unit}"
    return str(count)
