"""Aioli inside the proxy's trainer: the stream stays uniform and constant, what a step trains on is weighed here.

What holds: the proxy minimises sum_i p_i * (mean loss of domain i) with p nearly one domain while it is measured, and
the weights otherwise; held-out losses are those of the same windows each time. Cost: a forward pass over the held-out
windows for each measuring, besides the training itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from headrace.mixer import aioli
from headrace.mixer.aioli import AioliSpec, AioliState
from headrace.mixer.proxy.batch import Rows
from headrace.mixer.proxy.evaluate import evaluate
from headrace.mixer.proxy.losses import domain_sums, row_weights
from headrace.mixer.proxy.model import Proxy
from headrace.proto.errors import UsageError


class AioliObjective:
    """An objective that carries an Aioli state; `state.average` is the answer. held_out: windows of every domain."""

    def __init__(self, initial: Mapping[str, float], spec: AioliSpec, held_out: Sequence[Rows]) -> None:
        self.spec, self.held_out = spec, held_out
        self.state, self.step = aioli.start(initial, spec), 0

    def prepare(self, model: Proxy, rows: Rows, micro_rows: int) -> tuple[Rows, torch.Tensor]:
        """Measure where that is due, then weigh the batch."""
        if set(rows.names) != set(self.state.weights):
            raise UsageError(
                f"aioli: the run serves {', '.join(rows.names)}, the weights name {', '.join(self.state.weights)}"
            )
        if aioli.due(tuple(self.state.weights), self.spec, self.step):
            losses = {name: loss.mean for name, loss in evaluate(model, self.held_out, micro_rows=micro_rows).items()}
            self.state = aioli.observe(self.state, losses, self.spec, self.step)
        weights = aioli.mixture(self.state, self.spec, self.step)
        self.step += 1
        return rows, row_weights(rows, domain_sums(rows)[:, 0], weights)

    def note(self) -> dict[str, Any]:
        """The state and how many steps it has seen."""
        return {"aioli": self.state.to_json(), "step": self.step}

    def restore(self, note: Mapping[str, Any]) -> None:
        """Go on from a note."""
        if "aioli" not in note:
            raise ValueError("it was trained with another objective")
        self.state, self.step = AioliState(**note["aioli"]), int(note["step"])
