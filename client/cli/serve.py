"""`headrace serve SERVER.toml`: runs the data server until SIGTERM or Ctrl-C."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from headrace.server.service.config import ServerConfig


@click.command()
@click.argument("config", type=click.Path(path_type=Path))
@click.option("--check", is_flag=True, help="Check the file and all that it names, and stop.")
@click.option(
    "--log-level", type=click.Choice(["debug", "info", "warning", "error"]), default="info", show_default=True
)
@click.option(
    "--log-format",
    type=click.Choice(["text", "json", "logfmt"]),
    default="text",
    show_default=True,
    help="json and logfmt put event, run, step and remedy of a line into fields.",
)
def serve(config: Path, check: bool, log_level: str, log_format: str) -> None:
    """Serve the runs of a control store over gRPC, as CONFIG (SERVER.toml) says.

    Stops on SIGTERM or Ctrl-C: reports NOT_SERVING, lets calls under way end, writes what trainers have confirmed.
    """
    from headrace.server.service.app import serve as run_server
    from headrace.server.service.config import ServerConfig
    from headrace.server.service.logs import set_up

    set_up(log_level, log_format)
    settings = ServerConfig.load(config)
    if check:
        _check(config, settings)
        return
    asyncio.run(run_server(settings))


def _check(config: Path, settings: ServerConfig) -> None:
    """Prints what was found; leaves with the exit code of the first error, when all has been looked at."""
    from headrace.server.service.check import check_config

    errors = []
    for finding in check_config(settings):
        if finding.error is None:
            click.echo(finding.text)
        else:
            click.echo(f"error: {finding.error}", err=True)
            errors.append(finding.error)
    if errors:
        sys.exit(errors[0].exit_code)
    click.echo(f"{config}: good")
