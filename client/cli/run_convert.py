"""`headrace run convert mosaic|megatron`: the mix of another loader as the `weights` of a RUN.toml."""

from __future__ import annotations

import json
from pathlib import Path

import click
from headrace.client.cli.common import json_option
from headrace.proto.errors import ConfigError
from headrace.server.plan.convert import Mix, from_megatron, from_mosaic


@click.group()
def convert() -> None:
    """Turn the mix of another loader into weights of ours, to be put into a [[phase]]."""


@convert.command()
@click.argument("file", type=click.Path(path_type=Path))
@json_option
def mosaic(file: Path, as_json: bool) -> None:
    """MosaicML streams from a JSON file.

    FILE holds {"streams": {NAME: {"proportion": P}, ...}, "sizes": {NAME: SAMPLES, ...}, "epoch_size": N}; a stream may
    have `repeat` or `choose` instead of `proportion`, and `epoch_size` may be left out.
    """
    try:
        values = json.loads(file.read_text(encoding="utf-8"))
        streams, sizes, epoch_size = values["streams"], values.get("sizes", {}), values.get("epoch_size")
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise ConfigError(f"{file}: not a JSON file with `streams` and `sizes`: {error}; see --help") from None
    _show(from_mosaic(streams, sizes, epoch_size), as_json)


@convert.command()
@click.argument("items", nargs=-1, required=True)
@click.option("--tokens", multiple=True, metavar="DOMAIN=TOKENS", help="Size of a domain, for a blend without weights.")
@json_option
def megatron(items: tuple[str, ...], tokens: tuple[str, ...], as_json: bool) -> None:
    """Megatron's --data-path: weights and prefixes by turns, or prefixes alone."""
    sizes = {}
    for entry in tokens:
        name, _, count = entry.partition("=")
        if not count.isdigit():
            raise ConfigError(f"`--tokens {entry}`: write DOMAIN=TOKENS with a whole number")
        sizes[name] = int(count)
    _show(from_megatron(" ".join(items).split(), sizes), as_json)


def _show(mix: Mix, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps({"weights": dict(mix.weights), "samples": mix.samples}))
        return
    click.echo(mix.to_toml())
    if mix.samples is not None:
        click.echo(f"# one epoch there is {mix.samples} samples: steps = {mix.samples} / batch")
