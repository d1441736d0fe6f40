"""The server as the mixer sees it: runs, losses, and changes of weights, over gRPC."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

import grpc
from headrace.client.endpoints import Token, check_addresses, open_channel
from headrace.client.settings import Tls
from headrace.mixer.reports import Measured, Report
from headrace.mixer.result import Mixture
from headrace.mixer.serve import Pushed, RunFacts
from headrace.proto.errors import from_rpc
from headrace.proto.v1 import control_pb2, control_pb2_grpc, feedback_pb2, feedback_pb2_grpc

Answer = TypeVar("Answer")

# Seconds: a control call waits for the store at most so long.
TIMEOUT = 20.0


class Remote:
    """One run on one server; a context manager. Calls raise what the server refuses with, or UnavailableError."""

    def __init__(
        self,
        address: str,
        run: str,
        *,
        tls: Tls | None = None,
        token_file: Path | None = None,
        author: str = "mixer",
    ) -> None:
        check_addresses([address], tls=tls, token_file=token_file)
        self.address, self.run, self.author = address, run, author
        self._token = Token(token_file) if token_file else None
        self._channel = open_channel(address, tls)
        self._control = control_pb2_grpc.ControlServiceStub(self._channel)  # type: ignore[no-untyped-call]
        self._feedback = feedback_pb2_grpc.FeedbackServiceStub(self._channel)  # type: ignore[no-untyped-call]

    def facts(self) -> RunFacts:
        """The run now, from one snapshot: the first message of a watch has the figures that `GetRun` lacks."""
        request = control_pb2.WatchRunRequest(run=self.run)
        answer = self._call(self._first_of_watch, request, f"look at run `{self.run}`")
        info, figures = answer.run, answer.figures
        return RunFacts(
            run_id=info.run_id,
            weights=dict(sorted(zip(info.domains, info.weights, strict=True))),
            confirmed=info.confirmed,
            seal=info.seal,
            lead=info.lead,
            end_step=info.end_step if info.HasField("end_step") else None,
            head=info.log_head,
            served={each.domain: float(each.tokens) for each in figures},
            sizes={each.domain: float(round(each.tokens / each.epochs)) for each in figures if each.epochs > 0},
        )

    def _first_of_watch(self, request: Any, **options: Any) -> control_pb2.WatchRunResponse:
        stream = self._control.WatchRun(request, **options)
        try:
            first: control_pb2.WatchRunResponse = next(iter(stream))
        finally:
            stream.cancel()
        return first

    def losses(self, first: int, end: int) -> Sequence[Report]:
        """What was reported of steps [first, end), a report a step, summed over ranks."""
        request = feedback_pb2.WatchLossesRequest(run=self.run, from_step=first, to_step=end)
        doing = f"read losses of run `{self.run}`"
        return self._call(lambda *a, **k: _reports(self._feedback.WatchLosses(*a, **k)), request, doing)

    def push(self, mixture: Mixture, *, head: bytes, key: str, reason: str) -> Pushed:
        """Set the weights from the first unsealed step on. Raises StaleError when the head of the log has moved."""
        request = control_pb2.SetWeightsRequest(
            run=self.run,
            weights=mixture.weights,
            author=self.author,
            reason=reason,
            expected_head=head,
            idempotency_key=key,
        )
        answer = self._call(self._control.SetWeights, request, f"set the weights of run `{self.run}`")
        return Pushed(sequence=answer.event.sequence, from_step=answer.event.from_step)

    def create(self, spec: str, base_dir: Path) -> str:
        """Make another run on the server from the text of a RUN.toml; its id."""
        request = control_pb2.CreateRunRequest(spec_toml=spec, base_dir=str(base_dir), author=self.author)
        answer: control_pb2.CreateRunResponse = self._call(self._control.CreateRun, request, "create a run")
        return answer.run.run_id

    def _call(self, method: Callable[..., Answer], request: Any, doing: str) -> Answer:
        try:
            return method(request, timeout=TIMEOUT, metadata=self._token.metadata() if self._token else None)
        except grpc.RpcError as error:
            raise from_rpc(error, doing=doing, endpoint=self.address) from None

    def close(self) -> None:
        """Hang up."""
        self._channel.close()

    def __enter__(self) -> Remote:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _reports(answers: Iterable[feedback_pb2.WatchLossesResponse]) -> list[Report]:
    return [
        Report(step=step.step, domains={loss.domain: _measured(loss) for loss in step.losses})
        for answer in answers
        for step in answer.steps
    ]


def _measured(loss: feedback_pb2.DomainLoss) -> Measured:
    excess = loss.excess_sum if loss.HasField("excess_sum") else None
    return Measured(loss=loss.loss_sum, tokens=loss.tokens, excess=excess)


def create_run(
    address: str,
    spec: str,
    *,
    base_dir: Path,
    author: str = "mixer",
    tls: Tls | None = None,
    token_file: Path | None = None,
) -> str:
    """Make a run from the text of a RUN.toml; its id. An equal run that is there already is answered as success."""
    with Remote(address, "", tls=tls, token_file=token_file, author=author) as remote:
        return remote.create(spec, base_dir)
