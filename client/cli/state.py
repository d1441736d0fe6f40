"""`headrace state`: look at what a checkpoint says of the stream."""

from __future__ import annotations

from pathlib import Path

import click
from headrace.client.cli.common import json_option, print_json, print_pairs
from headrace.client.state import load_file


@click.group()
def state() -> None:
    """Look at a loader's state in a checkpoint."""


@state.command()
@click.argument("file", type=click.Path(path_type=Path))
@json_option
def show(file: Path, as_json: bool) -> None:
    """Check the state in FILE (JSON: the state itself, or a document that holds one) and print it."""
    found = load_file(file).to_dict()
    if as_json:
        print_json(found)
        return
    print_pairs(
        [
            ("run", found["run_id"]),
            ("next step", f"{found['next_step']} (the trainer has taken {found['next_step']} steps)"),
            ("spec digest", found["spec_digest"]),
            ("plan hash", f"{found['plan_hash']} (at the next step)"),
            ("schema", found["schema"]),
        ]
    )
