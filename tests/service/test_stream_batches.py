"""StreamBatches answers each range as GetBatch does, byte for byte, in the order asked for, and is refused as it is."""

from __future__ import annotations

import queue
import time
from collections.abc import Callable, Iterator
from typing import Any

import grpc
import pytest
from headrace.proto.errors import HeadraceError, UnauthenticatedError, UsageError, from_rpc
from headrace.proto.v1 import data_pb2 as pb
from rig import Raw, ServerProcess, Trainer


class Stream:
    """One StreamBatches call in a test's hands."""

    def __init__(self, server: ServerProcess, opened: Any) -> None:
        self._channel = grpc.insecure_channel(server.address)
        self._requests: queue.SimpleQueue[Any] = queue.SimpleQueue()
        call: Any = self._channel.stream_stream(
            "/headrace.v1.DataService/StreamBatches", pb.StreamBatchesRequest.SerializeToString
        )
        self.call = call(iter(self._requests.get, None), timeout=20)
        self._first = {"run_id": opened.run_id, "lease": opened.lease}

    def ask(self, *ranges: tuple[int, ...], taken: int | None = None, **more: Any) -> None:
        """Each range is (step, first slot, rows), and where its ids are to lie if they are to be shared."""
        request = pb.StreamBatchesRequest(**{**self._first, **more})
        if taken is not None:
            request.confirmation.next_step = taken
        for step, first_slot, rows, *place in ranges:
            request.ranges.add(step=step, first_slot=first_slot, rows=rows, share_at=sum(place))
        self._requests.put(request)
        self._first = {}

    def read(self) -> bytes:
        try:
            data: bytes = next(self.call)
        except grpc.RpcError as error:
            raise from_rpc(error, doing="stream", endpoint="here") from None
        return data

    def close(self) -> None:
        self._requests.put(None)
        self.call.cancel()
        self._channel.close()


@pytest.fixture
def trainer(raw: Raw, make_run: Callable[..., str]) -> Trainer:
    return Trainer(raw, make_run(steps=20, batch=8, lead=4)).open()


@pytest.fixture
def stream(server: ServerProcess, trainer: Trainer) -> Iterator[Stream]:
    opened = Stream(server, trainer.opened)
    yield opened
    opened.close()


def batch_of(data: bytes) -> bytes:
    """The batch of an answer as it was sent: seal and confirmed around it move on."""
    return bytes(pb.GetBatchResponse.FromString(data).batch.SerializeToString(deterministic=True))


def refusal(data: bytes) -> pb.Refused:
    answer = pb.GetBatchResponse.FromString(data)
    assert answer.WhichOneof("answer") == "refused"
    return answer.refused


def test_the_same_bytes_in_the_order_asked_for(raw: Raw, trainer: Trainer, stream: Stream) -> None:
    ranges = [(2, 0, 8), (0, 3, 2), (1, 0, 1), (3, 4, 4), (0, 3, 2)]
    stream.ask(*ranges[:2])
    stream.ask(*ranges[2:], taken=0)
    for step, first_slot, rows in ranges:
        alone = raw(
            "GetBatch",
            run_id=trainer.opened.run_id,
            lease=trainer.opened.lease,
            step=step,
            first_slot=first_slot,
            rows=rows,
        )
        streamed = stream.read()
        assert batch_of(streamed) == alone.batch.SerializeToString(deterministic=True)


def test_a_confirmation_is_heard_at_once_and_the_end_is_told(raw: Raw, trainer: Trainer, stream: Stream) -> None:
    for step in range(0, 20, 4):
        stream.ask(*((step + ahead, 0, 8) for ahead in range(4)), taken=step)
        for ahead in range(4):
            answer = pb.GetBatchResponse.FromString(stream.read())
            assert (answer.batch.step, answer.batch.rows) == (step + ahead, 8)
    stream.ask((20, 0, 8), taken=20)
    answer = pb.GetBatchResponse.FromString(stream.read())
    assert (answer.end.end_step, answer.confirmed) == (20, 20)
    assert "last phase" in answer.end.reason
    assert raw("Confirm", run_id=trainer.opened.run_id, lease=trainer.opened.lease, confirmation={}).confirmed == 20


def test_what_is_refused_is_one_range_and_the_stream_goes_on(trainer: Trainer, stream: Stream) -> None:
    stream.ask((0, 0, 9), (7, 0, 8), (1, 0, 8))
    assert (refused := refusal(stream.read())).error == "UsageError"
    assert "slots 0 to 7" in refused.message
    assert (refused := refusal(stream.read())).code == grpc.StatusCode.OUT_OF_RANGE.value[0]
    assert "beyond what the lead of 4 allows" in refused.message
    assert pb.GetBatchResponse.FromString(stream.read()).batch.step == 1
    stream.ask((2, 0, 8), taken=9)  # more than was ever sealed
    assert refusal(stream.read()).error == "OutOfRangeError"
    stream.ask((2, 0, 8), taken=1)
    assert pb.GetBatchResponse.FromString(stream.read()).batch.step == 2


