"""Row 42: an older client with this server, this client with an older or a newer server: equal digests, or words.

What older means is kept in `older/`: see `older_protocol.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from google.protobuf.descriptor_pb2 import DescriptorProto
from headrace.client import Loader
from headrace.native import __version__, row_digests, step_digest
from headrace.proto.errors import ConflictError, HeadraceError
from headrace.proto.v1 import control_pb2, data_pb2, feedback_pb2
from older_protocol import NAMES, OlderClient, Protocol, relay
from rig import Raw, ServerProcess, planned_digests, serving, write_run

PRESENT = {file.DESCRIPTOR.name: file.DESCRIPTOR for file in (data_pb2, control_pb2, feedback_pb2)}
STEPS = 30
JOB = {"id": "job", "world": 1, "rank": "0/1", "holder": "test"}
_numbers = count()


@pytest.fixture(scope="module", params=NAMES)
def protocol(request: pytest.FixtureRequest) -> Protocol:
    return Protocol(request.param)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with serving(tmp_path_factory.mktemp("server"), [], extra="changes_per_second = 0") as started:
        yield started


@pytest.fixture
def run(server: ServerProcess, tmp_path: Path, corpus: Path) -> str:
    """A run of its own, with a change of weights in the middle."""
    name = f"run-{next(_numbers)}"
    text = write_run(tmp_path, corpus, name=name, steps=STEPS, lead=64).read_text()
    with Raw(server.address) as raw:
        raw("CreateRun", spec_toml=text, base_dir=str(tmp_path))
        raw("SetWeights", run=name, weights={"a": 0.1, "b": 0.2, "c": 0.7}, from_step=12, until_step=20)
    return name


# ---- the messages


def fields_of(message: Any) -> dict[int, tuple[Any, ...]]:
    """What both sides of a wire must agree in, by number."""
    described = DescriptorProto()
    message.CopyToProto(described)
    about = ("name", "type", "label", "type_name", "proto3_optional")
    return {field.number: tuple(getattr(field, name) for name in about) for field in described.field}


def test_no_message_has_lost_or_changed_what_older_ones_have(protocol: Protocol) -> None:
    for file in protocol.files:
        present = PRESENT[file.name]
        for name, message in file.message_types_by_name.items():
            assert fields_of(message).items() <= fields_of(present.message_types_by_name[name]).items(), name
        for name, enum in file.enum_types_by_name.items():
            values = {value.name: value.number for value in present.enum_types_by_name[name].values}
            assert {value.name: value.number for value in enum.values}.items() <= values.items(), name
        for name, service in file.services_by_name.items():
            for method in service.methods:
                now_method = present.services_by_name[name].methods_by_name[method.name]
                for about in ("input_type", "output_type"):
                    assert getattr(method, about).full_name == getattr(now_method, about).full_name
                assert (method.client_streaming, method.server_streaming) == (
                    now_method.client_streaming,
                    now_method.server_streaming,
                )


# ---- an older client


def digest(batch: Any, opened: Any) -> bytes:
    """The step's digest as an older client makes it from what it has received."""
    weights = batch.loss_weights or np.ones(batch.rows, "<f4").tobytes()
    made = row_digests(
        batch.token_ids,
        (batch.seq_len + 1) * opened.id_bytes,
        np.frombuffer(batch.edge_ends, "<u4"),
        np.frombuffer(batch.edges, "<u4"),
        list(batch.domain_names or opened.domains),
        np.frombuffer(batch.domains, "<u4"),
        np.frombuffer(weights, "<f4"),
    )
    assert made == batch.row_digests
    return step_digest(made)


