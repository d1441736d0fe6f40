"""A live server as the source of the `run` and `weights` commands."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import grpc
from google.protobuf.message_factory import GetMessageClass
from headrace.client.endpoints import Token, check_addresses, open_channel
from headrace.client.settings import Tls
from headrace.proto.errors import from_rpc
from headrace.proto.v1 import control_pb2 as pb

_SERVICE = pb.DESCRIPTOR.services_by_name["ControlService"]
_SECONDS = 30.0
_LONG = 3600.0  # documents are looked up in every shard that may hold them


class Remote:
    """Calls the ControlService at an address, each call within 30 s; over TLS and with a token where they are given."""

    def __init__(self, address: str, *, tls: Tls | None = None, token_file: Path | None = None) -> None:
        check_addresses([address], tls=tls, token_file=token_file)
        self._address = address
        self._metadata = Token(token_file).metadata() if token_file else None
        self._channel = open_channel(address, tls)

    def __enter__(self) -> Remote:
        return self

    def __exit__(self, *exc: object) -> None:
        self._channel.close()

    def _call(self, doing: str, method: str, request: Any, *, seconds: float = _SECONDS) -> Any:
        answer: Any = GetMessageClass(_SERVICE.methods_by_name[method].output_type)
        call = self._channel.unary_unary(
            f"/{_SERVICE.full_name}/{method}",
            request_serializer=type(request).SerializeToString,
            response_deserializer=answer.FromString,
        )
        try:
            return call(request, timeout=seconds, metadata=self._metadata)
        except grpc.RpcError as error:
            raise from_rpc(error, doing=doing, endpoint=self._address) from None

    def runs(self) -> pb.ListRunsResponse:
        answer: pb.ListRunsResponse = self._call("list runs", "ListRuns", pb.ListRunsRequest())
        return answer

    def run(self, name: str) -> pb.RunInfo:
        answer: pb.GetRunResponse = self._call(f"get run `{name}`", "GetRun", pb.GetRunRequest(run=name))
        return answer.run

    def events(self, name: str) -> list[pb.Event]:
        request = pb.ListEventsRequest(run=name)
        answer: pb.ListEventsResponse = self._call(f"list events of run `{name}`", "ListEvents", request)
        return list(answer.events)

    def explain(self, name: str, step: int, text_characters: int = 0) -> pb.ExplainResponse:
        return self._explain(f"explain step {step} of run `{name}`", name, step, text_characters)

    def digest(self, name: str, step: int) -> bytes:
        return self._explain(f"compute the digest of step {step} of run `{name}`", name, step, 0).step_digest

    def _explain(self, doing: str, name: str, step: int, text_characters: int) -> pb.ExplainResponse:
        request = pb.ExplainRequest(run=name, step=step, text_characters=text_characters)
        answer: pb.ExplainResponse = self._call(doing, "Explain", request)
        return answer

    def create(self, request: pb.CreateRunRequest) -> pb.CreateRunResponse:
        answer: pb.CreateRunResponse = self._call("create a run", "CreateRun", request)
        return answer

    def set_weights(self, request: pb.SetWeightsRequest) -> pb.EventResponse:
        answer: pb.EventResponse = self._call(f"set weights of run `{request.run}`", "SetWeights", request)
        return answer

    def cancel(self, request: pb.CancelEventRequest) -> pb.EventResponse:
        answer: pb.EventResponse = self._call(f"cancel an event of `{request.run}`", "CancelEvent", request)
        return answer

    def branch(self, request: pb.BranchRunRequest) -> pb.CreateRunResponse:
        answer: pb.CreateRunResponse = self._call(f"branch run `{request.parent}`", "BranchRun", request)
        return answer

    def grow(self, request: pb.GrowDomainRequest) -> pb.EventResponse:
        answer: pb.EventResponse = self._call(f"grow a domain of run `{request.run}`", "GrowDomain", request)
        return answer

    def mask(self, request: pb.MaskRequest) -> pb.EventResponse:
        answer: pb.EventResponse = self._call(f"mask documents of run `{request.run}`", "Mask", request, seconds=_LONG)
        return answer

    def forecast(self, name: str) -> pb.ForecastResponse:
        request = pb.ForecastRequest(run=name)
        answer: pb.ForecastResponse = self._call(f"forecast run `{name}`", "Forecast", request)
        return answer

    def export(self, name: str) -> str:
        answer: pb.ExportRunResponse = self._call(f"export run `{name}`", "ExportRun", pb.ExportRunRequest(run=name))
        return answer.document

    def import_run(self, request: pb.ImportRunRequest) -> pb.CreateRunResponse:
        answer: pb.CreateRunResponse = self._call("import a run", "ImportRun", request)
        return answer

    def refusals(self, name: str) -> list[pb.Refusal]:
        request = pb.ListRefusalsRequest(run=name)
        answer: pb.ListRefusalsResponse = self._call("list refused changes", "ListRefusals", request)
        return list(answer.refusals)
