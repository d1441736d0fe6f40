"""One process of a group reads the stream, the others get its batches by broadcast.

For peers that train on the same rows (tensor, context, pipeline parallelism): by default each asks the server by
itself, which needs no collective and costs the server the same rows again. Where that is too much, give the group of
peers here; one of them then holds the only connection. What the reader raises is raised by all, so that no peer waits
in a collective for a reader that is gone.

A batch travels as one JSON header and the arrays it names, as bytes; nothing is pickled.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from headrace.client.batch import Batch
from headrace.client.torch.batch import TensorBatch
from headrace.client.torch.loader import Loader
from headrace.client.torch.stage import stage_for
from headrace.proto.errors import HeadraceError, UsageError
from torch.distributed import ProcessGroup

_ARRAYS = ("token_ids", "real_ids", "domain", "loss_weight", "edge_ends", "edges", "mask_ends", "masks", "row_digests")
_NUMBERS = ("step", "segment", "first_slot", "pad_id")


class PeerError(HeadraceError):
    """The process that reads for this one has failed; the message is its own."""


class BroadcastLoader(Iterator[TensorBatch]):
    """Batches of the loader of the group's first process, in every process of the group.

    loader   in the first process its `Loader`, with the data-parallel rank that the group shares; elsewhere None
    device   where the peers' tensors are to lie, as for `Loader`

    Every process calls `next`, `state_dict` and `load_state_dict` alike.
    """

    def __init__(self, loader: Loader | None, group: ProcessGroup, *, device: str | torch.device | None = None) -> None:
        self._reads = dist.get_rank(group) == 0
        if self._reads != (loader is not None):
            raise UsageError("the first process of the group, and only it, needs a loader")
        self._loader = loader
        self._group = group
        self._source = dist.get_global_rank(group, 0)
        self._wire = torch.device("cuda" if dist.get_backend(group) == "nccl" else "cpu")
        self._stage = stage_for(device)
        self._state: dict[str, Any] | None = None

    def __iter__(self) -> BroadcastLoader:
        return self

    def __next__(self) -> TensorBatch:
        if self._loader is None:
            return self._receive()
        try:
            batch = next(self._loader)
        except StopIteration:
            self._send({"end": True}, b"")
            raise
        except BaseException as error:
            self._send({"error": f"{type(error).__name__}: {error}"}, b"")
            raise
        self._send(*_pack(batch.host, self._loader.state_dict()))
        return batch

    def _receive(self) -> TensorBatch:
        header, body = self._exchange(None, b"")
        if "error" in header:
            raise PeerError(f"the process that reads for this one failed: {header['error']}")
        if "end" in header:
            raise StopIteration
        self._state = header["state"]
        batch = TensorBatch(host=_unpack(header, body), stage=self._stage)
        self._stage.warm(batch.host)
        self._stage.hand_over(batch.host)
        return batch

    def state_dict(self) -> dict[str, Any]:
        """The reader's state after the batch handed out last; a collective before the first one."""
        if self._loader is not None:
            state = self._loader.state_dict()
            if self._state is None:
                self._state = state
                self._send({"state": state}, b"")
            return state
        if self._state is None:
            self._state = self._exchange(None, b"")[0]["state"]
        return self._state

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Give every process the same state."""
        if self._loader is not None:
            self._loader.load_state_dict(state_dict)
        self._state = dict(state_dict)

    def close(self) -> None:
        """Closes the reader's loader."""
        if self._loader is not None:
            self._loader.close()

    def _send(self, header: dict[str, Any], body: bytes) -> None:
        if "state" in header:
            self._state = header["state"]
        self._exchange(header, body)

    def _exchange(self, header: dict[str, Any] | None, body: bytes) -> tuple[dict[str, Any], bytes]:
        """Two broadcasts: the sizes, then header and body as one run of bytes."""
        text = json.dumps(header).encode() if header is not None else b""
        sizes = torch.tensor([len(text), len(body)], dtype=torch.int64, device=self._wire)
        dist.broadcast(sizes, src=self._source, group=self._group)
        head, tail = sizes.tolist()
        if header is not None:
            payload = torch.frombuffer(bytearray(text + body), dtype=torch.uint8).to(self._wire)
            dist.broadcast(payload, src=self._source, group=self._group)
            return header, body
        payload = torch.empty(head + tail, dtype=torch.uint8, device=self._wire)
        dist.broadcast(payload, src=self._source, group=self._group)
        received = payload.cpu().numpy().tobytes()
        return json.loads(received[:head]), received[head:]


def _pack(batch: Batch, state: dict[str, Any]) -> tuple[dict[str, Any], bytes]:
    arrays = {name: np.ascontiguousarray(getattr(batch, name)) for name in _ARRAYS}
    header = {
        "state": state,
        "numbers": {name: int(getattr(batch, name)) for name in _NUMBERS},
        "names": list(batch.domain_names),
        "hashes": [batch.plan_hash.hex(), batch.next_plan_hash.hex()],
        "micro": list(batch.micro),
        "arrays": {name: [array.dtype.str, list(array.shape)] for name, array in arrays.items()},
    }
    return header, b"".join(array.tobytes() for array in arrays.values())


def _unpack(header: Mapping[str, Any], body: bytes) -> Batch:
    arrays: dict[str, Any] = {}
    writable = bytearray(body)
    at = 0
    for name, (kind, shape) in header["arrays"].items():
        count = int(np.prod(shape))
        arrays[name] = np.frombuffer(writable, dtype=np.dtype(kind), count=count, offset=at).reshape(shape)
        at += arrays[name].nbytes
    return Batch(
        **header["numbers"],
        **arrays,
        domain_names=tuple(header["names"]),
        plan_hash=bytes.fromhex(header["hashes"][0]),
        next_plan_hash=bytes.fromhex(header["hashes"][1]),
        micro=(header["micro"][0], header["micro"][1]),
    )
