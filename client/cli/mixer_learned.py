"""`headrace mixer doremi`, `doge` and `aioli`: weights that are learned while a proxy trains on served runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click
from headrace.client.cli.common import Target, access_options
from headrace.client.cli.mixer_proxy import Lines, describe
from headrace.proto.errors import UsageError

if TYPE_CHECKING:
    from headrace.mixer.proxy.session import ProxyPlan
    from headrace.mixer.result import Mixture

Command = TypeVar("Command", bound=Callable[..., Any])


def training(command: Command) -> Command:
    """Options of the proxy's training and of the result."""
    for option in (
        click.option("--out", "folder", type=click.Path(path_type=Path), required=True, help="Checkpoints and result."),
        click.option("--size", default="tiny", show_default=True, help="tiny, small or chameleon-82m."),
        click.option("--steps", type=click.IntRange(min=1), help="Steps to train; default: what goes with the size."),
        click.option("--seed", type=int, default=0, show_default=True),
        click.option("--device", default="cpu", show_default=True, help="torch device, such as cuda."),
        click.option("--largest-share", type=float, default=1.0, show_default=True, help="Largest weight of a domain."),
        click.option("--json", "as_json", is_flag=True, help="Print the result as JSON."),
        click.option("--dry-run", is_flag=True, help="Look at the run and say what would be trained."),
    ):
        command = option(command)
    return command


def plan_of(options: dict[str, Any], target: Target) -> ProxyPlan:
    """The plan that the options and the target stand for."""
    from headrace.mixer.proxy.session import ProxyPlan

    chosen = {name: options[name] for name in ("size", "steps", "seed", "device")}
    return ProxyPlan(**chosen, connection=target.connection())


def show(mixture: Mixture, folder: Path, as_json: bool) -> None:
    """The result, as JSON or as a table."""
    from headrace.client.cli.mixer_options import table

    if as_json:
        click.echo(mixture.to_json(), nl=False)
    else:
        table(mixture, {})
        click.echo(f"result in {folder / 'mixture.json'}")


@click.command()
@click.argument("run")
@click.option("--reference-run", required=True, help="Run that the reference trains on, natural weights as a rule.")
@click.option("--mode", type=click.Choice(["paper", "sampled"]), default="paper", show_default=True)
@click.option("--eta", type=float, default=1.0, show_default=True, help="Step size of the weights.")
@click.option("--smoothing", type=float, default=1e-3, show_default=True, help="Part of uniform mixed in each step.")
@click.option("--rounds", type=click.IntRange(min=1), default=1, show_default=True, help="At most so many rounds.")
@click.option(
    "--tolerance", type=float, default=1e-3, show_default=True, help="Rounds end when no weight moves so far."
)
@click.option("--template", type=click.Path(path_type=Path), help="RUN.toml of the later rounds' references.")
@training
@access_options
def doremi(
    run: str,
    reference_run: str,
    mode: Any,
    eta: float,
    smoothing: float,
    rounds: int,
    tolerance: float,
    template: Path | None,
    target: Target,
    **options: Any,
) -> None:
    """DoReMi on RUN (equal weights): the average weights that chase the excess loss over a reference.

    In later rounds the reference trains on the weights of the round before, on runs made from --template.
    """
    from headrace.mixer.caps import Bounds
    from headrace.mixer.doremi import DoremiSpec
    from headrace.mixer.proxy.rounds import doremi_rounds

    plan, server = plan_of(options, target), target.need_server()
    if options["dry_run"]:
        describe(server, reference_run, plan)
        describe(server, run, plan)
        return
    if rounds > 1 and template is None:
        raise UsageError("doremi: --rounds needs --template, the RUN.toml of which the later references' runs are made")
    mixture = doremi_rounds(
        server,
        reference_run=reference_run,
        make_reference=lambda number, weights: make_reference(target, template, options["folder"], number, weights),
        run=run,
        rounds=rounds,
        tolerance=tolerance,
        folder=options["folder"],
        plan=plan,
        spec=DoremiSpec(eta=eta, smoothing=smoothing),
        mode=mode,
        bounds=Bounds(largest_share=options["largest_share"]),
        on_step=Lines(),
    )
    show(mixture, options["folder"], options["as_json"])


