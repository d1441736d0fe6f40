"""`headrace state`: look at what a checkpoint says of the stream."""

from __future__ import annotations

import zipfile
from pathlib import Path

import click
from headrace.client.cli.common import json_option, print_json, print_pairs
from headrace.client.state import State, load_file, only_state
from headrace.proto.errors import UsageError


@click.group()
def state() -> None:
    """Look at a loader's state in a checkpoint."""


@state.command()
@click.argument("file", type=click.Path(path_type=Path))
@json_option
def show(file: Path, as_json: bool) -> None:
    """Check the state in FILE and print it.

    FILE is JSON, or what torch.save wrote: the state itself, or a checkpoint that holds one.
    """
    found = _load(file).to_dict()
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


def _load(file: Path) -> State:
    if not zipfile.is_zipfile(file):
        return load_file(file)
    import torch

    try:
        # Only plain types and tensors are read, and no tensor is loaded into memory.
        document = torch.load(file, map_location="meta", weights_only=True)
    except Exception as error:
        raise UsageError(f"{file}: cannot be read as a checkpoint of torch.save: {error}") from None
    return only_state(document, place=str(file))
