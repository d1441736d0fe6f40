"""`headrace tokenizer`: train, measure and use tokenizers from the command line."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click
from headrace.proto.errors import UsageError
from headrace.tokenizer import interchange, sidecar
from headrace.tokenizer.evaluate import FairnessReport, evaluate
from headrace.tokenizer.files import read_lines, write_durably
from headrace.tokenizer.pretokenizer import DEFAULT, NAMES
from headrace.tokenizer.spec import VARIANTS, TrainSpec
from headrace.tokenizer.tokenizer import DEFAULT_SPECIALS, Tokenizer
from headrace.tokenizer.train import Progress, TrainReport, train


@click.group(help="Train, measure and use tokenizers.")
def tokenizer() -> None:
    """The group of the subcommands."""


def _named_files(_: click.Context, parameter: click.Parameter, values: tuple[str, ...]) -> dict[str, list[Path]]:
    """NAME=FILE options, a name several times for several files."""
    files: dict[str, list[Path]] = {}
    for value in values:
        name, equals, path = value.partition("=")
        if not (name and equals and path):
            raise click.BadParameter(f"`{value}` is not NAME=FILE", param=parameter)
        files.setdefault(name, []).append(Path(path))
    return files


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
        if progress.stage == "warning":
            click.echo(f"warning: {progress.note}", err=True)
            return
        tenth = 10 * progress.done // max(progress.total, 1)
        text = f"{progress.stage} {progress.done}/{progress.total} {progress.note}".rstrip()
        if sys.stderr.isatty():
            click.echo(f"\r\x1b[K{text}", nl=progress.done >= progress.total, err=True)
        elif (progress.stage, tenth) != last[0]:
            last[0] = (progress.stage, tenth)
            click.echo(text, err=True)

    return show


@tokenizer.command("train", help="Train a tokenizer on text files by language.")
@click.option("--lang", "--train", "texts", multiple=True, required=True, callback=_named_files, metavar="NAME=FILE",
              help="Training text of a language (.txt, .jsonl; plain, .gz or .zst); repeat for more.")  # fmt: skip
@click.option("--dev", multiple=True, callback=_named_files, metavar="NAME=FILE",
              help="Aligned development lines of a language; parity-aware variants need them, or --ratio.")  # fmt: skip
@click.option("--field", default="text", show_default=True, help="Field of .jsonl files that holds the text.")
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
@click.option("--special", "specials", multiple=True, default=DEFAULT_SPECIALS, show_default=True,
              help="Special token; give all that are wanted, in order.")  # fmt: skip
@click.option("--compat", type=click.Choice(["reference"]), help="Follow the reference implementation byte for byte.")
@click.option("--allow-smaller", is_flag=True, help="Accept a smaller vocabulary when the text has no more pairs.")
@click.option("--threads", type=int, default=2, show_default=True, help="Threads that count pieces.")
@click.option("--out", type=click.Path(path_type=Path), required=True, help="The tokenizer.json to write.")
@click.option("--merges-out", type=click.Path(path_type=Path), help="Write the merge list here as well.")
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
    made, report = train(spec, texts, dev or None, field=field, progress=_progress())
    if not dry_run:
        made.save(out)
        sidecar.save(out, spec, made, report)
        if merges_out:
            write_durably(merges_out, interchange.merges_text(made).encode())
    if as_json:
        click.echo(json.dumps({**report.to_json(), "digest": made.digest.hex()}, ensure_ascii=False))
    else:
        click.echo("\n".join(_train_lines(made, report, None if dry_run else out)))


def _train_lines(made: Tokenizer, report: TrainReport, out: Path | None) -> Iterator[str]:
    head = f"wrote {out}" if out else "dry run"
    yield f"{head}: {made.vocab_size} ids, {report.merges} merges, {report.variant}"
    for name, after in report.tokens_after.items():
        before = report.tokens_before[name]
        yield f"  {name:<10} {before:>12} -> {after:>12} tokens ({before / max(after, 1):.2f} bytes a token)"
    for warning in report.warnings:
        yield f"  look at this: {warning}"


@tokenizer.command("eval", help="Measure tokenizers on aligned text files by language.")
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="TOKENIZER.json...")
@click.option("--lang", "texts", multiple=True, required=True, callback=_named_files, metavar="NAME=FILE",
              help="Aligned lines of a language.")  # fmt: skip
@click.option("--per-language", is_flag=True, help="Show every language, not only the whole.")
@click.option("--json", "as_json", is_flag=True, help="Print the reports as JSON.")
def eval_command(files: tuple[Path, ...], texts: dict[str, list[Path]], per_language: bool, as_json: bool) -> None:
    """Measure and print a table."""
    lines = {name: [line for path in paths for line in read_lines(path)] for name, paths in texts.items()}
    reports = {str(path): evaluate(Tokenizer.load(path), lines) for path in files}
    if as_json:
        click.echo(json.dumps({name: report.to_json() for name, report in reports.items()}, ensure_ascii=False))
        return
    click.echo("\n".join(_table(reports)))
    if per_language:
        for name, report in reports.items():
            click.echo("\n".join(_language_table(name, report)))


def _table(reports: dict[str, FairnessReport]) -> Iterator[str]:
    width = max(len(name) for name in reports)
    head = f"{'tokenizer':<{width}}"
    yield f"{head}     ids   gini  tokens/line  bytes/token  used   TTR      fertility  Renyi 2.5  worst/best"
    for name, r in reports.items():
        yield (
            f"{name:<{width}} {r.vocab_size:>7}  {r.gini:.3f}  {r.tokens_per_line:>11.2f}  {r.bytes_per_token:>11.3f}  "
            f"{r.utilization:.1%}  {r.type_token_ratio:.5f}  {r.fertility:>9.2f}  {r.renyi_efficiency:>9.3f}  "
            f"{r.worst}/{r.best} {r.worst_to_best:.2f}"
        )


def _language_table(name: str, report: FairnessReport) -> Iterator[str]:
    yield f"{name}:"
    ordered = sorted(report.languages.items(), key=lambda item: -item[1].tokens_per_line)
    for language, figures in ordered:
        yield (
            f"  {language:<10} {figures.tokens_per_line:>9.2f} tokens/line  {figures.cost_ratio:>5.2f} x best  "
            f"{figures.bytes_per_token:>6.3f} bytes/token  {figures.utilization:>6.1%} of the vocabulary"
        )


@tokenizer.command("encode", help="Encode text from files, or standard input, as ids.")
@click.argument("path", type=click.Path(path_type=Path), metavar="TOKENIZER.json")
@click.argument("texts", nargs=-1, type=click.Path(path_type=Path), metavar="[FILE]...")
@click.option("--allow-special", is_flag=True, help="Text that spells a special token becomes that token.")
@click.option("--json", "as_json", is_flag=True, help="Print ids with the bytes of each token.")
def encode_command(path: Path, texts: tuple[Path, ...], allow_special: bool, as_json: bool) -> None:
    """Encode whole files, one line of ids each."""
    made = Tokenizer.load(path)
    for text in [_read_text(file) for file in texts] or [sys.stdin.read()]:
        ids = made.encode(text, allow_special=allow_special)
        if as_json:
            tokens = [made.tokens[i].decode("utf-8", errors="backslashreplace") for i in ids]
            click.echo(json.dumps({"ids": ids.tolist(), "tokens": tokens}, ensure_ascii=False))
        else:
            click.echo(" ".join(map(str, ids.tolist())))


def _read_text(path: Path) -> str:
    try:
        return path.read_bytes().decode()
    except OSError as error:
        raise UsageError(f"cannot read `{path}`: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise UsageError(f"`{path}` is no UTF-8 at byte {error.start}") from None


@tokenizer.command("convert", help="Convert between tokenizer.json, GPT-2 folders and tiktoken ranks.")
@click.argument("source", type=click.Path(path_type=Path))
@click.argument("target", type=click.Path(path_type=Path))
@click.option("--from", "kind", type=click.Choice(["hf", "gpt2", "tiktoken"]), default="hf", show_default=True)
@click.option("--to", type=click.Choice(["hf", "gpt2", "tiktoken", "merges"]), required=True)
@click.option("--pretokenizer", default="gpt2", show_default=True, help="Of a source that does not say it.")
@click.option("--special", "specials", multiple=True, metavar="TEXT[=ID]",
              help="Special token of a source that does not say them, with its id for tiktoken ranks.")  # fmt: skip
@click.option("--dry-run", is_flag=True, help="Read and check, but write nothing.")
def convert_command(
    source: Path, target: Path, kind: str, to: str, pretokenizer: str, specials: tuple[str, ...], dry_run: bool
) -> None:
    """Read one format and write another; ids stay."""
    made = _read(source, kind, pretokenizer, specials)
    if not dry_run:
        _write(made, target, to)
    click.echo(f"{made.vocab_size} ids, {len(made.merges)} merges, pre-tokenizer {made.pretokenizer}")


def _read(source: Path, kind: str, pretokenizer: str, specials: tuple[str, ...]) -> Tokenizer:
    if kind == "hf":
        return Tokenizer.load(source)
    if kind == "gpt2":
        return interchange.read_gpt2(source, pretokenizer=pretokenizer, specials=specials)
    named = dict(special.rpartition("=")[::2] for special in specials)
    if not all(name and number.isdecimal() for name, number in named.items()):
        raise UsageError(f"special tokens of tiktoken ranks are given as TEXT=ID, not {list(specials)}")
    ids = {name: int(number) for name, number in named.items()}
    return interchange.read_tiktoken(source, pretokenizer=pretokenizer, special_ids=ids)


def _write(made: Tokenizer, target: Path, to: str) -> None:
    if to == "hf":
        made.save(target)
    elif to == "gpt2":
        interchange.write_gpt2(made, target)
    elif to == "tiktoken":
        interchange.write_tiktoken(made, target)
    else:
        write_durably(target, interchange.merges_text(made).encode())
