"""A small real data server over the generated stubs, with faults on demand: for tests of the client alone.

Its stream is a pure function of (seed, step), its leases and seal follow the contract in the simplest way (the seal is
always `confirmed + lead`), and every row's digest is made in plain Python. It runs in this process on a real socket,
or as a process of its own (`python toy_server.py JSON`) that a test can kill.
"""

from __future__ import annotations

import functools
import hashlib
import json
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from typing import Any, NoReturn

import grpc
import numpy as np
import xxhash
from headrace.proto.errors import (
    ConflictError,
    FencedError,
    HeadraceError,
    NotFoundError,
    OutOfRangeError,
    StateMismatchError,
    trailing_metadata,
)
from headrace.proto.v1 import data_pb2, data_pb2_grpc

DOMAINS = ("code", "deu", "fra")
# Tests shorten keepalive far below what a server should stand.
OPTIONS = (("grpc.so_reuseport", 0), ("grpc.http2.min_ping_interval_without_data_ms", 10))
PAD = 0


@dataclass(frozen=True, kw_only=True)
class Toy:
    """The run: `shapes` are (steps, batch, seq_len) one after another."""

    name: str = "toy"
    seed: int = 1
    shapes: tuple[tuple[int, int, int], ...] = ((40, 8, 16),)
    lead: int = 8
    id_bytes: int = 2
    max_rows: int = 1024
    vocabulary: int = 60_000
    streams: bool = False

    @property
    def end(self) -> int:
        return sum(steps for steps, _, _ in self.shapes)

    @property
    def spec_digest(self) -> bytes:
        return hashlib.sha256(json.dumps(asdict(self)).encode()).digest()

    def plan_hash(self, step: int) -> bytes:
        return hashlib.sha256(self.spec_digest + step.to_bytes(8, "little")).digest()

    def shape(self, step: int) -> tuple[int, int]:
        begin = 0
        for steps, batch, seq_len in self.shapes:
            if step < begin + steps:
                return batch, seq_len
            begin += steps
        raise IndexError(step)

    @functools.lru_cache(maxsize=64)  # noqa: B019  a frozen value
    def rows(self, step: int) -> dict[str, Any]:
        """The whole global batch of a step."""
        batch, seq_len = self.shape(step)
        rng = np.random.default_rng([self.seed, step])
        kind = np.uint16 if self.id_bytes == 2 else np.uint32
        ids = rng.integers(1, self.vocabulary, (batch, seq_len + 1)).astype(kind)
        real = rng.integers(2, seq_len + 2, batch).astype(np.uint32)
        real[rng.random(batch) < 0.7] = seq_len + 1
        for row in range(batch):
            ids[row, real[row] :] = PAD
        edges = [sorted(set(rng.integers(1, seq_len + 1, rng.integers(0, 4)).tolist())) for _ in range(batch)]
        return {
            "ids": ids,
            "real": real,
            "edges": edges,
            "domains": rng.integers(0, len(DOMAINS), batch).astype(np.uint32),
            "weights": rng.choice([1.0, 0.5, 2.0], batch).astype(np.float32),
        }


def row_digest(ids: bytes, edges: list[int], domain: str, weight: float) -> bytes:
    name = domain.encode()
    tail = np.array([*edges, len(edges)], dtype="<u4").tobytes() + name + len(name).to_bytes(4, "little")
    return xxhash.xxh3_128_digest(ids + tail + np.float32(weight).tobytes())


@functools.lru_cache(maxsize=256)
def step_digests(toy: Toy, step: int) -> bytes:
    """16 bytes a row of the global batch."""
    rows = toy.rows(step)
    return b"".join(
        row_digest(rows["ids"][r].tobytes(), rows["edges"][r], DOMAINS[rows["domains"][r]], rows["weights"][r])
        for r in range(len(rows["ids"]))
    )


