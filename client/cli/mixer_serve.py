"""`headrace mixer serve` and `apply`: weights that go to a running server."""

from __future__ import annotations

import json
import logging
import signal
import threading
from pathlib import Path

import click
from headrace.client.cli.common import Target, dry_run_option, json_option, target_options


@click.command()
@click.argument("config", metavar="MIXER.toml", type=click.Path(path_type=Path))
@click.option("--once", is_flag=True, help="Decide the windows that are settled now, then stop.")
@dry_run_option
def serve(config: Path, once: bool, dry_run: bool) -> None:
    """Watch the losses of a run and propose or push weights, within guardrails, until the run ends.

    Stop it with Ctrl-C or SIGTERM at any time: nothing changes, and started again it goes on from its journal.
    """
    from headrace.mixer.config import read_config
    from headrace.mixer.journal import Journal
    from headrace.mixer.remote import Remote
    from headrace.mixer.serve import Service

    settings = read_config(config)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    with Remote(settings.server, settings.run, token_file=settings.token_file) as source:
        if dry_run:
            facts = source.facts()
            window = settings.window(facts.lead)
            click.echo(
                f"would watch run `{settings.run}` ({len(facts.weights)} domains, {facts.confirmed} steps taken), "
                f"deciding every {window} steps, mode {settings.mode}, journal in {settings.folder}"
            )
            return
        with Journal(settings.folder / "journal.jsonl") as journal:
            service = Service(settings, source, journal)
            if once:
                click.echo(f"decided {service.tick()} windows")
                return
            stop = threading.Event()
            for name in (signal.SIGINT, signal.SIGTERM):
                signal.signal(name, lambda *_: stop.set())
            service.run(stop)


@click.command()
@click.argument("run")
@click.argument("result", type=click.Path(path_type=Path))
@click.option("--reason", default="", help="Why, for the audit log; default: the method.")
@json_option
@dry_run_option
@target_options
def apply(run: str, result: Path, reason: str, as_json: bool, dry_run: bool, target: Target) -> None:
    """Set the weights of RUN to those of a RESULT file or proposal, from the first unsealed step on.

    The domains must be exactly those of the run. Applying the same file twice changes the run once.
    """
    from headrace.client.cli.mixer import table
    from headrace.mixer.files import digest_file
    from headrace.mixer.remote import Remote
    from headrace.mixer.result import load

    mixture = load(result)
    with Remote(target.need_server(), run) as source:
        facts = source.facts()
        key = f"mixer-apply-{facts.run_id}-{digest_file(result)[:32]}"
        why = reason or f"mixer: {mixture.method} {mixture.convention}".strip()
        if dry_run:
            table(mixture, {})
            click.echo(f"would hold from step {facts.seal} on, or later")
            return
        pushed = source.push(mixture, head=facts.head, key=key, reason=why)
    if as_json:
        click.echo(json.dumps({"sequence": pushed.sequence, "from_step": pushed.from_step}))
    else:
        click.echo(f"event {pushed.sequence}: holds from step {pushed.from_step} on")