def make_reference(
    target: Target, template: Path | None, folder: Path, number: int, weights: Mapping[str, float]
) -> str:
    """Make the run of a round's reference on the server; its name."""
    from headrace.client.cli.mixer_options import read_text
    from headrace.mixer.ablate import spec_text
    from headrace.mixer.remote import create_run

    assert template is not None
    name = f"{folder.resolve().name}-reference-{number}"
    spec = spec_text(read_text(template), name=name, weights=weights, place=str(template))
    create_run(target.need_server(), spec, base_dir=template.resolve().parent, **target.connection())
    return name


@click.command()
@click.argument("run")
@click.option("--mu", type=float, default=0.01, show_default=True, help="Step size of the weights is 1 / mu.")
@click.option("--target-domain", multiple=True, help="Domain to serve; repeat. Default: all of them.")
@click.option("--without-self", is_flag=True, help="Leave a domain's product with itself out.")
@training
@access_options
def doge(
    run: str, mu: float, target_domain: tuple[str, ...], without_self: bool, target: Target, **options: Any
) -> None:
    """DoGE on RUN (equal weights): the average weights that follow how domains' gradients serve each other."""
    from headrace.mixer.caps import Bounds
    from headrace.mixer.doge import DogeSpec
    from headrace.mixer.proxy.config import train_config
    from headrace.mixer.proxy.learned import doge_weights

    plan, server = plan_of(options, target), target.need_server()
    if options["dry_run"]:
        describe(server, run, plan)
        return
    spec = DogeSpec(lr=train_config(plan.size).lr, mu=mu, self_term=not without_self, targets=target_domain)
    bounds = Bounds(largest_share=options["largest_share"])
    mixture = doge_weights(
        server, run=run, folder=options["folder"], plan=plan, spec=spec, bounds=bounds, on_step=Lines()
    )
    show(mixture, options["folder"], options["as_json"])


@click.command()
@click.argument("run")
@click.option("--held-out", required=True, metavar="RUN", help="Run whose steps are the held-out windows (kind eval).")
@click.option("--windows", type=click.IntRange(min=1), default=64, show_default=True, help="Of each domain, about.")
@click.option("--eta", type=float, default=0.2, show_default=True, help="Step size of the weights.")
@click.option("--rounds", type=click.IntRange(min=1), default=4, show_default=True, help="Measurings of each domain.")
@click.option("--measure", type=click.IntRange(min=1), default=4, show_default=True, help="Steps of one measuring.")
@click.option("--every", type=click.IntRange(min=1), default=100, show_default=True, help="Steps between them.")
@click.option("--concentration", type=float, default=0.75, show_default=True, help="Weight of the measured domain.")
@training
@access_options
def aioli(
    run: str,
    held_out: str,
    windows: int,
    eta: float,
    rounds: int,
    measure: int,
    every: int,
    concentration: float,
    target: Target,
    **options: Any,
) -> None:
    """Aioli on RUN (equal weights): weights that follow how much training on one domain lowers the losses of all."""
    from dataclasses import replace

    from headrace.mixer.aioli import AioliSpec
    from headrace.mixer.caps import Bounds
    from headrace.mixer.proxy.learned import aioli_weights

    plan, server = replace(plan_of(options, target), windows=windows), target.need_server()
    spec = AioliSpec(eta=eta, rounds=rounds, steps=measure, every=every, concentration=concentration)
    if options["dry_run"]:
        describe(server, run, plan)
        return
    mixture = aioli_weights(
        server,
        run=run,
        held_out=held_out,
        folder=options["folder"],
        plan=plan,
        spec=spec,
        bounds=Bounds(largest_share=options["largest_share"]),
        on_step=Lines(),
    )
    show(mixture, options["folder"], options["as_json"])
