"""`headrace run report RUN`: what became of a run, as one HTML file with plots or as JSON, from its store."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from headrace.client.cli.common import Target, json_option, print_json, target_options
from headrace.proto.errors import UsageError

if TYPE_CHECKING:
    from headrace.server.service.view import View
    from headrace.server.watch.report import Report


@click.command()
@click.argument("name", metavar="RUN")
@click.option("--html", "path", type=click.Path(path_type=Path), help="File to write; `-` is standard output.")
@click.option(
    "--drift-intervals",
    type=click.IntRange(min=0),
    default=16,
    show_default=True,
    help="Last intervals of steps whose text is read for drift; 0: none.",
)
@json_option
@target_options
def report(name: str, path: Path | None, drift_intervals: int, as_json: bool, target: Target) -> None:
    """Write what became of RUN: mixture, epochs, drift, and every change with who and why.

    Opens the store itself (--store), beside a running server or with none. The HTML file needs no network.
    """
    if bool(path) == as_json:
        raise UsageError("give --html FILE or --json, one of the two")
    if target.server or not target.store:
        raise UsageError("a report is made from the store itself: give --store URL; a running server does not mind")
    made = make_report(target.store, name, drift_intervals)
    if as_json:
        print_json(made.as_dict())
        return
    from headrace.server.watch.report import to_html

    assert path is not None
    _write(path, to_html(made))


def make_report(store: str, name: str, drift_intervals: int) -> Report:
    """Everything that a report holds."""
    from headrace.client.cli.store_figures import StoreFigures
    from headrace.server.watch.history import columns
    from headrace.server.watch.log_figures import event_figures
    from headrace.server.watch.report import MOST_DOMAINS, MOST_EVENTS, Report

    opened = StoreFigures(store)
    try:
        view, history, snapshot = opened.look(name, _drift(opened.view(name), drift_intervals))
        run, plan = view.run, view.plan
        domains = [domain.name for domain in snapshot.domains[:MOST_DOMAINS]]
        return Report(
            snapshot=snapshot,
            series=columns(history, history.reach(plan, run.confirmed), plan, domains),
            events=event_figures(plan, view.events, run.confirmed, MOST_EVENTS),
            spec_digest=run.spec_digest.hex(),
            log_head=run.head.hex(),
            author=run.author,
            created_us=run.created_us,
            phases=tuple(asdict(shape) for shape in plan.shapes()),
        )
    finally:
        opened.close()


def _drift(view: View, intervals: int) -> list[dict[str, Any]]:
    if not intervals or view.run.kind == "eval":
        return []
    from headrace.server.watch.drift_offline import last_figures

    return [figure.as_dict() for figure in last_figures(view, intervals)]


def _write(path: Path, text: str) -> None:
    if str(path) == "-":
        click.echo(text, nl=False)
        return
    from headrace.server.corpus.durable import write_file

    write_file(path, text.encode())
    click.echo(f"{path}: {len(text.encode()) / 1e6:.2f} MB")