def test_a_stream_is_about_one_run(raw: Raw, trainer: Trainer, stream: Stream, make_run: Callable[..., str]) -> None:
    """Else ranges that wait would be answered with another run's rows, or rows built ahead sent as another run's."""
    other = Trainer(raw, make_run(steps=20, batch=8, lead=4, seed=8)).open().opened
    stream.ask((0, 0, 8))
    assert pb.GetBatchResponse.FromString(stream.read()).HasField("batch")
    stream.ask((1, 0, 8), run_id=other.run_id, lease=other.lease)
    assert "a stream is about one run" in refusal(stream.read()).message
    stream.ask((1, 0, 8))
    assert pb.GetBatchResponse.FromString(stream.read()).batch.plan_hash == trainer.opened.plan_hash


def test_a_fenced_rank_is_told_and_gets_nothing_more(raw: Raw, trainer: Trainer, stream: Stream) -> None:
    stream.ask((0, 0, 8))
    stream.read()
    Trainer(raw, trainer.run, attempt=1).open()
    stream.ask((1, 0, 8), taken=1)
    refused = refusal(stream.read())
    assert refused.error == "FencedError"
    assert "attempt 1 of job" in refused.message


def test_an_observer_reads_what_is_sealed(raw: Raw, server: ServerProcess, trainer: Trainer) -> None:
    opened = raw("OpenRun", run=trainer.run, mode="OPEN_MODE_OBSERVE")
    assert opened.streams
    watching = Stream(server, opened)
    watching.ask((3, 0, 8))
    assert pb.GetBatchResponse.FromString(watching.read()).batch.step == 3
    watching.ask((3, 0, 8), taken=3)
    assert "never confirms" in refusal(watching.read()).message
    watching.close()


def test_a_stream_that_names_no_run_or_asks_too_much_ends(server: ServerProcess, trainer: Trainer) -> None:
    nameless = Stream(server, pb.OpenRunResponse())
    nameless.ask((0, 0, 8))
    assert "must name the run" in refusal(nameless.read()).message
    nameless.ask(taken=0)
    with pytest.raises(UsageError, match="must name the run"):
        nameless.read()
    nameless.close()
    greedy = Stream(server, trainer.opened)
    greedy.ask(*[(0, 0, 1)] * 4097)
    with pytest.raises(HeadraceError, match="more than 4096 ranges"):
        greedy.read()
    greedy.close()


def test_a_stream_that_is_left_leaves_nothing_behind(server: ServerProcess, raw: Raw, trainer: Trainer) -> None:
    for _ in range(20):
        left = Stream(server, trainer.opened)
        left.ask(*[(0, 0, 8)] * 50)
        left.read()
        left.close()
    begun = time.monotonic()
    raw("GetRun", run=trainer.run)
    assert time.monotonic() - begun < 5
    assert "Traceback" not in server.log.read_text()


def test_tokens_are_asked_for(tmp_path: Any) -> None:
    from rig import serving

    tokens = tmp_path / "tokens.toml"
    tokens.write_text('[[token]]\nname = "t"\nscope = "read"\ntoken = "0123456789abcdef"\n')
    with serving(tmp_path, [], extra=f'[auth]\ntokens = "{tokens}"') as server:
        stream = Stream(server, pb.OpenRunResponse(run_id="x"))
        stream.ask((0, 0, 1))
        with pytest.raises(UnauthenticatedError):
            stream.read()
        stream.close()


def answers_of(data: bytes) -> list[pb.GetBatchResponse]:
    """The answers that share a message."""
    first = pb.GetBatchResponse.FromString(data)
    return [first, *first.more]


def test_small_answers_share_messages_as_far_as_the_client_takes_them(
    server: ServerProcess, trainer: Trainer, stream: Stream
) -> None:
    ranges = [(step, slot, 2) for step in range(4) for slot in (0, 2, 4, 6)]
    row_bytes = (trainer.opened.shapes[0].seq_len + 1) * trainer.opened.id_bytes
    alone = Stream(server, trainer.opened)
    alone.ask(*ranges)
    single = [batch_of(alone.read()) for _ in ranges]
    alone.close()
    stream.ask(*ranges, pack_bytes=6 * 2 * row_bytes + 1)
    messages = []
    while sum(map(len, messages)) < len(ranges):
        messages.append(answers_of(stream.read()))
    assert [len(message) for message in messages] == [6, 6, 4]
    together = [answer.batch.SerializeToString(deterministic=True) for message in messages for answer in message]
    assert together == single
    stream.ask(*ranges[:4])  # absent: as before
    assert len(answers_of(stream.read())) == 4
    stream.ask(*ranges[:2], pack_bytes=0)
    assert [len(answers_of(stream.read())) for _ in range(2)] == [1, 1]


def test_nothing_that_is_ready_waits_for_what_is_not(trainer: Trainer, stream: Stream) -> None:
    """Step 4 is above the seal: what was asked for before it comes without it."""
    stream.ask((0, 0, 9), (3, 0, 8), (4, 0, 8), (5, 0, 8), pack_bytes=1 << 20)
    refused, batch = answers_of(stream.read())
    assert (refused.refused.error, batch.batch.step) == ("UsageError", 3)
    assert [[answer.refused.error for answer in answers_of(stream.read())] for _ in range(2)] == [
        ["OutOfRangeError"]
    ] * 2
