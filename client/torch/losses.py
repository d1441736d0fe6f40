"""Turns a trainer's unreduced losses into sums and counts by domain, over micro-batches and ranks.

One all-reduce a reported step (one for each data-parallel dimension of a mesh), of 3 numbers a domain in float64.
Everything stays on the losses' device until the one process that sends reads the result.
"""

from __future__ import annotations

import logging
import math
from dataclasses import dataclass

import torch
import torch.distributed as dist
from headrace.client.feedback import DomainLoss
from headrace.client.torch.batch import TensorBatch
from headrace.proto.errors import UsageError
from torch import Tensor
from torch.distributed import ProcessGroup

log = logging.getLogger("headrace.client")

# Sums have room for domains that join while some ranks do not know them yet.
_ROOM = 64


def domain_sums(losses: Tensor, batch: TensorBatch, reference: Tensor | None = None) -> Tensor:
    """(3, K) float64: by domain the loss sum, the count, and the sum of max(loss - reference, 0), of labelled tokens.

    `losses` and `reference` are (R, S) or (R * S,), unreduced, and may hold anything where there is no label.
    """
    losses = _rows(losses, batch, "losses")
    mask = batch.loss_mask.to(losses.device)
    zero = torch.zeros((), dtype=torch.float64, device=losses.device)
    values = [torch.where(mask, losses, zero).sum(1), mask.sum(1, dtype=torch.float64), torch.zeros_like(losses[:, 0])]
    if reference is not None:
        excess = (losses - _rows(reference, batch, "reference")).clamp_min(0)
        values[2] = torch.where(mask, excess, zero).sum(1)
    size = _ROOM * (len(batch.domain_names) // _ROOM + 1)
    sums = torch.zeros(3, size, dtype=torch.float64, device=losses.device)
    return sums.index_add_(1, batch.domain.to(losses.device), torch.stack(values))


def _rows(losses: Tensor, batch: TensorBatch, name: str) -> Tensor:
    rows, columns = len(batch), batch.host.seq_len
    if losses.numel() != rows * columns:
        raise UsageError(
            f"report: {name} has shape {tuple(losses.shape)}, one number for each of {rows} x {columns} positions is "
            'needed; compute the loss with reduction="none"'
        )
    return losses.detach().reshape(rows, columns).to(torch.float64)


@dataclass(kw_only=True, slots=True)
class LossSums:
    """Adds up the micro-batches of one step."""

    groups: tuple[ProcessGroup, ...] = ()
    first: bool = True
    _step: int = -1
    _sums: Tensor | None = None
    _warned: bool = False

    def add(self, losses: Tensor, batch: TensorBatch, reference: Tensor | None) -> dict[str, DomainLoss] | None:
        """The step's losses by domain, once its last micro-batch was added, and only in the process that sends."""
        sums = domain_sums(losses, batch, reference)
        if self._step == batch.step and self._sums is not None:
            sums = sums + self._sums
        self._step, self._sums = batch.step, sums
        if batch.micro[0] + 1 < batch.micro[1]:
            return None
        self._sums = None
        for group in self.groups:
            dist.all_reduce(sums, group=group)
        return self._read(sums, batch, with_excess=reference is not None) if self.first else None

    def _read(self, sums: Tensor, batch: TensorBatch, *, with_excess: bool) -> dict[str, DomainLoss]:
        loss_sum, count, excess = sums.tolist()
        found, odd = {}, []
        for index, name in enumerate(batch.domain_names):
            if not (math.isfinite(loss_sum[index]) and math.isfinite(excess[index])):
                odd.append(name)
            elif count[index]:
                found[name] = DomainLoss(
                    loss_sum=loss_sum[index],
                    tokens=round(count[index]),
                    excess_sum=excess[index] if with_excess else None,
                )
        self._warn(batch.step, odd)
        return found

    def _warn(self, step: int, odd: list[str]) -> None:
        """Once, until all are finite again. An overflow must not end a training that its loss scaler mends."""
        if odd and not self._warned:
            log.warning(
                "step %d: the losses of %s are not finite and are not reported, nor those of later steps until they "
                "are finite again",
                step,
                ", ".join(f"`{name}`" for name in odd),
            )
        self._warned = bool(odd)
