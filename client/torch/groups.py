"""Where a process stands among those that train together: from a process group or a device mesh.

Only data-parallel coordinates choose rows. Peers of tensor, context and pipeline parallelism have the same
data-parallel rank, ask for the same rows and get the same bytes.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.distributed as dist
from headrace.proto.errors import UsageError
from torch.distributed import ProcessGroup
from torch.distributed.device_mesh import DeviceMesh

# Names that trainers give to the data-parallel dimensions of a mesh, slowest first.
DATA_DIMENSIONS = ("dp", "dp_replicate", "dp_shard", "ddp", "replicate", "fsdp", "shard", "data")
# Those of pipeline stages: only the last one has losses.
PIPELINE_DIMENSIONS = ("pp", "pipe", "pipeline", "stage")


@dataclass(frozen=True, kw_only=True, slots=True)
class Place:
    """Data-parallel rank of world; `groups` together reduce over all data-parallel ranks; one process is `first`, of
    each pipeline stage."""

    rank: int
    world: int
    first: bool
    groups: tuple[ProcessGroup, ...]


def place_in_group(group: ProcessGroup | None = None) -> Place:
    """Every member of the group (default: all processes) is a data-parallel rank."""
    if not dist.is_initialized():
        raise UsageError("torch.distributed is not initialised: call init_process_group first, or give rank and world")
    chosen = group if group is not None else dist.group.WORLD
    assert chosen is not None
    rank = dist.get_rank(chosen)
    return Place(rank=rank, world=dist.get_world_size(chosen), first=rank == 0, groups=(chosen,))


def place_in_mesh(mesh: DeviceMesh, dimensions: Sequence[str] | None = None) -> Place:
    """The named dimensions (default: those called like DATA_DIMENSIONS) are data-parallel, the first slowest."""
    names = mesh.mesh_dim_names or ()
    chosen = tuple(dimensions) if dimensions is not None else tuple(n for n in names if n in DATA_DIMENSIONS)
    unknown = [name for name in chosen if name not in names]
    if unknown or not chosen:
        raise UsageError(
            f"the mesh has dimensions {', '.join(names) or 'without names'}: "
            f"{f'{unknown[0]!r} is not one of them' if unknown else 'none is known as data-parallel'}; "
            "name the data-parallel ones with dimensions="
        )
    coordinate = mesh.get_coordinate()
    if coordinate is None:
        raise UsageError("this process is not in the mesh, so it has no rank in it")
    rank, world = 0, 1
    for name in chosen:
        size = mesh.size(names.index(name))
        rank = rank * size + coordinate[names.index(name)]
        world *= size
    return Place(
        rank=rank,
        world=world,
        first=not any(at for name, at in zip(names, coordinate, strict=True) if name not in PIPELINE_DIMENSIONS),
        groups=tuple(mesh.get_group(name) for name in chosen),
    )


def peers_of(world: int | None) -> int:
    """How many processes share a data-parallel rank, as far as torch.distributed knows."""
    if not (world and dist.is_available() and dist.is_initialized()):
        return 1
    return max(1, dist.get_world_size() // world)


def shared_job() -> str:
    """One random name that all processes of the default group agree on: for launchers that name no job."""
    device = "cuda" if dist.get_backend() == "nccl" else "cpu"
    name = torch.tensor(list(secrets.token_bytes(8)), dtype=torch.uint8, device=device)
    dist.broadcast(name, src=0)
    return "group-" + bytes(name.tolist()).hex()
