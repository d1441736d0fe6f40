"""What the subcommands of `headrace mixer` share: token counts, limits, output, and the pipeline after every method.

Numbers of tokens may be written as 80B, 1.5T or 1_000.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click
from headrace.proto.errors import ConfigError, UsageError

if TYPE_CHECKING:
    from headrace.mixer.caps import Bounds
    from headrace.mixer.result import Mixture

Command = TypeVar("Command", bound=Callable[..., Any])


def count(text: str) -> float:
    """A number of tokens: 1_000, 80B, 1.5T. Raises ConfigError."""
    from headrace.mixer.config import count as number_of_tokens

    return number_of_tokens(text)


def pairs(entries: tuple[str, ...], *, option: str, number: Callable[[str], float]) -> dict[str, float]:
    """NAME=NUMBER options as a mapping; a name given twice is refused."""
    found: dict[str, float] = {}
    for entry in entries:
        name, equals, value = entry.partition("=")
        if not equals or name in found:
            fault = "names a domain twice" if name in found else "is not NAME=NUMBER"
            raise UsageError(f"{option} `{entry}` {fault}")
        try:
            found[name] = number(value)
        except UsageError as error:
            raise UsageError(f"{option} `{entry}`: {error}") from error
    return found


def part(text: str) -> float:
    """A plain number. Raises UsageError."""
    try:
        return float(text)
    except ValueError as error:
        raise UsageError(f"`{text}` is no number; write one such as 0.25") from error


def read_text(path: Path) -> str:
    """A file's text. Raises ConfigError."""
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"`{path}`: cannot be read: {error}") from error


def read_table(path: Path) -> dict[str, Any]:
    """A TOML or JSON file as a mapping. Raises ConfigError."""
    from headrace.mixer.files import parse_json

    text = read_text(path)
    try:
        table = parse_json(text) if path.suffix == ".json" else tomllib.loads(text)
    except ValueError as error:
        raise ConfigError(f"`{path}`: cannot be read: {error}") from error
    if not isinstance(table, dict):
        raise ConfigError(f"`{path}`: holds a list or a single value; a table of `domain = number` is needed")
    return table


def tokens_of(path: Path | None, entries: tuple[str, ...], corpus: Path | None = None) -> dict[str, float]:
    """Token counts of a corpus or a table of numbers, with single ones added or replaced by --tokens."""
    if path and corpus:
        raise UsageError("give the token counts by --counts or by --corpus, not both")
    table = read_table(path) if path else _corpus_tokens(corpus) if corpus else {}
    found = {name: count(value) if isinstance(value, str) else value for name, value in table.items()}
    return found | pairs(entries, option="--tokens", number=count)


def _corpus_tokens(path: Path) -> dict[str, float]:
    from headrace.server.corpus.manifest import Corpus

    corpus = Corpus.open(path)
    return {name: float(corpus.tokens(name)) for name in corpus.domains}


def sources(command: Command) -> Command:
    """Options that say how many tokens each domain holds."""
    for option in (
        click.option("--tokens", multiple=True, metavar="NAME=N", help="Tokens of a domain; repeat for each."),
        click.option("--counts", type=click.Path(path_type=Path), help="TOML or JSON table of domain = tokens."),
        click.option("--corpus", type=click.Path(path_type=Path), help="manifest.json of a corpus: its token counts."),
        click.option("--budget", metavar="N", help="Tokens that the run will train (80B, 1.5T)."),
    ):
        command = option(command)
    return command


def limits(command: Command) -> Command:
    """Options of the pipeline after the method."""
    for option in (
        click.option("--max-epochs", type=float, help="Epoch cap of every domain; needs --budget and token counts."),
        click.option("--cap", multiple=True, metavar="NAME=W", help="Largest weight of one domain; repeat."),
        click.option("--floor", type=float, default=0.0, show_default=True, help="Smallest weight of any domain."),
        click.option("--largest-share", type=float, help="Largest weight of any domain."),
        click.option("--exclude", multiple=True, metavar="NAME", help="Domain that stays at weight 0; repeat."),
        click.option("--previous", type=click.Path(path_type=Path), help="Result file to stay near."),
        click.option("--largest-change", type=float, help="Largest change of any weight against --previous."),
    ):
        command = option(command)
    return command


def output(command: Command) -> Command:
    """Options that say what to do with the result."""
    for option in (
        click.option("--out", type=click.Path(path_type=Path), help="Write the result file here."),
        click.option("--dry-run", is_flag=True, help="Compute and print, write nothing."),
        click.option("--json", "as_json", is_flag=True, help="Print the result as JSON."),
        click.option("--toml", "as_toml", is_flag=True, help="Print the line `weights = {...}` for a RUN.toml."),
    ):
        command = option(command)
    return command


