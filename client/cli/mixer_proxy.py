"""`headrace mixer proxy`: train the proxy on a served run, embed its domains, and compute KRLS weights."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from headrace.client.cli.common import Target, access_options, dry_run_option

if TYPE_CHECKING:
    from headrace.mixer.proxy.train import StepReport


@click.command()
@click.argument("run")
@click.option(
    "--out", "folder", type=click.Path(path_type=Path), required=True, help="Folder of checkpoint, embeddings, result."
)
@click.option("--size", default="tiny", show_default=True, help="tiny, small or chameleon-82m.")
@click.option("--steps", type=click.IntRange(min=1), help="Steps to train; default: what goes with the size.")
@click.option("--windows", type=click.IntRange(min=1), default=64, show_default=True, help="Windows of each domain.")
@click.option("--depth", type=click.IntRange(min=0), help="Block whose output is embedded; default: the middle one.")
@click.option("--seed", type=int, default=0, show_default=True)
@click.option("--device", default="cpu", show_default=True, help="torch device, such as cuda.")
@click.option("--convention", type=click.Choice(["paper", "reference"]), default="reference", show_default=True)
@click.option("--relative-lam", type=float, default=0.1, show_default=True, help="Lambda over the mean squared norm.")
@click.option("--unit-length/--any-length", default=True, show_default=True, help="Scale embeddings to length 1 first.")
@click.option("--largest-share", type=float, default=0.5, show_default=True, help="Largest weight of any domain.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
@click.option("--dry-run", is_flag=True, help="Look at the run and say what would be trained.")
@access_options
def proxy(run: str, target: Target, folder: Path, as_json: bool, dry_run: bool, **options: Any) -> None:
    """Train a small model on RUN (equal weights are what the method wants), embed its domains, compute KRLS weights.

    Started again with the same arguments it goes on from its checkpoint.
    """
    from headrace.client.cli.mixer_options import table
    from headrace.mixer.caps import Bounds
    from headrace.mixer.krls import KrlsSpec
    from headrace.mixer.proxy.session import ProxyPlan, proxy_weights

    asked = ("size", "steps", "windows", "depth", "seed", "device")
    plan = ProxyPlan(**{name: options[name] for name in asked}, connection=target.connection())
    spec = KrlsSpec(**{name: options[name] for name in ("convention", "relative_lam", "unit_length")})
    server = target.need_server()
    if dry_run:
        describe(server, run, plan)
        return
    outcome = proxy_weights(
        server,
        run,
        folder=folder,
        plan=plan,
        krls_spec=spec,
        bounds=Bounds(largest_share=options["largest_share"]),
        on_step=Lines(),
    )
    if as_json:
        click.echo(outcome.mixture.to_json(), nl=False)
        return
    table(outcome.mixture, {})
    click.echo(f"cost: {outcome.flops:.3g} FLOPs, {outcome.seconds:.1f} s; files in {folder}")


class Lines:
    """A line on stderr every few seconds while the proxy trains."""

    def __init__(self) -> None:
        self._last = 0.0

    def __call__(self, report: StepReport) -> None:
        now = time.monotonic()
        if now - self._last > 3:
            self._last = now
            click.echo(f"proxy: step {report.step}, loss {report.loss:.3f} nats a token", err=True)


def describe(server: str, run: str, plan: Any) -> None:
    """Say what would be trained."""
    from headrace.client import Loader
    from headrace.mixer.proxy.config import model_config, train_config
    from headrace.mixer.proxy.session import shape_of

    with Loader(server, run, rank=0, world=1, mode="observe", **plan.observing) as loader:
        opened = loader.open()
        shape = shape_of(opened)
        config = model_config(plan.size, vocab_size=opened.vocab_size, seq_len=shape.seq_len)
        steps = plan.steps or train_config(plan.size).steps
        tokens = steps * shape.batch * shape.seq_len
        click.echo(
            f"would train {config.parameters:,} parameters for {steps} steps of {shape.batch} rows of {shape.seq_len} "
            f"tokens on {len(opened.domains)} domains: {tokens * config.flops_per_token:.3g} FLOPs"
        )


@click.command()
@click.argument("run")
@click.option(
    "--proxy", "checkpoint", type=click.Path(path_type=Path), required=True, help="proxy.npz of `mixer proxy`."
)
@click.option("--out", type=click.Path(path_type=Path), required=True, help="File of embeddings to write, .npz.")
@click.option("--domain", multiple=True, help="Domain to embed; repeat. Default: all that RUN serves.")
@click.option("--windows", type=click.IntRange(min=1), default=64, show_default=True, help="Windows of each domain.")
@click.option("--depth", type=click.IntRange(min=0), help="Block whose output is embedded; default: the middle one.")
@click.option("--device", default="cpu", show_default=True, help="torch device, such as cuda.")
@dry_run_option
@access_options
def embed(
    run: str,
    target: Target,
    checkpoint: Path,
    out: Path,
    domain: tuple[str, ...],
    windows: int,
    depth: int | None,
    device: str,
    dry_run: bool,
) -> None:
    """Embed domains of RUN by a proxy that is trained already: so a domain joins without training anew.

    Reads the sealed steps, all of a run of kind eval. `compute krls` takes several files of one proxy.
    """
    from headrace.mixer.proxy.checkpoint import load
    from headrace.mixer.proxy.session import ProxyPlan, embed_run

    plan = ProxyPlan(windows=windows, depth=depth, device=device, connection=target.connection())
    found = embed_run(target.need_server(), run, plan, load(checkpoint, device=device).trainer, domains=domain or None)
    if not dry_run:
        found.save(out)
    counts = ", ".join(f"{name} {count}" for name, count in sorted(found.windows.items()))
    click.echo(f"{'would write' if dry_run else 'wrote'} {out}; windows: {counts}")
