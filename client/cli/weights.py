"""`headrace weights`: show and change the mixture of a run."""

from __future__ import annotations

import json
import math
from pathlib import Path

import click
from headrace.client.cli.change import Change, audit_options, change_options
from headrace.client.cli.common import Target, access_options, json_option
from headrace.client.cli.run_text import event_dict, event_line, info_dict
from headrace.client.cli.source import open_source
from headrace.client.cli.vectors import parse_parts, vector_lines
from headrace.proto.errors import UsageError
from headrace.proto.v1 import control_pb2 as pb


@click.group()
def weights() -> None:
    """Show and change the mixture of a run."""


@weights.command()
@click.argument("name", metavar="RUN")
@json_option
@access_options
def show(name: str, as_json: bool, target: Target) -> None:
    """Print the weights of the first step of RUN that is not sealed."""
    with open_source(target) as source:
        info = source.run(name)
    parts = dict(zip(info.domains, info.weights, strict=True))
    if as_json:
        click.echo(json.dumps({"step": info.seal, "segment": info.segment, "weights": info_dict(info)["weights"]}))
        return
    if json.loads(info.spec_json).get("kind") == "eval":
        click.echo(f"run {name} is an evaluation of {info.end_step} steps, sealed whole; its last step:")
    else:
        click.echo(f"run {name}, step {info.seal} (the first that is not sealed), segment {info.segment}")
    for line in vector_lines(parts):
        click.echo(line)


@weights.command("set")
@click.argument("name", metavar="RUN")
@click.argument("parts", nargs=-1, metavar="[DOMAIN=PART...]")
@click.option(
    "--proposal",
    type=click.Path(path_type=Path),
    help="Take the weights from a result or proposal of `headrace mixer`; the same file changes a run once.",
)
@click.option("--until-step", type=click.IntRange(min=1), help="First step for which they no longer hold.")
@click.option("--loss-weight", "loss_weights", multiple=True, metavar="DOMAIN=WEIGHT", help="Loss weight of a domain.")
@change_options
@json_option
@access_options
def set_(
    name: str,
    parts: tuple[str, ...],
    proposal: Path | None,
    until_step: int | None,
    loss_weights: tuple[str, ...],
    change: Change,
    as_json: bool,
    target: Target,
) -> None:
    """Set the mixture of RUN from its first unsealed step on. Every domain is named; parts are normalised."""
    if bool(parts) == bool(proposal):
        raise UsageError("give the weights as DOMAIN=PART words or by --proposal FILE, one of the two")
    if proposal:
        vector, change = _proposed(proposal, name, change)
    else:
        vector = parse_parts(parts)
    request = pb.SetWeightsRequest(
        run=name,
        weights=vector,
        until_step=until_step,
        loss_weights=_loss_weights(loss_weights),
        **change.fields(),
    )
    with open_source(target, write=True) as source:
        answer = source.set_weights(request)
    change.print_answer(answer, as_json, vector_lines(vector))


def _proposed(path: Path, run: str, change: Change) -> tuple[dict[str, float], Change]:
    """Weights of a result file of the mixer; it gives reason and idempotency key too, where the caller gave none."""
    from headrace.mixer.files import digest_file
    from headrace.mixer.result import load

    mixture = load(path)
    method = " ".join(filter(None, (mixture.method, mixture.convention)))
    key = f"proposal-{run}-{digest_file(path)[:32]}"
    return dict(mixture.weights), change.or_else(reason=f"mixer: {method}", idempotency_key=key)


def _loss_weights(words: tuple[str, ...]) -> dict[str, float]:
    found: dict[str, float] = {}
    for word in words:
        domain, equals, text = word.rpartition("=")
        try:
            found[domain] = float(text)
        except ValueError:
            equals = ""
        if not equals or not math.isfinite(found[domain]) or found[domain] < 0:
            raise UsageError(f"`{word}` is no loss weight; write DOMAIN=WEIGHT with a finite weight of at least 0")
    return found


@weights.command()
@click.argument("name", metavar="RUN")
@json_option
@access_options
def history(name: str, as_json: bool, target: Target) -> None:
    """Print every change of the mixture of RUN: who, when, why, from which step."""
    with open_source(target) as source:
        log = source.events(name)
    if as_json:
        click.echo(json.dumps([event_dict(event) for event in log], indent=2))
        return
    for event in log:
        click.echo(event_line(event))
    if not log:
        click.echo("no changes; the weights are those of the spec")


@weights.command()
@click.argument("name", metavar="RUN")
@click.argument("sequence", type=click.IntRange(min=1))
@audit_options
@json_option
@access_options
def cancel(name: str, sequence: int, change: Change, as_json: bool, target: Target) -> None:
    """Take back event SEQUENCE of RUN, if it does not hold below the seal."""
    request = pb.CancelEventRequest(run=name, sequence=sequence, **change.fields())
    with open_source(target, write=True) as source:
        answer = source.cancel(request)
    change.print_answer(answer, as_json)