def shared(command: Command) -> Command:
    """All options that every method takes."""
    return output(limits(sources(command)))


class Request:
    """The shared options of one call, read once; `options` is what click hands over."""

    def __init__(self, options: Mapping[str, Any], *, largest_share: float = 1.0) -> None:
        self.options = options
        self.tokens = tokens_of(options["counts"], options["tokens"], options["corpus"])
        self.budget = None if options["budget"] is None else count(options["budget"])
        self.largest_share = options["largest_share"] or largest_share

    def need_budget(self, why: str) -> float:
        if self.budget is None:
            raise UsageError(f"{why} needs --budget, the number of tokens that the run will train")
        return self.budget

    def need_tokens(self, why: str) -> dict[str, float]:
        if not self.tokens:
            raise UsageError(f"{why} needs token counts: --counts FILE or --tokens NAME=N for each domain")
        return self.tokens

    def bounds(self) -> Bounds:
        from headrace.mixer.caps import Bounds, epoch_caps
        from headrace.mixer.result import weights_of

        caps: dict[str, float] = {}
        if self.options["max_epochs"] is not None:
            tokens, budget = self.need_tokens("--max-epochs"), self.need_budget("--max-epochs")
            caps = epoch_caps(tokens, budget, self.options["max_epochs"])
        for name, weight in pairs(self.options["cap"], option="--cap", number=part).items():
            caps[name] = min(weight, caps.get(name, weight))
        previous = self.options["previous"]
        return Bounds(
            caps=caps,
            floor=self.options["floor"],
            largest_share=self.largest_share,
            largest_change=self.options["largest_change"],
            previous=None if previous is None else weights_of(previous),
            excluded=frozenset(self.options["exclude"]),
        )

    def finish(self, method: str, raw: Mapping[str, float], **details: Any) -> None:
        """Run the pipeline, add epochs where they are known, print, and write the file."""
        from headrace.mixer.epochs import epochs
        from headrace.mixer.files import digest_numbers
        from headrace.mixer.result import finish

        parameters, inputs = dict(details.pop("parameters", {})), dict(details.pop("inputs", {}))
        if self.tokens:
            inputs["tokens"] = digest_numbers(self.tokens)
        if self.budget is not None:
            parameters["budget"] = self.budget
        mixture = finish(method, raw, self.bounds(), parameters=parameters, inputs=inputs, **details)
        known = self.budget is not None and set(mixture.weights) <= set(self.tokens)
        read = epochs(mixture.weights, self.tokens, self.budget or 1.0) if known else {}
        self.show(mixture, read)

    def show(self, mixture: Mixture, read: Mapping[str, float]) -> None:
        out, dry = self.options["out"], self.options["dry_run"]
        if out is not None and not dry:
            mixture.save(out)
        if self.options["as_json"]:
            click.echo(mixture.to_json(), nl=False)
        elif self.options["as_toml"]:
            click.echo(mixture.to_toml())
        else:
            table(mixture, read)
            if out is not None:
                click.echo(f"{'would write' if dry else 'wrote'} {out}")


def table(mixture: Mixture, read: Mapping[str, float]) -> None:
    """A table of domains: raw weight, weight, epochs, and the bound that holds it."""
    bound = {entry.domain: f"{entry.kind} {entry.limit:.6f}" for entry in mixture.caps.bound}
    width = max(6, *(len(name) for name in mixture.weights))
    click.echo(" ".join(filter(None, ["method", mixture.method, mixture.convention])))
    click.echo(f"{'domain':<{width}}  {'raw':>8}  {'weight':>8}  {'epochs':>8}  bound")
    for name, weight in mixture.weights.items():
        repeats = f"{read[name]:8.3f}" if name in read else f"{'-':>8}"
        click.echo(f"{name:<{width}}  {mixture.raw[name]:8.6f}  {weight:8.6f}  {repeats}  {bound.get(name, '-')}")
    for name, value in mixture.diagnostics.items():
        if not isinstance(value, dict | list):
            click.echo(f"{name}: {value:.6g}" if isinstance(value, float) else f"{name}: {value}")
    click.echo(f"moved by bounds: {mixture.caps.moved:.6f}")
    for text in (*mixture.warnings, *mixture.caps.notes):
        click.echo(f"warning: {text}")
