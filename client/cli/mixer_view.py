"""`headrace mixer compare`, `content` and `show`: look at mixtures that are there already."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from headrace.proto.errors import UsageError

if TYPE_CHECKING:
    from headrace.mixer.compare import Column
    from headrace.mixer.result import Mixture


@click.command()
@click.argument("results", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--tokens", multiple=True, metavar="NAME=N", help="Tokens of a domain; repeat for each.")
@click.option("--counts", type=click.Path(path_type=Path), help="TOML or JSON table of domain = tokens.")
@click.option("--corpus", type=click.Path(path_type=Path), help="manifest.json of a corpus: token counts from it.")
@click.option("--budget", metavar="N", help="Tokens that the run will train, for epochs.")
@click.option("--plot", "chart", type=click.Path(path_type=Path), help="Write a bar chart: FILE.svg or FILE.png.")
@click.option("--dry-run", is_flag=True, help="Do not write the chart.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def compare(results: tuple[Path, ...], chart: Path | None, dry_run: bool, as_json: bool, **options: Any) -> None:
    """RESULT files side by side: weights, epochs, bounds, cost in FLOPs and seconds, distance from the first."""
    from headrace.client.cli.mixer_options import count, tokens_of
    from headrace.mixer import compare as view
    from headrace.mixer.files import write_atomic

    if chart is not None and chart.suffix not in (".svg", ".png"):
        raise UsageError(f"compare: `{chart}` is no name of a chart; let it end with .svg or .png")
    mixtures, seconds = read_results(results)
    budget = None if options["budget"] is None else count(options["budget"])
    tokens = tokens_of(options["counts"], options["tokens"], options["corpus"])
    columns = view.compare(mixtures, tokens, budget, seconds)
    if chart is not None and not dry_run:
        picture = view.chart(columns)
        write_atomic(chart, picture.png() if chart.suffix == ".png" else picture.svg().encode())
    if as_json:
        click.echo(json.dumps([asdict(column) for column in columns], indent=2))
        return
    side_by_side(columns)
    if chart is not None:
        click.echo(f"{'would write' if dry_run else 'wrote'} {chart}")


def read_results(paths: tuple[Path, ...]) -> tuple[dict[str, Mixture], dict[str, float]]:
    """Mixtures by label, and the seconds that were kept beside those that a training made."""
    from headrace.mixer.result import load

    mixtures, seconds = dict[str, Any](), dict[str, float]()
    for path in paths:
        mixture, trained = load(path), path.name == "mixture.json"
        stem = path.resolve().parent.name if trained else path.stem
        label = " ".join(filter(None, [stem, f"({mixture.method}", mixture.convention])) + ")"
        if label in mixtures:
            raise UsageError(f"compare: two results are called `{label}`; give the files different names")
        mixtures[label] = mixture
        kept = path.with_name("seconds.txt")
        if trained and kept.exists():
            seconds[label] = float(kept.read_text(encoding="utf-8"))
    return mixtures, seconds


def side_by_side(columns: Sequence[Column]) -> None:
    """A row a domain, a column a mixture; then what each has cost."""
    from headrace.client.cli.common import print_table

    def cell(column: Column, name: str) -> str:
        read = f"{column.epochs[name]:.3g}x" if name in column.epochs else ""
        return " ".join(filter(None, [f"{column.weights[name]:.6f}", read, column.bound.get(name)]))

    rows: list[list[object]] = [[name, *(cell(c, name) for c in columns)] for name in columns[0].weights]
    rows.append(["distance", *(f"{c.distance:.4f}" for c in columns)])
    rows.append(["FLOPs", *("-" if c.flops is None else f"{c.flops:.3g}" for c in columns)])
    rows.append(["seconds", *("-" if c.seconds is None else f"{c.seconds:.3g}" for c in columns)])
    print_table(["domain", *(c.label for c in columns)], rows)


@click.command()
@click.argument("result", type=click.Path(path_type=Path))
@click.option("--rate", multiple=True, metavar="NAME=R", help="Text a token carries (aligned lines, bytes); repeat.")
@click.option("--rates", type=click.Path(path_type=Path), help="TOML or JSON table of domain = text a token.")
@click.option(
    "--evaluation", type=click.Path(path_type=Path), help="Of `tokenizer eval --json`: lines a token from it."
)
@click.option("--budget", metavar="N", help="Tokens that the run will train: print the amount of text too.")
@click.option("--correct", is_flag=True, help="Print token weights that give each domain its share of text instead.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def content(
    result: Path,
    rate: tuple[str, ...],
    rates: Path | None,
    evaluation: Path | None,
    budget: str | None,
    correct: bool,
    as_json: bool,
) -> None:
    """How much text each domain of RESULT gets: weight times text a token; and why some are short of it."""
    from headrace.client.cli.mixer_options import count, pairs, part, read_table
    from headrace.mixer import content as text
    from headrace.mixer.result import weights_of

    weights = weights_of(result)
    table: dict[str, Any] = {} if evaluation is None else text.rates_of(read_table(evaluation), place=str(evaluation))
    table |= (read_table(rates) if rates else {}) | pairs(rate, option="--rate", number=part)
    total = None if budget is None else count(budget)
    if correct:
        fixed = text.correct(weights, table)
        click.echo(json.dumps(fixed, indent=2) if as_json else "\n".join(f"{n:<20} {w:8.6f}" for n, w in fixed.items()))
        return
    entries = text.content(weights, table)
    amounts = {} if total is None else {entry.domain: total * entry.weight * entry.rate for entry in entries}
    if as_json:
        found = [asdict(entry) | ({"text": amounts[entry.domain]} if amounts else {}) for entry in entries]
        click.echo(json.dumps(found, indent=2))
        return
    click.echo(f"{'domain':<20} {'weight':>8} {'rate':>10} {'share':>8} {'text':>10}  short of")
    for entry in entries:
        amount = f"{amounts[entry.domain]:10.4g}" if amounts else f"{'-':>10}"
        click.echo(
            f"{entry.domain:<20} {entry.weight:8.6f} {entry.rate:10.4g} {entry.share:8.6f} {amount}  "
            f"{entry.short or '-'}"
        )
