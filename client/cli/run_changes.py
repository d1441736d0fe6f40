"""`headrace run branch|grow|mask|forecast|export|import`: what becomes of a run, and taking it elsewhere."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import click
from headrace.client.cli.change import Change, change_options
from headrace.client.cli.common import Target, access_options, dry_run_option, json_option
from headrace.client.cli.source import author, open_source
from headrace.client.cli.terminal import clean
from headrace.client.cli.vectors import parse_parts
from headrace.proto.errors import ConfigError
from headrace.proto.v1 import control_pb2 as pb


def _read(path: Path) -> str:
    try:
        return sys.stdin.read() if str(path) == "-" else path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read {path}: {error}; check the path") from None


@click.command()
@click.argument("parent", metavar="RUN")
@click.argument("name", metavar="NEW")
@click.option("--at", type=click.IntRange(min=0), required=True, help="First step of the new run's own.")
@click.option("--skip", type=click.IntRange(min=0), default=0, help="Steps of data from there on that are never read.")
@click.option("--changes", type=click.Path(path_type=Path), help="File with [[phase]] and [domain.NAME] tables.")
@click.option("--batch", type=click.IntRange(min=1), help="Batch of what is left of the parent's phases.")
@click.option("--weight", "weights", multiple=True, metavar="DOMAIN=PART", help="Weights of what is left of them.")
@click.option("--without-masks", is_flag=True, help="Serve again what RUN takes down only from a step after --at on.")
@dry_run_option
@json_option
@access_options
def branch(
    parent: str,
    name: str,
    at: int,
    skip: int,
    changes: Path | None,
    batch: int | None,
    weights: tuple[str, ...],
    without_masks: bool,
    dry_run: bool,
    as_json: bool,
    target: Target,
) -> None:
    """Make run NEW, which is RUN below step --at and goes its own way from there. RUN is untouched.

    What `run mask` takes down in RUN stays down in NEW, from step --at on.
    """
    request = pb.BranchRunRequest(
        parent=parent,
        at=at,
        name=name,
        skip=skip,
        changes_toml=_read(changes) if changes else "",
        batch=batch,
        weights=parse_parts(weights) if weights else {},
        author=author(),
        dry_run=dry_run,
        without_masks=without_masks,
    )
    with open_source(target, write=True) as source:
        answer = source.branch(request)
    if as_json:
        told = {"name": name, "parent": parent, "at": at, "spec_digest": answer.run.spec_digest.hex()}
        click.echo(json.dumps({**told, "notes": list(answer.notes), "dry_run": dry_run}))
        return
    verb = "would leave" if dry_run else "leaves" if answer.created else "left already, with the same digest,"
    click.echo(f"run {name} {verb} {parent} at step {at}, digest {answer.run.spec_digest.hex()}")
    for note in answer.notes:
        click.echo(f"note: {clean(note)}")


@click.command()
@click.argument("name", metavar="RUN")
@click.argument("domain")
@click.argument("manifest")
@click.option("--join", type=click.Choice(["next_pass", "now"]), default="next_pass", show_default=True)
@change_options
@json_option
@access_options
def grow(name: str, domain: str, manifest: str, join: str, change: Change, as_json: bool, target: Target) -> None:
    """Let the files of MANIFEST (a path on the server) join DOMAIN of RUN; a new name is a new domain."""
    request = pb.GrowDomainRequest(run=name, domain=domain, manifest=manifest, join=join, **change.fields())
    with open_source(target, write=True) as source:
        answer = source.grow(request)
    change.print_answer(answer, as_json)


@click.command()
@click.argument("name", metavar="RUN")
@click.argument("values", nargs=-1, required=True, metavar="VALUE...")
@click.option(
    "--by",
    type=click.Choice(["source", "hash", "field", "shard"]),
    required=True,
    help="What the values name: PATH or PATH:ROW; the text's hash (`headrace corpus hash`); NAME=VALUE of a kept "
    "field; or FOLDER/FILE of a shard that is not to be read any more.",
)
@click.option("--domain", default="", help="Only documents of this domain; default: of every domain.")
@change_options
@json_option
@access_options
def mask(
    name: str, values: tuple[str, ...], by: str, domain: str, change: Change, as_json: bool, target: Target
) -> None:
    """Take documents of RUN down while it goes on: their tokens are served as padding, without labels.

    Windows, weights and every other token stay where they are. `weights cancel` takes an event back while its first
    step is not sealed.
    """
    body = pb.MaskBody(by=by, values=values, domain=domain)
    request = pb.MaskRequest(run=name, mask=body, **change.fields())
    with open_source(target, write=True) as source:
        answer = source.mask(request)
    change.print_answer(answer, as_json)


@click.command()
@click.argument("name", metavar="RUN")
@json_option
@access_options
def forecast(name: str, as_json: bool, target: Target) -> None:
    """Print what RUN will do: tokens and epochs by domain and phase, wraps, caps, and what to look at.

    RUN is a run's name, or a RUN.toml of which no run has been made yet: that needs no server and no store, and changes
    nothing.
    """
    if name.endswith(".toml"):
        answer = _forecast_of_file(Path(name))
    else:
        with open_source(target) as source:
            answer = source.forecast(name)
    click.echo(json.dumps(json.loads(answer.json), indent=2) if as_json else "\n".join(answer.lines))


def _forecast_of_file(path: Path) -> pb.ForecastResponse:
    from headrace.server.service.convert import forecast
    from headrace.server.service.loading import planned

    return forecast(planned(_read(path), place=str(path), base_dir=str(path.resolve().parent)))


@click.command()
@click.argument("name", metavar="RUN")
@access_options
def export(name: str, target: Target) -> None:
    """Print RUN as one document: spec, log, seal, confirmed, digests. `run import` makes it anew in another store."""
    with open_source(target) as source:
        click.echo(source.export(name), nl=False)


@click.command("import")
@click.argument("document", type=click.Path(path_type=Path))
@click.option("--base-dir", default="", help="Folder that the corpus path starts from; default: as exported.")
@dry_run_option
@access_options
def import_run(document: Path, base_dir: str, dry_run: bool, target: Target) -> None:
    """Make the run of DOCUMENT (`-`: standard input) in this store, after recomputing its chain and digests."""
    request = pb.ImportRunRequest(document=_read(document), base_dir=base_dir, dry_run=dry_run)
    with open_source(target, write=True) as source:
        answer = source.import_run(request)
    verb = "could be imported" if dry_run else "imported"
    click.echo(f"run {answer.run.name} {verb}: confirmed {answer.run.confirmed}, seal {answer.run.seal}")
