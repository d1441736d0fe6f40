"""`headrace mixer ablate`: a grid of candidate mixtures, one proxy each, ranked by held-out loss."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from headrace.client.cli.common import Target, access_options
from headrace.proto.errors import UsageError

if TYPE_CHECKING:
    from headrace.mixer.ablate import Job, Sweep
    from headrace.mixer.trials import Trial


def candidates(
    files: Sequence[Path], axes: Sequence[str], swarm: int, tokens: Mapping[str, float], seed: int
) -> dict[str, dict[str, float]]:
    """Named candidate mixtures: result files, a grid and a swarm around the token shares. Raises UsageError."""
    from headrace.mixer.grid import grid
    from headrace.mixer.result import weights_of
    from headrace.mixer.static import natural, uniform
    from headrace.mixer.swarm import SwarmSpec
    from headrace.mixer.swarm import swarm as draw

    found = {path.stem: weights_of(path) for path in files}
    if len(found) < len(files):
        raise UsageError("ablate: two candidate files have one name; name them differently")
    if (swarm or axes) and not tokens:
        raise UsageError("ablate: --swarm and --grid start from the token shares: give --counts, --tokens or --corpus")
    if axes:
        found |= grid(natural(tokens), axes_of(axes))
    if swarm:
        found |= {"natural": natural(tokens), "uniform": uniform(tokens)}
        drawn = draw(tokens, SwarmSpec(runs=swarm, seed=seed))
        found |= {f"swarm-{number:03d}": weights for number, weights in enumerate(drawn)}
    if not found:
        raise UsageError("ablate: no candidate; give result files with --candidate, a --grid, or --swarm K")
    return found


def axes_of(entries: Sequence[str]) -> dict[str, list[float]]:
    """NAME=W,W,... options as weights by domain. Raises UsageError."""
    from headrace.client.cli.mixer_options import part

    found: dict[str, list[float]] = {}
    for entry in entries:
        name, equals, values = entry.partition("=")
        if not equals or name in found:
            raise UsageError(f"--grid `{entry}` {'names a domain twice' if name in found else 'is not NAME=W,W,...'}")
        try:
            found[name] = [part(value) for value in values.split(",")]
        except UsageError as error:
            raise UsageError(f"--grid `{entry}`: {error}") from error
    return found


@click.command()
@click.argument("template", metavar="RUN.toml", type=click.Path(path_type=Path))
@click.option("--held-out", required=True, metavar="RUN", help="Run whose steps are the held-out windows (kind eval).")
@click.option("--out", "folder", required=True, type=click.Path(path_type=Path), help="Trials and checkpoints go here.")
@click.option("--candidate", multiple=True, type=click.Path(path_type=Path), help="Result file; repeat.")
@click.option("--grid", multiple=True, metavar="NAME=W,W,...", help="Try a domain at these weights; repeat for more.")
@click.option("--swarm", type=click.IntRange(min=0), default=0, help="Draw so many candidates around the token shares.")
@click.option("--tokens", multiple=True, metavar="NAME=N", help="Tokens of a domain; repeat for each.")
@click.option("--counts", type=click.Path(path_type=Path), help="TOML or JSON table of domain = tokens.")
@click.option("--corpus", type=click.Path(path_type=Path), help="manifest.json of a corpus: token counts from it.")
@click.option("--target", "importance", multiple=True, metavar="NAME=P", help="How much a domain matters; repeat.")
@click.option("--size", default="tiny", show_default=True, help="tiny, small or chameleon-82m.")
@click.option("--steps", type=click.IntRange(min=1), help="Steps to train; default: what goes with the size.")
@click.option("--windows", type=click.IntRange(min=0), default=0, help="Held-out rows to measure; default: all.")
@click.option("--seed", type=int, default=0, show_default=True)
@click.option("--workers", type=click.IntRange(min=1), default=2, show_default=True, help="Proxies at a time.")
@click.option("--check-size", help="Train the best ones again at this size and compare the ranking.")
@click.option("--check-steps", type=click.IntRange(min=1), help="Steps of those; default: what goes with the size.")
@click.option("--check-top", type=click.IntRange(min=3), default=3, show_default=True, help="How many of them.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option("--dry-run", is_flag=True, help="Print the candidates and what is missing; make nothing.")
@access_options
def ablate(
    template: Path,
    target: Target,
    folder: Path,
    importance: tuple[str, ...],
    check_size: str | None,
    check_steps: int | None,
    check_top: int,
    as_json: bool,
    dry_run: bool,
    **options: Any,
) -> None:
    """Train a proxy on each candidate mixture and rank them by held-out loss.

    RUN.toml is the template of the runs that are made on the server, one a candidate. Started again, the command makes
    what is missing.
    """
    from headrace.client.cli.mixer_options import pairs, part, tokens_of
    from headrace.mixer.ablate import Sweep, sweep_trials
    from headrace.mixer.trials import rank

    parts = pairs(importance, option="--target", number=part) or None
    tokens = tokens_of(options["counts"], options["tokens"], options["corpus"])
    mixtures = candidates(options["candidate"], options["grid"], options["swarm"], tokens, options["seed"])
    sweep = Sweep(
        name=folder.name,
        endpoint=target.need_server(),
        held_out=options["held_out"],
        folder=folder,
        plan={name: options[name] for name in ("size", "steps", "seed")} | {"connection": target.connection()},
        windows=options["windows"],
        workers=options["workers"],
    )
    if dry_run:
        _tell_candidates(sweep, mixtures)
        return
    jobs = make_runs(template, sweep, mixtures)
    ranked = rank(sweep_trials(sweep, jobs, _say), parts)
    agreed = None
    if check_size is not None:
        best = {name: mixtures[name] for name in sorted(trial.name for trial in ranked[:check_top])}
        agreed = _agreement(template, sweep, ranked, best, (check_size, check_steps), parts)
    report(ranked, parts, agreed, as_json)


def _tell_candidates(sweep: Sweep, mixtures: Mapping[str, Mapping[str, float]]) -> None:
    from headrace.mixer.ablate import path_of

    for name, weights in mixtures.items():
        state = "there" if path_of(sweep, name).exists() else "missing"
        click.echo(f"{name} ({state}): " + ", ".join(f"{n} {w:.4f}" for n, w in weights.items()))


def _agreement(
    template: Path,
    sweep: Sweep,
    ranked: Sequence[Trial],
    best: Mapping[str, Mapping[str, float]],
    size: tuple[str, int | None],
    parts: Mapping[str, float] | None,
) -> tuple[float, int]:
    """How well proxies of another size rank the best mixtures alike."""
    from headrace.mixer.ablate import at_size, sweep_trials
    from headrace.mixer.trials import agreement

    larger = at_size(sweep, *size)
    return agreement(ranked, sweep_trials(larger, make_runs(template, larger, best), _say), parts)


def _say(text: str) -> None:
    click.echo(f"ablate: {text}", err=True)


def make_runs(template: Path, sweep: Sweep, mixtures: Mapping[str, Mapping[str, float]]) -> list[Job]:
    """Make a run for each candidate on the server (an equal one that is there is no error)."""
    from headrace.client.cli.mixer_options import read_text
    from headrace.mixer.ablate import Job, spec_text
    from headrace.mixer.remote import create_run

    text, jobs = read_text(template), []
    for name, weights in mixtures.items():
        run = f"{sweep.folder.name}-{name}"
        spec = spec_text(text, name=run, weights=weights, place=str(template))
        create_run(sweep.endpoint, spec, base_dir=template.resolve().parent, **sweep.plan["connection"])
        jobs.append(Job(name=name, weights=dict(weights), run=run))
    return jobs


def report(
    ranked: Sequence[Trial], importance: Mapping[str, float] | None, agreed: tuple[float, int] | None, as_json: bool
) -> None:
    """The ranking, the best measured mixture first."""
    if as_json:
        entries = [
            {"name": t.name, "target": t.target(importance), "losses": t.losses, "weights": t.weights, "flops": t.flops}
            for t in ranked
        ]
        click.echo(json.dumps({"trials": entries, "agreement": agreed}, indent=2))
        return
    domains = list(ranked[0].losses)
    click.echo(f"{'mixture':<16} {'target':>8}  " + "  ".join(f"{name:>10}" for name in domains))
    for trial in ranked:
        losses = "  ".join(f"{trial.losses[name]:10.4f}" for name in domains)
        click.echo(f"{trial.name:<16} {trial.target(importance):8.4f}  {losses}")
    click.echo(f"best measured: {ranked[0].name}; {sum(t.flops for t in ranked):.3g} FLOPs in all")
    if agreed is not None:
        click.echo(f"rank correlation with the larger proxies: {agreed[0]:.3f} over {agreed[1]} mixtures")
