"""`headrace tokenizer train`: text files to a tokenizer, as a job that can be stopped and goes on."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click
from headrace.client.cli.common import named_files
from headrace.proto.errors import UsageError
from headrace.tokenizer import interchange, sidecar
from headrace.tokenizer.files import write_durably
from headrace.tokenizer.pretokenizer import DEFAULT, NAMES
from headrace.tokenizer.spec import VARIANTS, TrainSpec
from headrace.tokenizer.tokenizer import DEFAULT_SPECIALS, Tokenizer
from headrace.tokenizer.train import Progress, TrainReport, train


def _named_numbers(_: click.Context, parameter: click.Parameter, values: tuple[str, ...]) -> dict[str, float]:
    """NAME=NUMBER options."""
    numbers: dict[str, float] = {}
    for value in values:
        name, equals, number = value.partition("=")
        try:
            numbers[name] = float(number if equals and name else "")
        except ValueError:
            raise click.BadParameter(f"`{value}` is not NAME=NUMBER", param=parameter) from None
    return numbers


def _progress() -> Callable[[Progress], None]:
    """Progress on stderr: one line that is written over on a terminal, a line every tenth in a log."""
    last = [("", -1)]

    def show(progress: Progress) -> None:
        if progress.stage in ("warning", "checkpoint"):
            at = f" after {progress.done} merges" if progress.stage == "checkpoint" else ""
            click.echo(f"{progress.stage}{at}: {progress.note}", err=True)
            return
        tenth = 10 * progress.done // max(progress.total, 1)
        text = f"{progress.stage} {progress.done}/{progress.total} {progress.note}".rstrip()
        if sys.stderr.isatty():
            click.echo(f"\r\x1b[K{text}", nl=progress.done >= progress.total, err=True)
        elif (progress.stage, tenth) != last[0]:
            last[0] = (progress.stage, tenth)
            click.echo(text, err=True)

    return show


@click.command("train", help="Train a tokenizer on text files by language.")
@click.option("--lang", "--train", "texts", multiple=True, required=True, callback=named_files, metavar="NAME=FILE",
              help="Training text of a language (.parquet; .txt, .jsonl, also .gz, .zst); repeatable.")  # fmt: skip
@click.option("--dev", multiple=True, callback=named_files, metavar="NAME=FILE",
              help="Aligned development lines of a language; parity-aware variants need them, or --ratio.")  # fmt: skip
@click.option(
    "--field",
    default="text",
    show_default=True,
    help="Field of .jsonl and column of .parquet files that holds the text.",
)
@click.option("--vocab-size", type=int, help="Size of the vocabulary, special tokens and bytes included.")
@click.option("--merges", type=int, help="Number of merges, instead of a size.")
@click.option("--variant", type=click.Choice(VARIANTS), default="base", show_default=True)
@click.option("--global-merges", type=int, help="Classical merges at the start of a hybrid variant.  [default: half]")
@click.option("--window", type=int, default=100, show_default=True, help="Merges that the window variants look back.")
@click.option(
    "--alpha", type=float, default=2.0, show_default=True, help="How often its even part a language may have."
)
@click.option("--ratio", multiple=True, callback=_named_numbers, metavar="NAME=R",
              help="Wanted compression of a language relative to the others, instead of --dev.")  # fmt: skip
@click.option(
    "--min-frequency", type=int, help="Least occurrences of a merged pair.  [default: 2; 1 with mixed evidence]"
)
@click.option("--evidence", type=click.Choice(["train", "mix"]), default="train", show_default=True,
              help="Judge pairs by training text, as published, or by development text as well.")  # fmt: skip
@click.option("--mix", type=float, default=0.5, show_default=True, help="Part of the development text in `mix`.")
@click.option("--eta", type=float, default=0.0, show_default=True, help="What other languages' savings count in `mix`.")
@click.option("--kappa", type=float, default=0.02, show_default=True, help="Least worth of a language's best pair.")
@click.option("--objective", type=click.Choice(["worst", "pnorm"]), default="worst", show_default=True)
@click.option("--power", type=int, default=32, show_default=True, help="Power of the norm.")
@click.option("--split-dev", is_flag=True, help="Evidence from odd development lines, cost from even ones.")
@click.option(
    "--pretokenizer", metavar="NAME", help=f"One of {', '.join(NAMES)}, or regex:EXPRESSION.  [default: {DEFAULT}]"
)
@click.option("--superword-merges", type=int, default=0, show_default=True,
              help="Of all merges, those at the end that may join words.")  # fmt: skip
@click.option("--temperature", type=float, default=1.0, show_default=True,
              help="Above 1: take less of the languages that have much text.")  # fmt: skip
@click.option("--seed", type=int, default=0, show_default=True, help="Which documents a temperature takes.")
@click.option("--special", "specials", multiple=True, default=DEFAULT_SPECIALS, show_default=True,
              help="Special token; give all that are wanted, in order.")  # fmt: skip
@click.option("--compat", type=click.Choice(["reference"]), help="Follow the reference implementation byte for byte.")
@click.option("--allow-smaller", is_flag=True, help="Accept a smaller vocabulary when the text has no more pairs.")
@click.option("--threads", type=int, default=2, show_default=True, help="Threads that count pieces.")
@click.option("--out", type=click.Path(path_type=Path), required=True, help="The tokenizer.json to write.")
@click.option("--merges-out", type=click.Path(path_type=Path), help="Write the merge list here as well.")
@click.option("--checkpoint", type=click.Path(path_type=Path), metavar="FILE",
              help="Where the run is kept, and goes on from when it is there.  [default: OUT.checkpoint]")  # fmt: skip
@click.option("--checkpoint-seconds", type=float, default=60.0, show_default=True, help="How often it is kept.")
@click.option("--dry-run", is_flag=True, help="Train and report, but write nothing.")
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON.")
def train_command(
    texts: dict[str, list[Path]],
    dev: dict[str, list[Path]],
    ratio: dict[str, float],
    field: str,
    pretokenizer: str | None,
    compat: str | None,
    specials: tuple[str, ...],
    out: Path,
    merges_out: Path | None,
    checkpoint: Path | None,
    checkpoint_seconds: float,
    dry_run: bool,
    as_json: bool,
    **settings: Any,
) -> None:
    """Train and write."""
    spec = TrainSpec(
        pretokenizer=pretokenizer or ("paper" if compat else DEFAULT),
        compat=compat,
        specials=tuple(specials),
        ratio=ratio,
        **settings,
    )
    if not dry_run:
        _check_folders(out, merges_out, checkpoint)
    kept = None if dry_run else checkpoint or out.with_name(f"{out.name}.checkpoint")
    try:
        made, report = train(
            spec, texts, dev or None, field=field, progress=_progress(), checkpoint_path=kept,
            checkpoint_seconds=checkpoint_seconds,
        )  # fmt: skip
    except KeyboardInterrupt:
        click.echo("stopped; nothing was written but the checkpoint, if there is one", err=True)
        sys.exit(130)
    if not dry_run:
        made.save(out)
        sidecar.save(out, spec, made, report)
    if merges_out and not dry_run:
        write_durably(merges_out, interchange.merges_text(made).encode())
    if kept:
        kept.unlink(missing_ok=True)
    told = json.dumps({**report.to_json(), "digest": made.digest.hex()}, ensure_ascii=False)
    click.echo(told if as_json else "\n".join(_train_lines(made, report, None if dry_run else out)))


def _check_folders(*files: Path | None) -> None:
    """Refuse what could not be written before any work is spent on it."""
    for file in files:
        if file is None:
            continue
        if file.is_dir():
            raise UsageError(f"`{file}` is a folder; name a file in it")
        if not file.parent.is_dir():
            raise UsageError(f"cannot write `{file}`: its folder does not exist; make it, or choose another")
        if not os.access(file.parent, os.W_OK):
            raise UsageError(f"cannot write `{file}`: its folder may not be written to; choose another")


def _train_lines(made: Tokenizer, report: TrainReport, out: Path | None) -> Iterator[str]:
    head = f"wrote {out}" if out else "dry run"
    yield f"{head}: {made.vocab_size} ids, {report.merges} merges, {report.variant}"
    for name, after in report.tokens_after.items():
        before = report.tokens_before[name]
        yield f"  {name:<10} {before:>12} -> {after:>12} tokens ({before / max(after, 1):.2f} bytes a token)"
    for warning in report.warnings:
        yield f"  look at this: {warning}"
