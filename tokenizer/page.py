"""The report of several tokenizers as one HTML page that needs nothing else: no script, no font, no address.

Every number of the page is in the JSON report too. Names come from files and command lines, so they are escaped.
"""

from __future__ import annotations

import html
from collections.abc import Mapping

from headrace.tokenizer import chart
from headrace.tokenizer.domains import DomainsReport
from headrace.tokenizer.evaluate import FairnessReport

_STYLE = """
:root { color-scheme: light dark; --text: #1b1f24; --soft: #5b6570; --line: #d5dae0; --back: #ffffff; }
@media (prefers-color-scheme: dark) { :root { --text: #e6e9ed; --soft: #9aa4af; --line: #39424d; --back: #14181d; } }
body { font: 15px/1.45 system-ui, sans-serif; color: var(--text); background: var(--back); margin: 2rem auto;
  max-width: 68rem; padding: 0 1rem; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.15rem; margin-top: 2rem; } p { color: var(--soft); max-width: 46rem; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; } .wide { overflow-x: auto; }
th, td { padding: .25rem .6rem; border-bottom: 1px solid var(--line); text-align: right; white-space: nowrap; }
th:first-child, td:first-child { text-align: left; } th { color: var(--soft); font-weight: 600; }
svg { width: 100%; max-width: 760px; height: auto; } svg text { font-size: 11px; fill: var(--text); }
.axis { stroke: var(--soft); fill: none; } .grid { stroke: var(--line); fill: none; }
.s0 { fill: #2f7ed8; } .s1 { fill: #e07b28; } .s2 { fill: #3a9d5d; } .s3 { fill: #b4519c; }
.s4 { fill: #8a6d3b; } .s5 { fill: #4bacc6; } .s6 { fill: #c94f4f; } .s7 { fill: #8b8fd0; }
.key { display: inline-block; width: .8em; height: .8em; margin-right: .4em; } .key svg { width: .8em; height: .8em; }
"""

_WORDS = """
<b>Gini</b> is that of the languages' tokens per aligned line: 0 is fair, and the bytes of the languages alone differ by
some hundredths. <b>Lines/token</b> is the compression rate, as the ratio of sums and as the mean over lines that the
published suite gives. <b>Fertility</b> is tokens per word, the mean over lines, words by white space (huge where a
script has no spaces) and by runs of letters. <b>Dead</b> ids do not occur in this text; <b>useless</b> ones can occur
in none: their own merges end elsewhere, the pre-tokenizer always cuts them, or an earlier id has the same bytes.
<b>R&eacute;nyi</b> is the efficiency of order 2.5 over token frequencies.
"""


def render(reports: Mapping[str, DomainsReport], *, control: str | None = None) -> str:
    """The page of reports by tokenizer name, all on the same sets; others are set against the one named `control`."""
    first = next(iter(reports.values()))
    parts = ["<h1>Tokenizers on parallel text</h1>", _legend(reports, control), f"<p>{_WORDS}</p>"]
    parts += _section(
        "All sets" if len(first.domains) > 1 else "Figures", {n: r.overall for n, r in reports.items()}, control
    )
    if first.left_out:
        parts.append(f"<p>Languages that some set lacks are not in these figures: {_e(', '.join(first.left_out))}.</p>")
    if len(first.domains) > 1:
        for domain in first.domains:
            parts += _section(domain, {name: report.domains[domain] for name, report in reports.items()}, control)
    title = "Tokenizers on parallel text"
    head = f'<meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>{title}</title>'
    return (
        f"<!doctype html><html lang=en><head>{head}<style>{_STYLE}</style></head><body>{''.join(parts)}</body></html>\n"
    )


def _e(text: str) -> str:
    return html.escape(text, quote=True)


def _legend(reports: Mapping[str, DomainsReport], control: str | None) -> str:
    box = '<rect class="s{}" width="10" height="10"/>'
    keys = [
        f'<span class=key><svg viewBox="0 0 10 10">{box.format(place % chart.COLOURS)}</svg>'
        f"</span>{_e(name)}{' (control)' if name == control else ''} &emsp;"
        for place, name in enumerate(reports)
    ]
    return f"<div>{''.join(keys)}</div>"


def _section(title: str, reports: Mapping[str, FairnessReport], control: str | None) -> list[str]:
    base = next(iter(reports.values()))
    order = sorted(base.languages, key=lambda name: -base.languages[name].tokens_per_line)
    costs = {n: {lang: f.tokens_per_line for lang, f in r.languages.items()} for n, r in reports.items()}
    points = {name: (report.tokens_per_line, report.gini) for name, report in reports.items()}
    return [
        f"<h2>{_e(title)}</h2><p>{base.lines} aligned lines in {len(base.languages)} languages.</p>",
        _whole(reports, control),
        chart.scatter(points, across="tokens per line", up="Gini"),
        chart.bars(costs, unit="tokens per line", order=order),
        _by_language(reports, order),
    ]


def _whole(reports: Mapping[str, FairnessReport], control: str | None) -> str:
    names = (
        "tokenizer", "ids", "Gini", "tokens/line", "bytes/token", "lines/token", "mean", "fertility", "by runs",
        "used", "dead", "useless", "TTR", "Rényi", "worst", "best", "worst/best",
    )  # fmt: skip
    rows = []
    for name, r in reports.items():
        cells = [
            _e(name), str(r.vocab_size), f"{r.gini:.4f}", f"{r.tokens_per_line:.2f}", f"{r.bytes_per_token:.3f}",
            f"{r.lines_per_token:.5f}", f"{r.lines_per_token_mean:.5f}", f"{r.fertility:.2f}",
            f"{r.fertility_pieces:.2f}", f"{r.utilization:.1%}", str(r.dead), str(r.vocabulary.useless),
            f"{r.type_token_ratio:.5f}", f"{r.renyi_efficiency:.3f}", _e(r.worst), _e(r.best),
            f"{r.worst_to_best:.2f}",
        ]  # fmt: skip
        if control in reports and name != control:
            other = reports[str(control)]
            cells[2] += f" ({r.gini - other.gini:+.4f})"
            cells[3] += f" ({r.tokens_per_line / other.tokens_per_line - 1:+.1%})"
        rows.append(cells)
    return _table(names, rows)


def _by_language(reports: Mapping[str, FairnessReport], order: list[str]) -> str:
    names = ["language"]
    for name in reports:
        names += [f"{_e(name)}: tokens/line", "x best", "bytes/token", "fertility", "used"]
    rows = []
    for language in order:
        cells = [_e(language)]
        for report in reports.values():
            f = report.languages[language]
            cells += [f"{f.tokens_per_line:.2f}", f"{f.cost_ratio:.2f}", f"{f.bytes_per_token:.3f}",
                      f"{f.fertility:.2f}", f"{f.utilization:.1%}"]  # fmt: skip
        rows.append(cells)
    return f"<details><summary>Every language</summary>{_table(names, rows)}</details>"


def _table(names: tuple[str, ...] | list[str], rows: list[list[str]]) -> str:
    head = "".join(f"<th>{name}</th>" for name in names)
    body = "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>" for row in rows)
    return f'<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'
