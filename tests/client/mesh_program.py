"""Four processes on a mesh of 2 data-parallel x 2 tensor-parallel ranks; asserts by itself what must hold.

RANK=... WORLD_SIZE=4 MASTER_ADDR=... MASTER_PORT=... python mesh_program.py ADDRESS
"""

from __future__ import annotations

import sys

import pytest
import torch
import torch.distributed as dist
from headrace.client import StallError
from headrace.client.torch import BroadcastLoader, Loader, PeerError
from headrace.client.torch.groups import place_in_group, place_in_mesh
from headrace.proto.errors import UsageError
from torch.distributed.device_mesh import init_device_mesh

address = sys.argv[1]
dist.init_process_group("gloo")
mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp_shard", "tp"))
data, tensor = mesh.get_coordinate()

# Where each process stands.
place = place_in_mesh(mesh)
assert (place.rank, place.world) == (data, 2)
assert place.first == (dist.get_rank() == 0)
assert (place_in_group().rank, place_in_group().world) == (dist.get_rank(), 4)
flat = place_in_mesh(mesh, ["dp_shard", "tp"])
assert (flat.rank, flat.world) == (2 * data + tensor, 4)
wide = place_in_mesh(init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp_replicate", "dp_shard")))
assert (wide.rank, wide.world, wide.first) == (dist.get_rank(), 4, dist.get_rank() == 0)
total = torch.tensor(float(dist.get_rank()))
for group in wide.groups:
    dist.all_reduce(total, group=group)
assert total == 0 + 1 + 2 + 3
# The last pipeline stage has the losses, so a process of it is to send them.
staged = place_in_mesh(init_device_mesh("cpu", (2, 2), mesh_dim_names=("pp", "dp")))
assert (staged.rank, staged.world, staged.first) == (dist.get_rank() % 2, 2, dist.get_rank() in (0, 2))
for wrong in (["pp"], []):
    with pytest.raises(UsageError, match="dp_shard, tp"):
        place_in_mesh(mesh, wrong)


def gathered(tensor: torch.Tensor) -> list[torch.Tensor]:
    parts = [torch.empty_like(tensor) for _ in range(4)]
    dist.all_gather(parts, tensor.contiguous())
    return parts


# Peers read the same rows, data-parallel ranks different ones; losses are summed once, over data-parallel ranks only.
with Loader.for_mesh(address, "toy", mesh, micro_batches=2) as loader:
    for _ in range(4):
        batch = next(loader)
        zero, zero_peer, one, one_peer = gathered(batch.input_ids)
        assert torch.equal(zero, zero_peer)
        assert torch.equal(one, one_peer)
        assert not torch.equal(zero, one)
        loader.report(torch.ones(batch.labels.shape), batch, reference=torch.full(batch.labels.shape, 0.25))
    state = loader.state_dict()
    assert state["next_step"] == 2
dist.barrier()

# One peer reads for both.
peers = mesh.get_group("tp")
reader = None
if tensor == 0:
    reader = Loader(address, "toy", rank=data, world=2, mode="observe")
shared = BroadcastLoader(reader, peers)
assert shared.state_dict()["next_step"] == 0
shared.load_state_dict(state)
for step in range(2, 5):
    batch = next(shared)
    assert batch.step == step
    assert shared.state_dict()["next_step"] == step + 1
    for name in ("token_ids", "labels", "position_ids", "cu_seqlens", "loss_weight"):
        value = getattr(batch, name).to(torch.int64)
        copy = value.clone()
        dist.broadcast(copy, src=dist.get_global_rank(peers, 0), group=peers)
        assert torch.equal(value, copy), name
rest = [batch.step for batch in shared]
assert rest == list(range(5, 12)), rest
assert next(shared, None) is None


class Broken:
    """A reader whose server is gone."""

    def __next__(self) -> None:
        raise StallError("no batch came")


failing = BroadcastLoader(Broken() if tensor == 0 else None, peers)  # type: ignore[arg-type]
with pytest.raises(StallError if tensor == 0 else PeerError, match="no batch came"):
    next(failing)
shared.close()
dist.destroy_process_group()
