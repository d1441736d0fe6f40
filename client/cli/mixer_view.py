"""`headrace mixer compare`, `content` and `show`: look at mixtures that are there already."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click
from headrace.proto.errors import UsageError


@click.command()
@click.argument("results", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--tokens", multiple=True, metavar="NAME=N", help="Tokens of a domain; repeat for each.")
@click.option("--counts", type=click.Path(path_type=Path), help="TOML or JSON table of domain = tokens.")
@click.option("--budget", metavar="N", help="Tokens that the run will train, for epochs.")
@click.option("--svg", "chart", type=click.Path(path_type=Path), help="Write a bar chart here.")
@click.option("--dry-run", is_flag=True, help="Do not write the chart.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def compare(
    results: tuple[Path, ...],
    tokens: tuple[str, ...],
    counts: Path | None,
    budget: str | None,
    chart: Path | None,
    dry_run: bool,
    as_json: bool,
) -> None:
    """RESULT files side by side: weights, epochs, bounds, cost, distance from the first."""
    from headrace.client.cli.mixer_options import count, tokens_of
    from headrace.mixer import compare as view
    from headrace.mixer.files import write_atomic
    from headrace.mixer.result import load

    mixtures = {}
    for path in results:
        mixture = load(path)
        label = " ".join(filter(None, [path.stem, f"({mixture.method}", mixture.convention])) + ")"
        if label in mixtures:
            raise UsageError(f"compare: two results are called `{label}`; give the files different names")
        mixtures[label] = mixture
    columns = view.compare(mixtures, tokens_of(counts, tokens), None if budget is None else count(budget))
    if chart is not None and not dry_run:
        write_atomic(chart, view.svg(columns).encode())
    if as_json:
        click.echo(json.dumps([asdict(column) for column in columns], indent=2))
        return
    for column in columns:
        cost = "-" if column.flops is None else f"{column.flops:.3g} FLOPs"
        click.echo(f"{column.label}: distance {column.distance:.4f}, cost {cost}")
        for name, weight in column.weights.items():
            read = f"{column.epochs[name]:8.3f} epochs" if name in column.epochs else ""
            click.echo(f"  {name:<20} {weight:8.6f} {read}  {column.bound.get(name, '')}".rstrip())
    if chart is not None:
        click.echo(f"{'would write' if dry_run else 'wrote'} {chart}")


@click.command()
@click.argument("result", type=click.Path(path_type=Path))
@click.option("--rate", multiple=True, metavar="NAME=R", help="Text a token carries (aligned lines, bytes); repeat.")
@click.option("--rates", type=click.Path(path_type=Path), help="TOML or JSON table of domain = text a token.")
@click.option("--correct", is_flag=True, help="Print token weights that give each domain its share of text instead.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def content(result: Path, rate: tuple[str, ...], rates: Path | None, correct: bool, as_json: bool) -> None:
    """How much text each domain of RESULT gets: weight times text a token; and why some are short of it."""
    from headrace.client.cli.mixer_options import pairs, part, read_table
    from headrace.mixer import content as text
    from headrace.mixer.result import weights_of

    weights = weights_of(result)
    table: dict[str, Any] = (read_table(rates) if rates else {}) | pairs(rate, option="--rate", number=part)
    if correct:
        fixed = text.correct(weights, table)
        click.echo(json.dumps(fixed, indent=2) if as_json else "\n".join(f"{n:<20} {w:8.6f}" for n, w in fixed.items()))
        return
    entries = text.content(weights, table)
    if as_json:
        click.echo(json.dumps([asdict(entry) for entry in entries], indent=2))
        return
    click.echo(f"{'domain':<20} {'weight':>8} {'rate':>10} {'share':>8}  short of")
    for entry in entries:
        click.echo(
            f"{entry.domain:<20} {entry.weight:8.6f} {entry.rate:10.4g} {entry.share:8.6f}  {entry.short or '-'}"
        )
