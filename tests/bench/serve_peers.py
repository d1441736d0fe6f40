"""What `bench_serve.py` stands beside: a server that only sends bytes, and a naive data server of sixty lines.

    python tests/bench/serve_peers.py raw|naive

Each prints its port. `raw` answers a size with that many bytes of 64 MiB, by calls and over a stream: the limit of gRPC
(ours is asked for steps that take 64 MiB, too: of memory that stays in the caches both send a tenth more).
`naive` is what one would write in an afternoon: rows of memory-mapped files picked by a weighted blend and by a
permutation a domain, both functions of the step, copied with NumPy and sent as bytes. It has no seal, no swaps, no
digests and no edges. Both run with the malloc settings of the product.
"""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import numpy.typing as npt
from headrace.server.service.malloc import keep_freed_memory

OPTIONS = (("grpc.max_receive_message_length", 64 << 20), ("grpc.max_send_message_length", 64 << 20))
SEQ_LEN, BATCH, STEPS = 4096, 512, 64
WEIGHTS, ROWS = (0.5, 0.3, 0.2), (2400, 1200, 500)


class Raw:
    """Fresh bytes of the size asked for."""

    def __init__(self) -> None:
        self._source = memoryview(os.urandom(1 << 20) * 72)
        self._at = 0

    async def get(self, request: bytes, context: Any) -> bytes:
        self._at = (self._at + (21 << 20) + 4096) % (64 << 20)
        return bytes(self._source[self._at : self._at + int(request)])

    async def stream(self, requests: AsyncIterator[bytes], context: Any) -> AsyncIterator[bytes]:
        async for request in requests:
            for size in request.split():
                yield await self.get(size, context)


class Naive:
    """Rows of uint32 ids from one file a domain."""

    def __init__(self, folder: Path) -> None:
        dice = np.random.default_rng(1)
        self._maps = [self._file(folder / str(place), rows, dice) for place, rows in enumerate(ROWS)]
        self._orders = [dice.permutation(rows) for rows in ROWS]
        slots = STEPS * BATCH
        # The domain with the largest deficit, slot after slot; all slots of a run that is short enough to be indexed.
        self._domains, self._places = np.zeros(slots, np.int8), np.zeros(slots, np.int64)
        given, weights = np.zeros(len(ROWS)), np.array(WEIGHTS)
        for slot in range(slots):
            domain = int(np.argmax(weights * (slot + 1) - given))
            self._domains[slot], self._places[slot] = domain, given[domain]
            given[domain] += 1

    @staticmethod
    def _file(path: Path, rows: int, dice: np.random.Generator) -> npt.NDArray[np.uint32]:
        dice.integers(0, 70_000, (rows, SEQ_LEN), dtype=np.uint32).tofile(path)
        return np.memmap(path, np.uint32, "r").reshape(-1, SEQ_LEN)

    def _row(self, slot: int) -> npt.NDArray[np.uint32]:
        domain = self._domains[slot]
        order = self._orders[domain]
        row: npt.NDArray[np.uint32] = self._maps[domain][order[self._places[slot] % len(order)]]
        return row

    async def get(self, request: bytes, context: Any) -> bytes:
        step, first, rows = map(int, request.split())
        out = np.empty((rows, SEQ_LEN), np.uint32)
        for row in range(rows):
            out[row] = self._row(step * BATCH + first + row)
        return out.tobytes()


async def serve(methods: dict[str, grpc.RpcMethodHandler[bytes, bytes]]) -> None:
    server = grpc.aio.server(options=OPTIONS)
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("peer.Peer", methods),))
    print(server.add_insecure_port("127.0.0.1:0"), flush=True)
    await server.start()
    await server.wait_for_termination()


def main() -> None:
    keep_freed_memory()
    if sys.argv[1] == "raw":
        raw = Raw()
        stream = grpc.stream_stream_rpc_method_handler(raw.stream)
        asyncio.run(serve({"Get": grpc.unary_unary_rpc_method_handler(raw.get), "Stream": stream}))
    with tempfile.TemporaryDirectory() as folder:
        naive = Naive(Path(folder))
        asyncio.run(serve({"Get": grpc.unary_unary_rpc_method_handler(naive.get)}))


if __name__ == "__main__":
    main()
