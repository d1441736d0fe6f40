"""A run as one HTML file: plots, tables and the whole log, to keep or to send after the run.

The file needs no network, no script and nothing beside it, and says so to the browser. Every name and every word of the
log is escaped. Domains beyond the first 400 and events beyond the newest 1,000 are counted, not shown.
"""

from __future__ import annotations

import html
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

from headrace.server.watch.svg import SERIES, Line, bar, lines_plot, sparkline
from headrace.server.watch.values import DomainFigures, EventFigures, Snapshot

MOST_DOMAINS = 400
MOST_EVENTS = 1000
MANY_EPOCHS = 4.0
UNFOLDED = 30


@dataclass(frozen=True, kw_only=True, slots=True)
class Report:
    """What a report is made of: figures, series of every domain, the log, and what names the run."""

    snapshot: Snapshot
    series: Mapping[str, Any]
    events: tuple[EventFigures, ...]
    spec_digest: str
    log_head: str
    author: str
    created_us: int
    phases: tuple[Mapping[str, Any], ...]

    def as_dict(self) -> dict[str, Any]:
        """For `--json`."""
        rest = ("series", "spec_digest", "log_head", "author", "created_us", "phases")
        events = [{name: getattr(event, name) for name in event.__slots__} for event in self.events]
        return {**self.snapshot.as_dict(), "events": events, **{name: getattr(self, name) for name in rest}}


def to_html(report: Report) -> str:
    """The file."""
    name = html.escape(report.snapshot.run.name)
    style = (files("headrace.server.watch") / "static" / "report.css").read_text(encoding="utf-8")
    body = "\n".join(part for part in _parts(report) if part)
    return (
        f'<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n"
        f'<meta name="color-scheme" content="light dark">\n<title>{name} · Headrace report</title>\n'
        f"<style>\n{style}</style>\n</head>\n<body>\n<main>\n{body}\n</main>\n</body>\n</html>\n"
    )


def _parts(report: Report) -> Iterator[str]:
    yield _head(report)
    yield _notes(report.snapshot)
    yield from _mixture(report)
    yield _domains(report)
    yield _epochs(report.snapshot.domains)
    yield _drift(report.snapshot.drift)
    yield _phases(report)
    yield _events(report)


def _head(report: Report) -> str:
    run, lease = report.snapshot.run, report.snapshot.lease
    kind = "evaluation" if run.kind == "eval" else "training"
    end = f" of {run.end:,}" if run.end else ""
    facts = [
        ("Confirmed steps", f"{run.confirmed:,}{end}"),
        ("Real tokens served", f"{run.tokens:,}"),
        ("Sealed to step", f"{run.seal:,}"),
        ("Changes in the log", f"{report.snapshot.event_count:,}"),
    ]
    names = [
        ("Made by", f"{report.author or 'nobody named'}, {_moment(report.created_us)}"),
        ("Spec digest", report.spec_digest),
        ("Log head", report.log_head),
    ]
    if run.parent:
        names.append(("Branched from", f"{run.parent} at step {run.branch_at:,}"))
    if lease is not None:
        names.append(("Held by", f"job {lease.job}, attempt {lease.attempt}, {lease.open} of {lease.world} ranks"))
    made, long = (
        "".join(f"<div><dt>{html.escape(name)}</dt><dd>{html.escape(value)}</dd></div>" for name, value in pairs)
        for pairs in (facts, names)
    )
    return (
        f'<h1>{html.escape(run.name)}</h1>\n<p class="quiet">Report of a {kind} run, {run.draw} draw, made '
        f"{_moment(report.snapshot.now_us)} from its control store.</p>\n<dl>{made}</dl>\n"
        f'<dl class="long">{long}</dl>'
    )


def _notes(snapshot: Snapshot) -> str:
    if not snapshot.notes:
        return "<h2>Needs a look</h2>\n<p>Nothing.</p>"
    found = "".join(f'<li class="{note.level}">{html.escape(note.text)}</li>' for note in snapshot.notes)
    return f'<h2>Needs a look</h2>\n<ul class="notes">{found}</ul>'


