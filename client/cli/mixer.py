"""`headrace mixer`: compute weights, keep them with their provenance, print them for a RUN.toml.

Every method goes through the same pipeline of caps (`headrace.mixer.result.finish`); the command only reads inputs and
prints. Numbers of tokens may be written as 80B, 1.5T or 1_000.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click
from headrace.client.cli import mixer_ablate, mixer_learned, mixer_proxy, mixer_serve, mixer_view
from headrace.proto.errors import ConfigError, UsageError

if TYPE_CHECKING:
    from headrace.mixer.caps import Bounds
    from headrace.mixer.result import Mixture

Command = TypeVar("Command", bound=Callable[..., Any])
_SUFFIXES = {"K": 1e3, "M": 1e6, "B": 1e9, "T": 1e12}


def count(text: str) -> float:
    """A number of tokens: 1_000, 80B, 1.5T. Raises UsageError."""
    body, scale = (text[:-1], _SUFFIXES[text[-1:].upper()]) if text[-1:].upper() in _SUFFIXES else (text, 1.0)
    try:
        return float(body) * scale
    except ValueError as error:
        raise UsageError(f"`{text}` is no number of tokens; write one such as 1_000, 80B or 1.5T") from error


def pairs(entries: tuple[str, ...], *, option: str, number: Callable[[str], float]) -> dict[str, float]:
    """NAME=NUMBER options as a mapping; a name given twice is refused."""
    found: dict[str, float] = {}
    for entry in entries:
        name, equals, value = entry.partition("=")
        if not equals or name in found:
            fault = "names a domain twice" if name in found else "is not NAME=NUMBER"
            raise UsageError(f"{option} `{entry}` {fault}")
        found[name] = number(value)
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
    text = read_text(path)
    try:
        table = json.loads(text) if path.suffix == ".json" else tomllib.loads(text)
    except ValueError as error:
        raise ConfigError(f"`{path}`: cannot be read: {error}") from error
    if not isinstance(table, dict):
        raise ConfigError(f"`{path}`: holds a list or a single value; a table of `domain = number` is needed")
    return table


def tokens_of(path: Path | None, entries: tuple[str, ...]) -> dict[str, float]:
    """Token counts from a table of numbers, with single ones added or replaced by --tokens."""
    table = read_table(path) if path else {}
    found = {name: count(value) if isinstance(value, str) else value for name, value in table.items()}
    return found | pairs(entries, option="--tokens", number=count)


def sources(command: Command) -> Command:
    """Options that say how many tokens each domain holds."""
    for option in (
        click.option("--tokens", multiple=True, metavar="NAME=N", help="Tokens of a domain; repeat for each."),
        click.option("--counts", type=click.Path(path_type=Path), help="TOML or JSON table of domain = tokens."),
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
        self.tokens = tokens_of(options["counts"], options["tokens"])
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


@click.group()
def mixer() -> None:
    """Find mixture weights, and push them."""


for _command in (
    mixer_proxy.proxy,
    mixer_learned.doremi,
    mixer_learned.doge,
    mixer_ablate.ablate,
    mixer_serve.serve,
    mixer_view.compare,
    mixer_view.content,
):
    mixer.add_command(_command)


@mixer.group()
def compute() -> None:
    """Compute weights by a METHOD and keep them in a result file."""


@compute.command()
@click.option("--domain", multiple=True, help="A domain; repeat (or give token counts).")
@shared
def uniform(domain: tuple[str, ...], **options: Any) -> None:
    """The same weight for every domain."""
    from headrace.mixer import static

    request = Request(options)
    request.finish("uniform", static.uniform(domain or request.need_tokens("uniform")))


@compute.command()
@shared
def natural(**options: Any) -> None:
    """In proportion to the token counts."""
    from headrace.mixer import static

    request = Request(options)
    request.finish("natural", static.natural(request.need_tokens("natural")))


@compute.command()
@click.option("--t", "exponent", type=float, required=True, help="Temperature: 1 is natural, larger is flatter.")
@shared
def temperature(exponent: float, **options: Any) -> None:
    """In proportion to tokens^(1/T)."""
    from headrace.mixer import static

    request = Request(options)
    weights = static.temperature(request.need_tokens("temperature"), exponent)
    request.finish("temperature", weights, parameters={"t": exponent})


@compute.command()
@click.option("--epochs", type=float, default=4.0, show_default=True, help="Most epochs of any domain.")
@shared
def unimax(epochs: float, **options: Any) -> None:
    """As uniform as the epochs allow; says what could not be spent."""
    from headrace.mixer import static

    request = Request(options)
    result = static.unimax(request.need_tokens("unimax"), request.need_budget("unimax"), epochs)
    short = f"{result.shortfall:.6g} tokens of the budget exceed {epochs:g} epochs of every domain"
    request.finish(
        "unimax",
        result.weights,
        parameters={"epochs": epochs},
        diagnostics={"shortfall": result.shortfall},
        warnings=(short,) if result.shortfall else (),
    )


@compute.command()
@click.option("--target", multiple=True, required=True, metavar="NAME=E", help="Target epochs of a domain; repeat.")
@shared
def epochs(target: tuple[str, ...], **options: Any) -> None:
    """From target epochs per domain."""
    from headrace.mixer import static

    request = Request(options)
    wanted = pairs(target, option="--target", number=part)
    result = static.from_epochs(request.need_tokens("epochs"), wanted, request.need_budget("epochs"))
    request.finish(
        "epochs",
        result.weights,
        parameters={"target": wanted},
        diagnostics={"scale": result.scale, "realized": result.realized},
    )


@compute.command()
@click.option("--weight", multiple=True, metavar="NAME=W", help="Part of a domain, any finite number >= 0; repeat.")
@click.option("--weights", "path", type=click.Path(path_type=Path), help="TOML or JSON table of domain = part.")
@shared
def manual(weight: tuple[str, ...], path: Path | None, **options: Any) -> None:
    """Weights as you write them, normalised and put through the caps."""
    from headrace.mixer import static

    parts = (read_table(path) if path else {}) | pairs(weight, option="--weight", number=part)
    Request(options).finish("manual", static.manual(parts))


@compute.command("krls")
@click.option("--embeddings", type=click.Path(path_type=Path), required=True, help="File of `headrace mixer proxy`.")
@click.option("--convention", type=click.Choice(["paper", "reference"]), default="reference", show_default=True)
@click.option("--purpose", type=click.Choice(["pretrain", "finetune"]), default="pretrain", show_default=True)
@click.option("--lam", type=float, help="Lambda, absolute (the released code: 10).")
@click.option("--relative-lam", type=float, help="Lambda over the mean squared norm of the embeddings; default: 0.1.")
@click.option("--temperature", "softness", type=float, help="Temperature of the softmax.")
@click.option("--unit-length/--any-length", default=None, help="Scale embeddings to length 1 first; default: yes.")
@click.option("--as-published", is_flag=True, help="Lambda 10 and embeddings of any length, as the convention has it.")
@shared
def krls_(
    embeddings: Path,
    convention: Any,
    purpose: Any,
    lam: float | None,
    relative_lam: float | None,
    softness: float | None,
    unit_length: bool | None,
    as_published: bool,
    **options: Any,
) -> None:
    """Chameleon: leverage scores of domain embeddings.

    By default lambda is a tenth of the mean squared norm and embeddings are scaled to length 1: weights of small
    proxies vary less from seed to seed that way. No domain of three or more gets over half unless --largest-share
    says so.
    """
    from headrace.mixer.embeddings import load_embeddings
    from headrace.mixer.krls import DEFAULT_LARGEST_SHARE, KrlsSpec, krls

    if lam is None and relative_lam is None and not as_published:
        relative_lam = 0.1
    spec = KrlsSpec(
        convention=convention,
        purpose=purpose,
        lam=lam,
        relative_lam=relative_lam,
        temperature=softness,
        unit_length=not as_published if unit_length is None else unit_length,
    )
    found = load_embeddings(embeddings)
    result = krls(found.vectors, spec)
    Request(options, largest_share=DEFAULT_LARGEST_SHARE if len(found.vectors) > 2 else 1.0).finish(
        "krls", result.weights, inputs={"embeddings": found.digest}, **result.details(spec)
    )


@compute.command()
@click.option("--trials", type=click.Path(path_type=Path), required=True, help="Folder that `mixer ablate` filled.")
@click.option("--target", "importance", multiple=True, metavar="NAME=P", help="How much a domain matters; repeat.")
@click.option("--strength", type=float, default=0.05, show_default=True, help="Pull towards the token shares (KL).")
@shared
def loglinear(trials: Path, importance: tuple[str, ...], strength: float, **options: Any) -> None:
    """The best mixture under the caps by a log-linear law fitted to measured ones."""
    from headrace.mixer.loglinear import fit, runs_needed, solve
    from headrace.mixer.static import natural, uniform
    from headrace.mixer.trials import load_trials, rank

    request, found = Request(options), load_trials(trials)
    parts = pairs(importance, option="--target", number=part) or None
    best = rank(found, parts)[0]
    tasks = [name for name in best.losses if parts is None or parts.get(name, 0) > 0]
    mixtures = [trial.weights for trial in found]
    laws = [fit(mixtures, [trial.losses[task] for trial in found]) for task in tasks]
    prior = natural(request.tokens) if request.tokens else uniform(best.weights)
    weights = [1.0 if parts is None else parts[task] for task in tasks]
    solution = solve(laws, prior, request.bounds(), task_weights=weights, strength=strength)
    predicted = sum(w * law.predict(solution.weights) for w, law in zip(weights, laws, strict=True)) / sum(weights)
    needed = runs_needed(len(best.weights))
    few = f"{len(found)} trials for {len(best.weights)} domains; the law wants at least {needed}"
    request.finish(
        "loglinear",
        solution.weights,
        parameters={"strength": strength, "tasks": tasks},
        diagnostics={
            "predicted_target": predicted,
            "best_measured": best.name,
            "best_measured_target": best.target(parts),
            "fit_error": max(law.error for law in laws),
            "flops": sum(trial.flops for trial in found),
        },
        warnings=(few,) if len(found) < needed else (),
    )