@dataclass
class Faults:
    """What goes wrong next. Counts are used up; `delay` is in seconds before each GetBatch is answered."""

    unavailable: int = 0  # GetBatch answers UNAVAILABLE as a dying transport does: without the class
    above_seal: int = 0  # GetBatch answers "above the seal, ask again"
    hang: int = 0  # GetBatch never answers: the client's deadline has to end it
    corrupt: int = 0  # one bit of the ids is changed after the digests were made
    data_loss_at: int | None = None
    delay: float = 0.0
    refuse_all: bool = False
    no_stream: bool = False  # StreamBatches is unknown, as behind an old proxy
    clock: float | None = 0.0  # how far the server's clock is ahead; None: it does not tell it


@dataclass
class Seen:
    """What the server has heard."""

    calls: Counter[str] = field(default_factory=Counter)
    ranks: list[str] = field(default_factory=list)
    digests: dict[tuple[int, int], bytes] = field(default_factory=dict)
    largest_request: int = 0
    in_flight: int = 0
    most_in_flight: int = 0
    highest_step: int = -1


class ToyService(data_pb2_grpc.DataServiceServicer):
    def __init__(self, toy: Toy) -> None:
        self.toy = toy
        self.faults = Faults()
        self.seen = Seen()
        self.confirmed = 0
        self.job: tuple[str, int] | None = None
        self.open_ranks: set[str] = set()
        self.attempts: set[int] = set()
        self._lock = threading.Lock()

    def OpenRun(self, request: Any, context: Any) -> Any:  # noqa: N802
        with self._lock:
            self.seen.calls["OpenRun"] += 1
            if request.run != self.toy.name:
                refuse(context, NotFoundError(f"no run `{request.run}`; there is `{self.toy.name}`"))
            step = self._state(request, context)
            lease = ""
            if request.mode == data_pb2.OPEN_MODE_TRAIN:
                lease = self._lease(request, context)
            return self._opened(step, lease)

    def _state(self, request: Any, context: Any) -> int:
        if not request.HasField("state"):
            return 0
        state = request.state
        if (state.run_id, state.spec_digest) != ("toy-1", self.toy.spec_digest):
            refuse(
                context,
                StateMismatchError(f"state has spec {state.spec_digest.hex()}, run has {self.toy.spec_digest.hex()}"),
            )
        if state.plan_hash != self.toy.plan_hash(state.next_step):
            refuse(context, StateMismatchError(f"plan hash at step {state.next_step} differs"))
        return int(state.next_step)

    def _lease(self, request: Any, context: Any) -> str:
        asked = (request.job.id, request.job.attempt)
        if self.job is not None and not request.takeover:
            if self.job[0] != asked[0]:
                refuse(context, ConflictError(f"run is held by job `{self.job[0]}`"))
            if self.job[1] > asked[1]:
                refuse(context, FencedError(f"attempt {asked[1]} is fenced by attempt {self.job[1]}"))
        if self.job != asked:
            self.job, self.open_ranks = asked, set()
        self.open_ranks.add(request.job.rank)
        self.attempts.add(request.job.attempt)
        self.seen.ranks.append(request.job.rank)
        return f"{asked[0]}#{asked[1]}#{request.job.rank}"

    def _opened(self, step: int, lease: str) -> Any:
        answer = data_pb2.OpenRunResponse(
            run_id="toy-1",
            lease=lease,
            spec_digest=self.toy.spec_digest,
            plan_hash=self.toy.plan_hash(step),
            next_step=step,
            seal=self.seal,
            confirmed=self.confirmed,
            lead=self.toy.lead,
            end_step=self.toy.end,
            domains=DOMAINS,
            vocab_size=self.toy.vocabulary,
            pad_id=PAD,
            id_bytes=self.toy.id_bytes,
            max_rows=self.toy.max_rows,
            server_version="toy",
            tokenizer_digest=bytes(32),
            corpus_digest=bytes(32),
            streams=self.toy.streams,
            server_time_us=0 if self.faults.clock is None else int(1e6 * (time.time() + self.faults.clock)),
        )
        begin = 0
        for steps, batch, seq_len in self.toy.shapes:
            answer.shapes.add(from_step=begin, to_step=begin + steps, batch=batch, seq_len=seq_len)
            begin += steps
        return answer

    @property
    def seal(self) -> int:
        return self.confirmed + self.toy.lead

    def GetBatch(self, request: Any, context: Any) -> Any:  # noqa: N802
        with self._lock:
            seen = self.seen
            seen.calls["GetBatch"] += 1
            seen.largest_request = max(seen.largest_request, request.ByteSize())
            seen.in_flight += 1
            seen.most_in_flight = max(seen.most_in_flight, seen.in_flight)
            seen.highest_step = max(seen.highest_step, request.step)
        try:
            return self._answer(request, context)
        finally:
            with self._lock:
                seen.in_flight -= 1

    def StreamBatches(self, requests: Any, context: Any) -> Any:  # noqa: N802
        """Each range as a GetBatch; what that would refuse in words is answered, what breaks it breaks the stream."""
        self.seen.calls["StreamBatches"] += 1
        if self.faults.no_stream:
            context.abort(grpc.StatusCode.UNIMPLEMENTED, "no such method")
        run_id = lease = ""
        for request in requests:
            run_id, lease = request.run_id or run_id, request.lease or lease
            said = request.confirmation if request.HasField("confirmation") else None
            for wanted in request.ranges:
                asked = data_pb2.GetBatchRequest(
                    run_id=run_id,
                    lease=lease,
                    step=wanted.step,
                    first_slot=wanted.first_slot,
                    rows=wanted.rows,
                    confirmation=said,
                )
                said = None
                try:
                    yield self.GetBatch(asked, InStream(context))
                except RefusedError as refusal:
                    if not refusal.name and refusal.code is grpc.StatusCode.UNAVAILABLE:
                        context.abort(refusal.code, str(refusal))
                    refused = data_pb2.Refused(code=refusal.code.value[0], error=refusal.name, message=str(refusal))
                    yield data_pb2.GetBatchResponse(refused=refused)

    def _answer(self, request: Any, context: Any) -> Any:
        faults = self.faults
        if self._use("unavailable") or faults.refuse_all:
            context.abort(grpc.StatusCode.UNAVAILABLE, "the toy is away")
        if self._use("hang"):
            until = time.monotonic() + (context.time_remaining() or 60) + 0.5
            while time.monotonic() < until and context.is_active():
                time.sleep(0.05)
        if faults.delay:
            time.sleep(faults.delay)
        with self._lock:
            self._check_lease(request.lease, context)
            self._confirm(request)
            answer = data_pb2.GetBatchResponse(seal=self.seal, confirmed=self.confirmed)
        if self._use("above_seal"):
            context.set_trailing_metadata((("headrace-error", "UnavailableError"),))
            context.abort(grpc.StatusCode.UNAVAILABLE, f"step {request.step} is above the seal")
        if request.step == faults.data_loss_at:
            context.abort(grpc.StatusCode.DATA_LOSS, f"shard 7 of step {request.step} fails its checksum")
        if request.step >= self.toy.end:
            answer.end.end_step, answer.end.reason = self.toy.end, "last phase"
            return answer
        if request.lease and request.step >= self.seal:
            refuse(context, OutOfRangeError(f"step {request.step} is beyond {self.seal}"))
        fill(answer.batch, self.toy, request)
        if self._use("corrupt"):
            ids = bytearray(answer.batch.token_ids)
            ids[3] ^= 1
            answer.batch.token_ids = bytes(ids)
        return answer

    def _use(self, fault: str) -> bool:
        with self._lock:
            left = getattr(self.faults, fault)
            setattr(self.faults, fault, max(0, left - 1))
            return bool(left)

    def _check_lease(self, lease: str, context: Any) -> None:
        if lease and self.job is not None and not lease.startswith(f"{self.job[0]}#{self.job[1]}#"):
            refuse(context, FencedError(f"lease of {lease} is fenced by job {self.job[0]} attempt {self.job[1]}"))

    def _confirm(self, request: Any) -> None:
        if request.HasField("confirmation"):
            self.confirmed = max(self.confirmed, request.confirmation.next_step)
            for rows in request.confirmation.received:
                self.seen.digests[rows.step, rows.first_slot] = rows.row_digests

    def Confirm(self, request: Any, context: Any) -> Any:  # noqa: N802
        with self._lock:
            self.seen.calls["Confirm"] += 1
            self._check_lease(request.lease, context)
            self._confirm(request)
            return data_pb2.ConfirmResponse(seal=self.seal, confirmed=self.confirmed)

    def CloseRun(self, request: Any, context: Any) -> Any:  # noqa: N802
        with self._lock:
            self.seen.calls["CloseRun"] += 1
            self._check_lease(request.lease, context)
            self._confirm(request)
            self.open_ranks.discard(request.lease.rpartition("#")[2])
            if not self.open_ranks:
                self.job = None
            return data_pb2.CloseRunResponse()


