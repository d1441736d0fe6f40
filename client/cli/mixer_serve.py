"""`headrace mixer serve`: weights that follow the losses of a running job."""

from __future__ import annotations

import logging
import signal
import threading
from contextlib import ExitStack, suppress
from pathlib import Path

import click
from headrace.client.cli.common import dry_run_option


@click.command()
@click.argument("config", metavar="MIXER.toml", type=click.Path(path_type=Path))
@click.option("--once", is_flag=True, help="Decide the windows that are settled now, then stop.")
@dry_run_option
def serve(config: Path, once: bool, dry_run: bool) -> None:
    """Watch the losses of a run and propose or push weights, within guardrails, until the run ends.

    Stop it with Ctrl-C or SIGTERM at any time: nothing changes, and started again it goes on from its journal.
    """
    from headrace.mixer.config import read_config
    from headrace.mixer.exposition import exposed
    from headrace.mixer.journal import Journal
    from headrace.mixer.remote import Remote
    from headrace.mixer.serve import Service
    from headrace.proto.errors import UnavailableError

    settings = read_config(config)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    with Remote(settings.server, settings.run, tls=settings.tls, token_file=settings.token_file) as source:
        if dry_run:
            facts = source.facts()
            window = settings.window(facts.lead)
            click.echo(
                f"would watch run `{settings.run}` ({len(facts.weights)} domains, {facts.confirmed} steps taken), "
                f"deciding every {window} steps, mode {settings.mode}, journal in {settings.folder}"
            )
            return
        with suppress(
            UnavailableError
        ):  # a server that is away is waited for; a run that is not there leaves no journal
            source.facts()
        with ExitStack() as stack:
            journal = stack.enter_context(Journal(settings.folder / "journal.jsonl"))
            service = Service(settings, source, journal)
            if settings.metrics:
                where = stack.enter_context(exposed(settings.metrics, service.figures))
                click.echo(f"metrics on http://{where}/metrics", err=True)
            if once:
                click.echo(f"decided {service.tick()} windows")
                return
            stop = threading.Event()
            for name in (signal.SIGINT, signal.SIGTERM):
                signal.signal(name, lambda *_: stop.set())
            service.run(stop)
