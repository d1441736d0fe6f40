"""`headrace demo`: the command alone; what it does is in `headrace.client.cli.demo.path`."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import click
from headrace.client.cli.main import MissingExtraError

_NEEDED = (
    "babel",
    "django",
    "grpc_health",
    "prometheus_client",
    "pyarrow",
    "scipy",
    "sqlalchemy",
    "torch",
    "zstandard",
)


@click.command()
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    default=Path("demo-out"),
    show_default=True,
    help="Folder to write, about 100 MB; made fresh, and refused when it holds anything that no demo made.",
)
def demo(out: Path) -> None:
    """Run the whole path on text that this machine already has.

    Tokenizers, corpus, a proxy and its weights, a server, two trainers, a swap of the weights, a crash of the server
    and of the trainers, a resume on four ranks, and the proof that what was served is what was planned. It needs
    no network and no accelerator, less than three minutes on two cores, and ends with exit code 1 when any check fails.
    """
    missing = [name for name in _NEEDED if find_spec(name) is None]
    if missing:
        raise MissingExtraError(
            f"the demo needs packages that the base install leaves out (`{missing[0]}` first); "
            "install them with: pip install 'headrace[demo]'"
        )
    from headrace.client.cli.demo.path import run_demo

    run_demo(out)
