"""`headrace serve SERVER.toml`: runs the data server until SIGTERM or Ctrl-C."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

import click


@click.command()
@click.argument("config", type=click.Path(path_type=Path))
@click.option("--check", is_flag=True, help="Check the file and stop.")
@click.option(
    "--log-level", type=click.Choice(["debug", "info", "warning", "error"]), default="info", show_default=True
)
def serve(config: Path, check: bool, log_level: str) -> None:
    """Serve the runs of a control store over gRPC, as CONFIG (SERVER.toml) says.

    Stops on SIGTERM or Ctrl-C: reports NOT_SERVING, lets calls under way end, writes what trainers have confirmed.
    """
    from headrace.server.service.app import serve as run_server
    from headrace.server.service.config import ServerConfig

    logging.basicConfig(level=log_level.upper(), format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    settings = ServerConfig.load(config)
    if check:
        click.echo(f"{config}: good")
        return
    asyncio.run(run_server(settings))
