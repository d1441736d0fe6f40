"""`headrace corpus drift OLD NEW`: what has changed between two versions of the data, and what is only noise."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click
from headrace.client.cli.common import json_option, print_json, print_table
from headrace.proto.errors import UsageError

if TYPE_CHECKING:
    from headrace.server.watch.drift_versions import Versions


@click.command()
@click.argument("old", metavar="OLD")
@click.argument("new", metavar="NEW")
@click.option(
    "--parallel", "parallel", metavar="LANG=FILE", multiple=True, help="Aligned lines of a language, for the tokenizers"
)
@click.option("--check", is_flag=True, help="Exit with 1 when something drifts")
@json_option
def drift(old: str, new: str, parallel: Sequence[str], check: bool, as_json: bool) -> None:
    """Compares the corpora OLD and NEW (manifests or their folders), domain by domain and feature by feature.

    Each divergence stands beside the noise floor of the samples; `drifts` marks those above max(threshold, 2 floors).
    """
    from headrace.server.corpus.manifest import Corpus
    from headrace.server.watch.drift_versions import compare

    lines = dict(_lines(word) for word in parallel)
    found = compare(Corpus.open(old), Corpus.open(new), lines)
    if as_json:
        print_json(found.as_dict())
    else:
        _show(found)
    if check and found.drifts:
        sys.exit(1)


def _lines(word: str) -> tuple[str, list[str]]:
    from headrace.tokenizer.texts import development_lines

    name, found, path = word.partition("=")
    if not found or not name or not path:
        raise UsageError(f"--parallel is LANG=FILE, for example deu=dev/deu.txt, not `{word}`")
    return name, list(development_lines([Path(path)]))


def _show(found: Versions) -> None:
    header = ["domain", "feature", "JSD", "floor", "PSI", "samples", ""]
    rows = [
        [
            figure.domain,
            figure.feature,
            f"{figure.jsd:.5f}",
            f"{figure.floor:.5f}",
            f"{figure.psi:.4f}",
            str(figure.samples),
            "drifts" if figure.above else "",
        ]
        for figure in found.figures
    ]
    print_table(header, rows)
    if not found.same_tokenizer:
        click.echo("the tokenizers differ: only what does not depend on ids is compared")
    for name in found.only_old:
        click.echo(f"domain {name} is in the old corpus alone")
    for name in found.only_new:
        click.echo(f"domain {name} is in the new corpus alone")
    for line in found.lines:
        mark = "  drifts" if line.above else ""
        click.echo(
            f"{line.language}: {line.old:.2f} tokens a line, now {line.new:.2f} ({line.change:+.2%}, "
            f"noise {line.floor:.2%}){mark}"
        )
