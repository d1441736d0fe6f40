"""An open run: what the server said of it, and the calls that read and confirm it. No threads and no waiting here."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from headrace.client.buffers import Buffer
from headrace.client.endpoints import Endpoints, is_local
from headrace.client.launch import Launch, Rank, holder
from headrace.client.settings import MAX_MESSAGE_BYTES, Settings
from headrace.client.share import Share
from headrace.client.state import State
from headrace.client.wire import Bytes, Part, Reply, read_reply, split, take_plain, unknown_fields
from headrace.native import __version__, copy_rows
from headrace.proto.errors import ConflictError, DataLossError, LimitError, StateMismatchError, UsageError, from_name
from headrace.proto.v1 import data_pb2

PACK_BYTES = 1 << 20
"""Answers that are ready share a message up to this size; a larger one would gain nothing and come later."""
log = logging.getLogger("headrace.client")

MODES = {"train": data_pb2.OPEN_MODE_TRAIN, "observe": data_pb2.OPEN_MODE_OBSERVE}


@dataclass(frozen=True, kw_only=True, slots=True)
class Shape:
    """Steps [begin, end) have `batch` rows of `seq_len` tokens; `end` is None when none is known."""

    begin: int
    end: int | None
    batch: int
    seq_len: int

    def holds(self, step: int) -> bool:
        return self.begin <= step and (self.end is None or step < self.end)


@dataclass(frozen=True, kw_only=True, slots=True)
class Opened:
    """What OpenRun answered. `end_step` is None while spec and log do not fix it."""

    run: str
    run_id: str
    lease: str
    spec_digest: bytes
    plan_hash: bytes
    next_step: int
    seal: int
    confirmed: int
    lead: int
    end_step: int | None
    domains: tuple[str, ...]
    vocab_size: int
    pad_id: int
    id_bytes: int
    shapes: tuple[Shape, ...]
    max_rows: int
    server_version: str
    tokenizer_digest: bytes
    corpus_digest: bytes
    server_time_us: int
    streams: bool = False
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.id_bytes not in (2, 4) or self.max_rows < 1 or self.lead < 1:
            raise DataLossError(
                f"run {self.run}: the server names id_bytes {self.id_bytes}, max_rows {self.max_rows}, "
                f"lead {self.lead}; 2 or 4, at least 1, and at least 1 are needed"
            )

        for shape in self.shapes:
            row_bytes = (shape.seq_len + 1) * self.id_bytes
            if row_bytes > MAX_MESSAGE_BYTES:
                raise LimitError(
                    f"run {self.run}: a row of {shape.seq_len} tokens (from step {shape.begin}) has {row_bytes} bytes, "
                    f"and this client takes messages of at most {MAX_MESSAGE_BYTES}; use a shorter seq_len"
                )

    def shape(self, step: int) -> Shape | None:
        return next((shape for shape in self.shapes if shape.holds(step)), None)

    def state(self) -> State:
        """The state of a trainer that has taken nothing since opening."""
        return State(
            run_id=self.run_id, spec_digest=self.spec_digest, plan_hash=self.plan_hash, next_step=self.next_step
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class Opening:
    """How a run is to be opened."""

    run: str
    mode: str
    launch: Launch | None
    rank: Rank
    takeover: bool
    state: State | None
    peers: int = 1

    def __post_init__(self) -> None:
        if self.mode not in MODES:
            raise UsageError(f"mode must be one of {', '.join(MODES)}, not {self.mode!r}")
        if self.peers < 1:
            raise UsageError(f"peers is how many processes share this rank, at least 1, not {self.peers!r}")

    def to_message(self) -> data_pb2.OpenRunRequest:
        job = data_pb2.Job(rank=f"{self.rank.rank}/{self.rank.world}", world=self.rank.world, holder=holder())
        job.peers = self.peers
        if self.launch:
            job.id, job.attempt = self.launch.job, self.launch.attempt
        return data_pb2.OpenRunRequest(
            run=self.run,
            mode=MODES[self.mode],
            job=job,
            state=self.state.to_message() if self.state else None,
            takeover=self.takeover,
            client_version=__version__,
        )


def open_run(endpoints: Endpoints, opening: Opening, *, timeout: float) -> Opened:
    """One try of OpenRun. Raises what the server refuses with: ConflictError, StateMismatchError, NotFoundError, ..."""
    answer = endpoints.call(
        "OpenRun",
        opening.to_message(),
        timeout=timeout,
        doing=f"open run `{opening.run}` as {opening.mode}",
        read=data_pb2.OpenRunResponse.FromString,
    )
    if opening.state is not None and answer.next_step != opening.state.next_step:
        raise StateMismatchError(
            f"run `{opening.run}`: the state is at step {opening.state.next_step}, the server opened the run at "
            f"step {answer.next_step}"
        )
    return Opened(
        run=opening.run,
        run_id=answer.run_id,
        lease=answer.lease,
        spec_digest=answer.spec_digest,
        plan_hash=answer.plan_hash,
        next_step=answer.next_step,
        seal=answer.seal,
        confirmed=answer.confirmed,
        lead=answer.lead,
        end_step=answer.end_step if answer.HasField("end_step") else None,
        domains=tuple(answer.domains),
        vocab_size=answer.vocab_size,
        pad_id=answer.pad_id,
        id_bytes=answer.id_bytes,
        shapes=tuple(
            Shape(
                begin=shape.from_step,
                end=shape.to_step if shape.HasField("to_step") else None,
                batch=shape.batch,
                seq_len=shape.seq_len,
            )
            for shape in answer.shapes
        ),
        max_rows=answer.max_rows,
        server_version=answer.server_version,
        tokenizer_digest=answer.tokenizer_digest,
        corpus_digest=answer.corpus_digest,
        server_time_us=answer.server_time_us,
        streams=answer.streams,
        notes=tuple(answer.notes),
    )


class Session:
    """The calls of an open run. Thread-safe."""

    def __init__(self, endpoints: Endpoints, opened: Opened, *, rank: Rank, settings: Settings) -> None:
        self.endpoints = endpoints
        self.opened = opened
        self.rank = rank
        self._settings = settings
        self._names = opened.domains

    def get(
        self,
        step: int,
        first_slot: int,
        rows: int,
        confirmation: data_pb2.Confirmation | None,
        into: Buffer | None = None,
    ) -> Reply:
        """One try of GetBatch; the answer is that of `read`."""
        request = data_pb2.GetBatchRequest(
            run_id=self.opened.run_id,
            lease=self.opened.lease,
            step=step,
            first_slot=first_slot,
            rows=rows,
            confirmation=confirmation,
        )
        doing = f"get slots {first_slot}-{first_slot + rows - 1} of step {step} for rank {self.rank.rank}"
        data = self.endpoints.call("GetBatch", request, timeout=self._settings.call_timeout, doing=doing)
        return self.read(data, step, first_slot, rows, into)

    def read(
        self,
        data: Bytes,
        step: int,
        first_slot: int,
        rows: int,
        into: Buffer | None = None,
        shared: memoryview | None = None,
    ) -> Reply:
        """The answer to what was asked for. Its ids, or those in `shared`, are copied to `into`, where one is given,
        and what lies there then has the digests that the server names. Raises what a stream says instead of an answer.
        """
        id_bytes = self.opened.id_bytes
        if into is not None and (
            part := take_plain(
                data, step, first_slot, rows, id_bytes=id_bytes, into=into, shared=shared, names=self._names
            )
        ):
            return Reply(part=part)
        reply = read_reply(data, id_bytes=id_bytes, shared=shared)
        if reply.note:
            log.warning("run `%s`: %s", self.opened.run, reply.note)
        if reply.refused is not None:
            doing = f"cannot get slots {first_slot}-{first_slot + rows - 1} of step {step} for rank {self.rank.rank}"
            message = f"{doing} from `{self.endpoints.current}`: {reply.refused.message} ({reply.refused.error})"
            raise from_name(reply.refused.error, reply.refused.code, message)
        if reply.part is not None:
            self._check(reply.part, reply.ids, step, first_slot, rows, into, data)
        return reply

    def first_request(self) -> data_pb2.StreamBatchesRequest:
        """What a stream begins with."""
        # Half of what may be under way, so that there is always a message on its way while one is asked for.
        shape = self.opened.shape(self.opened.next_step)
        under_way = self._under_way(shape) if shape else 0
        pack_bytes = min(PACK_BYTES, self._settings.message_bytes, under_way // 2)
        return data_pb2.StreamBatchesRequest(run_id=self.opened.run_id, lease=self.opened.lease, pack_bytes=pack_bytes)

    def _under_way(self, shape: Shape) -> int:
        """Bytes of ids that may be asked for and not received."""
        ahead = self.opened.lead * shape.batch // self.rank.world * (shape.seq_len + 1) * self.opened.id_bytes
        return min(self._settings.in_flight * self._settings.message_bytes, ahead)

    def share(self) -> Share:
        """Memory to share with the server for as long as a stream lasts, with none yet; where both seem to be here."""
        if not self._settings.share or not is_local(self.endpoints.current):
            return Share(0)
        under_way = max(map(self._under_way, self.opened.shapes), default=0)
        # A range that does not fit behind the last one begins anew in front, and leaves a gap.
        return Share(under_way + min(under_way // 2, self._settings.message_bytes))

    def stream(self, requests: Iterator[data_pb2.StreamBatchesRequest]) -> Iterator[list[memoryview]]:
        """One StreamBatches call: the answers of each message as it comes, for `read`."""
        doing = f"stream run `{self.opened.run}` for rank {self.rank.rank}"
        for message in self.endpoints.stream("StreamBatches", requests, doing=doing):
            yield split(message)

    def break_streams(self) -> None:
        """Ends the stream that is under way: no answer came in time."""
        self.endpoints.break_streams(f"no answer within {self._settings.call_timeout:g} s")

    def _check(
        self, part: Part, ids: memoryview, step: int, first_slot: int, rows: int, into: Buffer | None, data: Bytes
    ) -> None:
        if (part.step, part.first_slot, part.rows) != (step, first_slot, rows):
            raise DataLossError(
                f"`{self.endpoints.current}` answered slots {part.first_slot}+{part.rows} of step {part.step} "
                f"when asked for {first_slot}+{rows} of step {step}"
            )
        if len(part.domain_names) > len(self._names):
            self._names = part.domain_names
        if int(part.domains.max(initial=0)) >= len(self._names):
            raise DataLossError(f"step {step}: a row names domain {part.domains.max()} of {len(self._names)}")
        if into is None:
            into = np.empty(len(ids), dtype=np.uint8)
        if len(ids) != into.size:
            raise DataLossError(
                f"step {step}: rows of {part.seq_len} tokens arrived, {into.size // rows // self.opened.id_bytes - 1} "
                "are due; the run's shapes have changed since it was opened"
            )
        received = take_rows(part, ids, into, self.opened.id_bytes, self._names)
        if received != part.row_digests:
            if new := unknown_fields(data):
                raise ConflictError(
                    f"step {step}: server `{self.endpoints.current}` (version {self.opened.server_version or 'unknown'}"
                    f") says of its rows what this client (version {__version__}) does not know (fields "
                    f"{', '.join(map(str, new))} of Batch), and their digests cover it; use a client as new as the "
                    f"server"
                )
            bad = [r for r in range(rows) if received[16 * r : 16 * r + 16] != part.row_digests[16 * r : 16 * r + 16]]
            raise DigestError(
                f"step {step}: {len(bad)} of {rows} rows from `{self.endpoints.current}` differ from the digests sent "
                f"with them (first: slot {first_slot + bad[0]}); the bytes were changed on the way"
            )

    @property
    def domain_names(self) -> tuple[str, ...]:
        return self._names

    def confirm(self, confirmation: data_pb2.Confirmation) -> None:
        """One try of Confirm."""
        request = data_pb2.ConfirmRequest(run_id=self.opened.run_id, lease=self.opened.lease, confirmation=confirmation)
        self.endpoints.call(
            "Confirm", request, timeout=self._settings.call_timeout, doing=f"confirm {confirmation.next_step} steps"
        )

    def close(self, confirmation: data_pb2.Confirmation | None, *, timeout: float) -> None:
        """One try of CloseRun, within `timeout` seconds."""
        request = data_pb2.CloseRunRequest(
            run_id=self.opened.run_id, lease=self.opened.lease, confirmation=confirmation
        )
        self.endpoints.call("CloseRun", request, timeout=timeout, doing=f"close run `{self.opened.run}`")


class DigestError(DataLossError):
    """Rows were received that differ from the digests sent with them."""


def take_rows(part: Part, ids: memoryview, into: Buffer, id_bytes: int, names: tuple[str, ...]) -> bytes:
    """Copies the ids, and makes 16 bytes a row from the copies; one pass, the only copy that the client makes."""
    return copy_rows(
        np.frombuffer(ids, dtype=np.uint8),
        into,
        (part.seq_len + 1) * id_bytes,
        part.edge_ends,
        part.edges,
        list(names),
        part.domains,
        part.loss_weights,
        part.mask_ends,
        part.masks,
    )