def _mixture(report: Report) -> Iterator[str]:
    """The largest domains over the steps: realized lines, dashed targets."""
    steps, held = report.series["steps"], report.series["domains"]
    largest = sorted(report.snapshot.domains, key=lambda domain: -domain.share)[:SERIES]
    names = [domain.name for domain in largest if domain.tokens and domain.name in held]
    if len(steps) < 2 or not names:
        yield "<h2>Mixture over steps</h2>\n<p>The plot begins with the second confirmed step.</p>"
        return
    lines = [
        line
        for place, name in enumerate(names)
        for line in (
            Line(name=f"{name}, realized", place=place, values=held[name]["share"]),
            Line(name=f"{name}, target", place=place, values=held[name]["target"], dashed=True, stepped=True),
        )
    ]
    marks = [event.from_step for event in report.events if not event.cancelled and event.from_step <= steps[-1]]
    title = f"Shares of {len(names)} domains over steps 0 to {steps[-1]}, realized and target"
    plot = lines_plot(steps, lines, title=title, label=lambda value: f"{100 * value:.3g} %", marks=marks[:200])
    yield (
        f"<h2>Mixture over steps</h2>\n{_legend(names)}\n{plot}\n"
        f'<p class="quiet">The {len(names)} largest domains. Solid: realized; dashed: target, before caps; '
        f"dotted lines: changes of the log.</p>"
    )
    apart = [
        Line(name=name, place=place, values=_less(held[name]["share_so_far"], held[name]["target_so_far"]))
        for place, name in enumerate(names)
    ]
    plot = lines_plot(steps, apart, title="Realized less target since the start", label=lambda v: f"{100 * v:+.3g}")
    yield f"<h2>Off target since the start, points</h2>\n{plot}"


def _less(realized: Sequence[float | None], target: Sequence[float | None]) -> list[float | None]:
    return [None if a is None or b is None else a - b for a, b in zip(realized, target, strict=True)]


def _legend(names: Iterable[str]) -> str:
    entries = "".join(
        f'<li><svg viewBox="0 0 18 6" aria-hidden="true"><path class="line s{place}" d="M0 3H18"/></svg>'
        f"{html.escape(name)}</li>"
        for place, name in enumerate(names)
    )
    return f'<ul class="legend">{entries}</ul>'


def _domains(report: Report) -> str:
    shown = report.snapshot.domains[:MOST_DOMAINS]
    series = report.series["domains"]
    rows = [
        [
            _text(domain.name),
            f"{100 * domain.target:.2f} %",
            f"{100 * domain.share:.2f} %",
            f"{100 * (domain.share - domain.due):+.2f}",
            f"{domain.tokens:,}",
            sparkline(series.get(domain.name, {}).get("share", ()), title=f"share of {domain.name} over the steps"),
            f'<span class="{domain.state.replace(" ", "-")}">{domain.state}</span>',
        ]
        for domain in shown
    ]
    heads = [("Domain", ""), ("Target now", "number"), ("Realized", "number"), ("Off, points", "number")]
    heads += [("Tokens", "number"), ("Share over steps", ""), ("State", "")]
    more = _left_out(len(report.snapshot.domains), MOST_DOMAINS, "domains")
    return f"<h2>Domains</h2>\n{_table('Domains', heads, rows)}{more}"


def _epochs(domains: Sequence[DomainFigures]) -> str:
    used = [domain for domain in domains if domain.tokens]
    ordered = sorted(used, key=lambda domain: (-(domain.epochs / domain.cap if domain.cap else 0), -domain.epochs))
    shown = ordered[:MOST_DOMAINS]
    scale = max([0.01, *(max(domain.epochs, min(domain.cap or 0, 3 * domain.epochs)) for domain in shown)])
    rows = [
        [
            _text(domain.name),
            bar(domain.epochs / scale, domain.cap / scale if domain.cap and domain.cap <= scale else None),
            f"{domain.epochs:.3f}",
            f"{domain.cap:g}" if domain.cap else "none",
            f"{domain.size:,}",
        ]
        for domain in shown
    ]
    heads = [("Domain", ""), ("Epochs, cap as a mark", ""), ("Epochs", "number"), ("Cap", "number")]
    table = _table("Epochs", [*heads, ("Tokens it has", "number")], rows)
    note = f"Beyond {MANY_EPOCHS:g} epochs repeated text is worth ever less (Muennighoff et al., 2023)."
    return f'<h2>Epochs against caps</h2>\n<p class="quiet">{note}</p>\n{table}'


