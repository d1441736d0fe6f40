"""Ranks from meshes, peers that share rows, losses that are summed once: on four real processes."""

from __future__ import annotations

import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
import torch
from headrace.client import DomainLoss
from headrace.client.torch import Loader
from headrace.client.torch.losses import domain_sums
from headrace.proto.errors import UsageError
from headrace.proto.v1 import feedback_pb2, feedback_pb2_grpc
from toy_server import DOMAINS, Toy, ToyServer
from training import Training, ranks_environ

TOY = Toy(shapes=((12, 8, 16),))
PROGRAM = Path(__file__).with_name("mesh_program.py")


class Losses(feedback_pb2_grpc.FeedbackServiceServicer):
    """Keeps what is reported."""

    def __init__(self) -> None:
        self.reports: list[Any] = []

    def ReportLosses(self, request: Any, context: object) -> feedback_pb2.ReportLossesResponse:  # noqa: N802
        self.reports.append(request)
        return feedback_pb2.ReportLossesResponse(accepted=len(request.losses))


def hearing(losses: Losses) -> ToyServer:
    return ToyServer(TOY, setup=lambda s: feedback_pb2_grpc.add_FeedbackServiceServicer_to_server(losses, s.server))


def labelled_tokens(step: int) -> dict[str, int]:
    rows = TOY.rows(step)
    counts: dict[str, int] = defaultdict(int)
    for domain, real in zip(rows["domains"], rows["real"], strict=True):
        counts[DOMAINS[domain]] += int(real) - 1
    return counts


def test_a_mesh_of_data_and_tensor_ranks(tmp_path: Path) -> None:
    losses = Losses()
    with hearing(losses) as server, Training(tmp_path) as training:
        for environ in ranks_environ(4, attempt=0):
            training.spawn([str(PROGRAM), server.address], environ)
        training.finish()
    # One report a step, with every labelled token of the global batch once.
    assert [report.step for report in losses.reports] == [0, 1]
    for report in losses.reports:
        assert {loss.domain: loss.tokens for loss in report.losses} == labelled_tokens(report.step)
        for loss in report.losses:
            assert loss.loss_sum == loss.tokens
            assert loss.excess_sum == 0.75 * loss.tokens


def test_sums_by_domain_ignore_what_has_no_label() -> None:
    with ToyServer(TOY) as server, Loader(server.address, "toy", mode="observe") as loader:
        for batch in loader:
            per_token = torch.rand(batch.labels.shape)
            per_token[~batch.loss_mask] = torch.nan
            sums = domain_sums(per_token, batch)
            for index in range(len(DOMAINS)):
                mine = batch.loss_mask & (batch.domain == index)[:, None]
                assert sums[1, index] == mine.sum()
                assert torch.isclose(sums[0, index], per_token[mine].double().sum())
            assert not sums[:, len(DOMAINS) :].any()
        with pytest.raises(UsageError, match="reduction"):
            domain_sums(torch.zeros(3), batch)


def test_a_step_that_overflows_does_not_end_the_training(caplog: pytest.LogCaptureFixture) -> None:
    """Half of a loss scaler's work is steps that overflow: what is finite is reported, the rest is told once."""
    losses = Losses()
    with hearing(losses) as server, Loader(server.address, "toy", job="j") as loader:
        for step, batch in enumerate(loader):
            per_token = torch.ones(batch.labels.shape)
            if 2 <= step < 5:
                per_token[batch.domain == 0] = (torch.nan, torch.inf, -torch.inf)[step - 2]
            loader.report(per_token, batch)
    told = [record.getMessage() for record in caplog.records if "not finite" in record.getMessage()]
    assert len(told) == 1
    assert "step 2: the losses of `code`" in told[0]
    assert len(losses.reports) == TOY.end
    for report in losses.reports:
        expected = {name: count for name, count in labelled_tokens(report.step).items() if count}
        if 2 <= report.step < 5:
            del expected["code"]
        assert {loss.domain: loss.loss_sum for loss in report.losses} == expected


def test_a_loss_that_is_not_finite_is_refused_by_name() -> None:
    for wrong in ({"loss_sum": float("nan"), "tokens": 1}, {"loss_sum": 1.0, "tokens": 0}):
        with pytest.raises(UsageError, match=r"finite|tokens"):
            DomainLoss(**wrong)  # type: ignore[arg-type]
    assert sys.float_info.max == DomainLoss(loss_sum=sys.float_info.max, tokens=1).loss_sum
