"""`headrace state`: look at what a checkpoint says of the stream."""

from __future__ import annotations

import warnings
import zipfile
from pathlib import Path
from typing import Any

import click
from headrace.client.cli.common import json_option, print_json, print_pairs
from headrace.client.state import KEYS, State, load_file, only_state
from headrace.proto.errors import UsageError


@click.group()
def state() -> None:
    """Look at a loader's state in a checkpoint."""


@state.command()
@click.argument("file", type=click.Path(path_type=Path))
@json_option
def show(file: Path, as_json: bool) -> None:
    """Check the state in FILE and print it.

    FILE is JSON, or what torch.save wrote: the state itself, or a checkpoint that holds one. Of a folder that Hugging
    Face's Trainer or torch.distributed.checkpoint wrote, name the folder.
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
    if file.is_dir():
        return _in_folder(file)
    if not zipfile.is_zipfile(file):
        return load_file(file)
    import torch

    try:
        # Only plain types and tensors are read, and no tensor is loaded into memory.
        document = torch.load(file, map_location="meta", weights_only=True)
    except Exception as error:
        raise UsageError(f"{file}: cannot be read as a checkpoint of torch.save: {error}") from None
    return only_state(document, place=str(file))


def _in_folder(folder: Path) -> State:
    """What the adapter for Hugging Face put beside the model, or one state among what DCP saved."""
    if (folder / "headrace.json").exists():
        return load_file(folder / "headrace.json")
    if (folder / ".metadata").exists():
        return only_state(_saved_by_dcp(folder), place=str(folder))
    inside = sorted(path.name for path in folder.iterdir())
    raise UsageError(
        f"{folder} is a folder without headrace.json (Hugging Face's Trainer) and without .metadata "
        f"(torch.distributed.checkpoint): name the file that the trainer saved"
        f"{', one of ' + ', '.join(inside[:5]) if inside else '; this folder is empty'}{', ...' * (len(inside) > 5)}"
    )


def _saved_by_dcp(folder: Path) -> dict[str, Any]:
    """The states in the checkpoint under their names; nothing else of it is read."""
    from torch.distributed.checkpoint.filesystem import FileSystemReader
    from torch.distributed.checkpoint.state_dict_loader import load

    saved = FileSystemReader(folder).read_metadata().state_dict_metadata
    names = [key.removesuffix(".next_step") for key in saved if key.endswith(".next_step")]
    found: dict[str, Any] = {
        name: dict.fromkeys(KEYS) for name in names if {f"{name}.{key}" for key in KEYS} <= set(saved)
    }
    if found:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of there being one process, which is meant
            load(found, checkpoint_id=folder, no_dist=True)
    return found
