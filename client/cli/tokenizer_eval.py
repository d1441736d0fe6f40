"""`headrace tokenizer eval`: tokenizers side by side on parallel text, as a table, JSON or an HTML page."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import click
from headrace.client.cli.common import named_files
from headrace.proto.errors import UsageError
from headrace.tokenizer.domains import DomainsReport, evaluate_domains
from headrace.tokenizer.evaluate import FairnessReport
from headrace.tokenizer.files import read_lines, write_durably
from headrace.tokenizer.page import render
from headrace.tokenizer.tokenizer import Tokenizer


@click.command("eval", help="Measure tokenizers on aligned text files by language.")
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="TOKENIZER.json...")
@click.option("--lang", "texts", multiple=True, required=True, callback=named_files, metavar="[SET/]NAME=FILE",
              help="Aligned lines of a language; with SET, of one of several parallel sets.")  # fmt: skip
@click.option("--control", type=click.Path(path_type=Path), metavar="TOKENIZER.json",
              help="The tokenizer that the others are set against, for instance a classical one that was given the "
                   "development text as well (train --objective pnorm --power 1).")  # fmt: skip
@click.option("--per-language", is_flag=True, help="Show every language, not only the whole.")
@click.option("--html", "page", type=click.Path(path_type=Path), metavar="FILE", help="Write a page with plots here.")
@click.option("--json", "as_json", is_flag=True, help="Print the reports as JSON.")
def eval_command(
    files: tuple[Path, ...],
    texts: dict[str, list[Path]],
    control: Path | None,
    per_language: bool,
    page: Path | None,
    as_json: bool,
) -> None:
    """Measure and print a table."""
    if page and not page.parent.is_dir():
        raise UsageError(f"cannot write `{page}`: its folder does not exist; make it, or choose another")
    sets = _sets(texts)
    paths = [*files, *([control] if control and control not in files else [])]
    reports = {str(path): evaluate_domains(Tokenizer.load(path), sets) for path in paths}
    if page:
        write_durably(page, render(reports, control=str(control) if control else None).encode())
    if as_json:
        click.echo(json.dumps({name: _json(report) for name, report in reports.items()}, ensure_ascii=False))
        return
    for title, part in _parts(reports).items():
        click.echo("\n".join([*([title] if title else []), *_table(part, str(control))]))
        if per_language:
            for name, report in part.items():
                click.echo("\n".join(_language_table(name, report)))
    if page:
        click.echo(f"wrote {page}")


def _sets(texts: dict[str, list[Path]]) -> dict[str, dict[str, list[str]]]:
    """Lines by parallel set and language."""
    sets: dict[str, dict[str, list[str]]] = {}
    for name, paths in texts.items():
        domain, _, language = name.rpartition("/")
        lines = [line for path in paths for line in read_lines(path)]
        sets.setdefault(domain or "all", {})[language] = lines
    return sets


def _json(report: DomainsReport) -> dict[str, object]:
    """The figures of the whole, and those of each set where there are several."""
    whole = report.overall.to_json()
    return {**whole, **report.to_json()} if len(report.domains) > 1 else whole


def _parts(reports: dict[str, DomainsReport]) -> dict[str, dict[str, FairnessReport]]:
    """Reports by section of the output: each set, then all."""
    domains = next(iter(reports.values())).domains
    whole = {"all sets" if len(domains) > 1 else "": {name: report.overall for name, report in reports.items()}}
    if len(domains) == 1:
        return whole
    return {d: {name: report.domains[d] for name, report in reports.items()} for d in domains} | whole


def _table(reports: dict[str, FairnessReport], control: str) -> Iterator[str]:
    width = max(len(name) for name in reports)
    head = f"{'tokenizer':<{width}}"
    yield (
        f"{head}     ids   gini  tokens/line  bytes/token  used     dead  useless  TTR      fertility  Renyi 2.5  "
        "worst/best"
    )
    for name, r in reports.items():
        yield (
            f"{name:<{width}} {r.vocab_size:>7}  {r.gini:.3f}  {r.tokens_per_line:>11.2f}  {r.bytes_per_token:>11.3f}  "
            f"{r.utilization:.1%}  {r.dead:>6}  {r.vocabulary.useless:>7}  {r.type_token_ratio:.5f}  "
            f"{r.fertility:>9.2f}  {r.renyi_efficiency:>9.3f}  "
            f"{r.worst}/{r.best} {r.worst_to_best:.2f}{_against(r, reports.get(control))}"
        )


def _against(report: FairnessReport, control: FairnessReport | None) -> str:
    """What differs from the control."""
    if control is None:
        return ""
    if control is report:
        return "  control"
    length = report.tokens_per_line / control.tokens_per_line - 1
    return f"  {report.gini - control.gini:+.4f} gini, {length:+.1%} tokens"


def _language_table(name: str, report: FairnessReport) -> Iterator[str]:
    yield f"{name}:"
    ordered = sorted(report.languages.items(), key=lambda item: -item[1].tokens_per_line)
    for language, figures in ordered:
        yield (
            f"  {language:<10} {figures.tokens_per_line:>9.2f} tokens/line  {figures.cost_ratio:>5.2f} x best  "
            f"{figures.bytes_per_token:>6.3f} bytes/token  {figures.utilization:>6.1%} of the vocabulary"
        )
