"""`headrace tokenizer`: train, measure and use tokenizers from the command line."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import click
from headrace.client.cli.tokenizer_eval import eval_command
from headrace.client.cli.tokenizer_train import train_command
from headrace.proto.errors import UsageError
from headrace.tokenizer import interchange
from headrace.tokenizer.files import write_durably
from headrace.tokenizer.tokenizer import Tokenizer


@click.group(help="Train, measure and use tokenizers.")
def tokenizer() -> None:
    """The group of the subcommands."""


tokenizer.add_command(train_command)
tokenizer.add_command(eval_command)


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