class RefusedError(Exception):
    """What a call in a stream is refused with."""

    def __init__(self, code: grpc.StatusCode, message: str, name: str) -> None:
        super().__init__(message)
        self.code, self.name = code, name


class InStream:
    """The context of one range of a stream."""

    def __init__(self, context: Any) -> None:
        self._context, self._name = context, ""
        self.is_active, self.time_remaining = context.is_active, context.time_remaining

    def set_trailing_metadata(self, metadata: Any) -> None:
        self._name = dict(metadata)["headrace-error"]

    def abort(self, code: grpc.StatusCode, message: str) -> NoReturn:
        raise RefusedError(code, message, self._name)


def refuse(context: Any, error: HeadraceError) -> NoReturn:
    context.set_trailing_metadata(trailing_metadata(error))
    context.abort(error.status, str(error))
    raise AssertionError("abort returned")


def fill(batch: Any, toy: Toy, request: Any) -> None:
    rows = toy.rows(request.step)
    chosen = slice(request.first_slot, request.first_slot + request.rows)
    edges = rows["edges"][chosen]
    batch.step = request.step
    batch.segment = request.step // 10
    batch.first_slot, batch.rows, batch.seq_len = request.first_slot, request.rows, toy.shape(request.step)[1]
    batch.token_ids = rows["ids"][chosen].tobytes()
    batch.domains = rows["domains"][chosen].tobytes()
    batch.edge_ends = np.cumsum([len(row) for row in edges], dtype=np.uint32).tobytes()
    batch.edges = np.array([edge for row in edges for edge in row], dtype=np.uint32).tobytes()
    batch.loss_weights = rows["weights"][chosen].tobytes()
    batch.real_ids = rows["real"][chosen].tobytes()
    digests = step_digests(toy, request.step)
    batch.row_digests = digests[16 * chosen.start : 16 * chosen.stop]
    batch.plan_hash = toy.plan_hash(request.step)
    batch.next_plan_hash = toy.plan_hash(request.step + 1)


class ToyServer:
    """A running server: `address`, `service`."""

    def __init__(
        self,
        toy: Toy | None = None,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        setup: Callable[[ToyServer], None] | None = None,
    ) -> None:
        self.service = ToyService(toy or Toy())
        self.server = grpc.server(ThreadPoolExecutor(32), options=OPTIONS)
        data_pb2_grpc.add_DataServiceServicer_to_server(self.service, self.server)
        if setup is not None:
            setup(self)
        self.address = f"{host}:{self.server.add_insecure_port(f'{host}:{port}')}"
        self.server.start()

    @property
    def faults(self) -> Faults:
        return self.service.faults

    @property
    def seen(self) -> Seen:
        return self.service.seen

    def stop(self) -> None:
        self.server.stop(0).wait()

    def __enter__(self) -> ToyServer:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def main() -> None:
    options = json.loads(sys.argv[1])
    host, port = options.pop("host", "127.0.0.1"), options.pop("port", 0)
    options["shapes"] = tuple(tuple(shape) for shape in options.get("shapes", [[40, 8, 16]]))
    server = ToyServer(Toy(**options), host=host, port=port)
    print(server.address, flush=True)
    threading.Event().wait()


if __name__ == "__main__":
    main()