def test_an_older_client_trains_changes_weights_and_resumes(
    server: ServerProcess, run: str, protocol: Protocol
) -> None:
    digests: dict[int, bytes] = {}
    with OlderClient(protocol, server.address) as old:
        old("SetWeights", run=run, weights={"a": 0.6, "b": 0.2, "c": 0.2}, from_step=18, until_step=25)
        state = None
        for attempt, end in enumerate((14, STEPS)):
            opened = old("OpenRun", run=run, mode="OPEN_MODE_TRAIN", job={**JOB, "attempt": attempt}, state=state)
            for step in range(opened.next_step, end):
                asked = {"run_id": opened.run_id, "lease": opened.lease, "first_slot": 0, "rows": 8}
                batch = old("GetBatch", **asked, step=step, confirmation={"next_step": step}).batch
                digests[step] = digest(batch, opened)
            ids = {"run_id": opened.run_id, "spec_digest": opened.spec_digest}
            state = {"schema": 1, **ids, "plan_hash": batch.next_plan_hash, "next_step": end}
        if "StreamBatches" in protocol.methods:
            ranges = [{"step": step, "first_slot": 0, "rows": 8} for step in range(10)]
            answers = old.stream("StreamBatches", run_id=opened.run_id, lease=opened.lease, ranges=ranges)
            assert [digest(answer.batch, opened) for answer in answers] == [digests[step] for step in range(10)]
    assert digests == planned_digests(server.store, run, f"0:{STEPS}")


# ---- an older server


def taken(address: str, run: str, steps: int, state: Any = None) -> tuple[dict[int, bytes], Any]:
    """Digests of the steps that the client takes, and its state behind them."""
    made: dict[int, bytes] = {}
    with Loader(address, run, rank=0, world=1, job="job", attempt=0 if state is None else 1) as loader:
        if state is not None:
            loader.load_state_dict(state)
        for batch in loader:
            made[batch.step] = step_digest(batch.row_digests)
            if len(made) == steps:
                break
        return made, loader.state_dict()


def test_this_client_reads_from_an_older_server_and_goes_on_at_this_one(
    server: ServerProcess, run: str, protocol: Protocol
) -> None:
    with relay(server.address, protocol.methods.__contains__, protocol.reduced) as older:
        first, state = taken(older, run, 14)
    rest, _ = taken(server.address, run, STEPS, state)
    assert (min(rest), len(first)) == (14, 14)
    assert first | rest == planned_digests(server.store, run, f"0:{STEPS}")


def test_what_an_older_server_does_not_know_is_said_in_words(server: ServerProcess, run: str) -> None:
    """Masks came later than this protocol."""
    protocol = Protocol("before_masks")
    with (
        relay(server.address, protocol.methods.__contains__, protocol.reduced) as older,
        Raw(older) as raw,
        pytest.raises(HeadraceError, match="older than this client"),
    ):
        raw("Mask", run=run, mask={"by": "source", "values": ["a.jsonl:1"]})


# ---- a newer server


def newer(method: str, request: bool, data: bytes, *, covered: bool) -> bytes:
    """What a server of a later version might say: one field of Batch more, which its digests cover or do not."""
    if request or method not in ("OpenRun", "GetBatch"):
        return data
    if method == "OpenRun":
        opened = data_pb2.OpenRunResponse.FromString(data)
        opened.server_version, opened.streams = "9.8.7", False
        return opened.SerializeToString()
    answer = data_pb2.GetBatchResponse.FromString(data)
    if answer.HasField("batch"):
        answer.batch.MergeFromString(b"\x98\x06\x05")  # field 99: 5
        if covered:
            answer.batch.row_digests = bytes(16 * answer.batch.rows)
    return answer.SerializeToString()


def test_a_newer_server_whose_rows_this_client_does_not_know_is_refused_in_words(
    server: ServerProcess, run: str
) -> None:
    def change(method: str, request: bool, data: bytes) -> bytes:
        return newer(method, request, data, covered=True)

    with (
        relay(server.address, lambda name: name != "StreamBatches", change) as address,
        pytest.raises(ConflictError, match=r"version 9\.8\.7.*fields 99 of Batch.*use a client as new") as caught,
    ):
        taken(address, run, STEPS)
    assert f"this client (version {__version__})" in str(caught.value)


def test_a_field_that_means_nothing_to_the_digests_is_passed_over(server: ServerProcess, run: str) -> None:
    def change(method: str, request: bool, data: bytes) -> bytes:
        return newer(method, request, data, covered=False)

    with relay(server.address, lambda name: name != "StreamBatches", change) as address:
        made, _ = taken(address, run, STEPS)
    assert made == planned_digests(server.store, run, f"0:{STEPS}")