def _drift(figures: Sequence[Mapping[str, Any]]) -> str:
    if not figures:
        return "<h2>Drift</h2>\n<p>No drift figures: no whole interval of steps was looked at.</p>"
    ordered = sorted(figures, key=lambda one: (-one["alarm"], -one["value_floor_ratio"]))
    rows = [
        [
            _text(one["domain"]),
            html.escape(f"{one['feature'].replace('_', ' ')}, {one['against']}"),
            f"{one['value_floor_ratio']:.2f}{' alarm' if one['alarm'] else ''}",
            f"{one['jsd']:.3g}",
            f"{one['floor']:.3g}",
            f"{one['samples']:,}",
            f"{one['from_step']:,} to {one['to_step'] - 1:,}",
        ]
        for one in ordered[:MOST_DOMAINS]
    ]
    heads = [("Domain", ""), ("Feature", ""), ("× floor", "number"), ("JSD, bits", "number"), ("Floor", "number")]
    table = _table("Drift", [*heads, ("Sampled", "number"), ("Steps", "number")], rows)
    note = "A sample of the same text stays below its floor 99 times in 100."
    return f'<h2>Drift</h2>\n<p class="quiet">{note}</p>\n{table}{_left_out(len(figures), MOST_DOMAINS, "figures")}'


def _phases(report: Report) -> str:
    rows = [
        [
            _text(phase["phase"]),
            f"{phase['from_step']:,} to {phase['to_step'] - 1:,}",
            f"{phase['batch']:,}",
            f"{phase['seq_len']:,}",
            html.escape(phase["packing"]),
        ]
        for phase in report.phases
    ]
    heads = [("Phase", ""), ("Steps", "number"), ("Batch", "number"), ("Sequence", "number"), ("Packing", "")]
    return f"<h2>Phases</h2>\n{_table('Phases', heads, rows)}"


def _events(report: Report) -> str:
    if not report.events:
        return "<h2>Event log</h2>\n<p>No changes: the weights are those of the spec.</p>"
    rows = [
        [
            f"{event.sequence}",
            html.escape(f"{event.kind}: {event.what}") + _changes(event),
            f"{event.from_step:,}" + (f" to {event.until_step - 1:,}" if event.until_step is not None else ""),
            html.escape(event.author) or "nobody named",
            html.escape(event.reason) or '<span class="quiet">none given</span>',
            _moment(event.time_us) + (' <span class="warning">taken back</span>' if event.cancelled else ""),
        ]
        for event in report.events
    ]
    heads = [("", "number"), ("What", ""), ("From step", "number"), ("Who", ""), ("Why", ""), ("When", "")]
    more = _left_out(report.snapshot.event_count, MOST_EVENTS, "events")
    return f"<h2>Event log</h2>\n{_table('Event log', heads, rows)}{more}"


def _changes(event: EventFigures) -> str:
    lines = (f"{html.escape(name)} {100 * old:.2f} → {100 * new:.2f} %" for name, old, new in event.changes)
    return "".join(f'<br><span class="quiet">{line}</span>' for line in lines)


def _text(name: str) -> str:
    return html.escape(str(name))


def _table(name: str, heads: Sequence[tuple[str, str]], rows: Sequence[Sequence[str]]) -> str:
    """Cells are HTML already; the first of a row is its head. Rows beyond the first are folded away."""
    shown, folded = rows[:UNFOLDED], rows[UNFOLDED:]
    if not folded:
        return _whole_table(name, heads, shown)
    more = f"<details><summary>{len(folded):,} more</summary>{_whole_table(name, heads, folded)}</details>"
    return _whole_table(name, heads, shown) + more


def _whole_table(name: str, heads: Sequence[tuple[str, str]], rows: Iterable[Sequence[str]]) -> str:
    top = "".join(f'<th scope="col" class="{kind}">{html.escape(name)}</th>' for name, kind in heads)
    lines = "".join(f"<tr>{_cells(heads, row)}</tr>\n" for row in rows)
    table = f'<table aria-label="{name}"><thead><tr>{top}</tr></thead><tbody>\n{lines}</tbody></table>'
    return f'<div class="scroll">{table}</div>'


def _cells(heads: Sequence[tuple[str, str]], row: Sequence[str]) -> str:
    rest = "".join(f'<td class="{kind}">{cell}</td>' for cell, (_, kind) in zip(row[1:], heads[1:], strict=True))
    return f'<th scope="row">{row[0]}</th>{rest}'


def _left_out(count: int, most: int, what: str) -> str:
    return f'<p class="quiet">and {count - most:,} {what} more</p>' if count > most else ""


def _moment(time_us: int) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(time_us / 1e6))
