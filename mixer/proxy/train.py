"""The training loop of the proxy, over any iterator of batches, with its objective as a part that methods replace.

What holds: a trainer is a function of (config, seed, batches); continued from a checkpoint it takes the same steps
as one that never stopped, on the same machine and number of threads (float sums depend on both). Each step reports
sums and counts by domain. What was given up: data-parallel training of the proxy; it is small.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from headrace.mixer.proxy.adamw import AdamW
from headrace.mixer.proxy.batch import Rows
from headrace.mixer.proxy.config import ModelConfig, TrainConfig
from headrace.mixer.proxy.losses import DomainLoss, by_name, domain_sums, token_losses
from headrace.mixer.proxy.model import Proxy
from headrace.proto.errors import HeadraceError


@dataclass(frozen=True, kw_only=True, slots=True)
class StepReport:
    """One step taken: mean loss (nats a token) and sums by domain."""

    step: int
    loss: float
    losses: Mapping[str, DomainLoss]


class Objective(Protocol):
    """What a step minimises. `prepare` sees the whole batch first (and may update weights from it)."""

    def prepare(self, model: Proxy, rows: Rows, micro_rows: int) -> tuple[Rows, torch.Tensor]:
        """The rows to train on and (R,) the weight of each row's summed token losses in this step's objective."""

    def note(self) -> dict[str, Any]:
        """What a checkpoint must keep of it, as a JSON object."""

    def restore(self, note: Mapping[str, Any]) -> None:
        """Go on from a note."""


class MeanLoss:
    """The mean over all labelled tokens of the batch: ordinary pretraining."""

    def prepare(self, model: Proxy, rows: Rows, micro_rows: int) -> tuple[Rows, torch.Tensor]:
        """1 / tokens of the batch, for every row."""
        return rows, (1.0 / rows.mask.sum().clamp(min=1)).expand(len(rows))

    def note(self) -> dict[str, Any]:
        """Nothing to keep."""
        return {}

    def restore(self, note: Mapping[str, Any]) -> None:
        """Nothing to restore; a note of another objective is refused."""
        if note:
            raise ValueError("it was trained with another objective")


class Trainer:
    """Model, optimizer, the number of steps taken and the seconds they took, over all starts of the training."""

    def __init__(self, model: ModelConfig, config: TrainConfig, objective: Objective | None = None) -> None:
        self.config = config
        self.objective: Objective = objective or MeanLoss()
        self.model = Proxy(model, seed=config.seed).to(config.device)
        self.optimizer = AdamW(self.model, weight_decay=config.weight_decay)
        self.step, self.seconds = 0, 0.0

    def rate(self) -> float:
        """Learning rate of the next step."""
        if self.step < self.config.warmup:
            return self.config.lr * (self.step + 1) / self.config.warmup
        part = (self.step - self.config.warmup) / max(1, self.config.steps - self.config.warmup)
        return self.config.lr * (0.55 + 0.45 * math.cos(math.pi * min(part, 1.0)))

    def take(self, rows: Rows) -> StepReport:
        """One optimizer step. Raises HeadraceError when the loss is no longer finite."""
        rows, weights = self.objective.prepare(self.model, rows, self.config.micro_rows or len(rows))
        sums = self._backward(rows, weights)
        norm = torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.config.clip)
        if not torch.isfinite(norm):
            raise HeadraceError(
                f"proxy: the loss of step {self.step} is not finite; lower the learning rate ({self.config.lr}) or "
                "look at that step's data with `headrace run explain`"
            )
        self.optimizer.step(self.rate())
        self.step += 1
        total = sums.sum(dim=0).tolist()
        return StepReport(step=self.step - 1, loss=total[1] / max(total[0], 1.0), losses=by_name(rows.names, sums))

    def _backward(self, rows: Rows, weights: torch.Tensor) -> torch.Tensor:
        """Gradients of sum_r weight_r * (row's summed losses), micro-batch by micro-batch; the domain sums."""
        size = self.config.micro_rows or len(rows)
        sums = torch.zeros((len(rows.names), 2), dtype=torch.float64, device=rows.ids.device)
        for part, weight in zip(rows.chunks(size), torch.split(weights, size), strict=True):
            losses = losses_of(self.model, part)
            (losses.sum(dim=1) * weight).sum().backward()  # type: ignore[no-untyped-call]
            sums += domain_sums(part, losses.detach())
        return sums


def losses_of(model: Proxy, rows: Rows) -> torch.Tensor:
    """(R, S) token losses of the model on rows."""
    with autocast(rows.ids.device.type):
        logits = model(rows.ids, rows.positions)
    return token_losses(logits, rows)


def autocast(device: str) -> torch.autocast:
    """bfloat16 arithmetic on accelerators, float32 on the CPU."""
    return torch.autocast(torch.device(device).type, dtype=torch.bfloat16, enabled=torch.device(device).type != "cpu")


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainReport:
    """A training that ended: first and last reports, and its price."""

    first: StepReport
    last: StepReport
    steps: int
    tokens: int
    seconds: float
    flops: float


def train(
    trainer: Trainer, batches: Iterable[Rows], on_step: Callable[[StepReport], None] | None = None
) -> TrainReport:
    """Take a step for each batch. Raises HeadraceError when there is none."""
    began, first, last, tokens, steps = time.monotonic(), None, None, 0, 0
    for rows in batches:
        last = trainer.take(rows)
        first = first or last
        tokens += rows.ids.numel()
        steps += 1
        if on_step:
            on_step(last)
    if first is None or last is None:
        raise HeadraceError("proxy: there was no batch to train on; the run has no step left")
    flops, seconds = float(tokens) * trainer.model.config.flops_per_token, time.monotonic() - began
    trainer.seconds += seconds
    return TrainReport(first=first, last=last, steps=steps, tokens=tokens, seconds=seconds, flops=flops)
