"""DoGE inside the proxy's trainer: one gradient a domain and step, their inner products move the weights.

What holds: the proxy trains with sum_i alpha_i * (mean loss of domain i) at the weights just updated; gradients are
clipped by domain to `largest_norm` before they are compared, as published. Cost: one backward pass a domain besides
the step's own. What was given up: the subset of modules that the paper uses to save memory; all parameters are
compared.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from headrace.mixer import doge
from headrace.mixer.doge import DogeSpec, DogeState
from headrace.mixer.proxy.batch import Rows
from headrace.mixer.proxy.losses import domain_sums, row_weights
from headrace.mixer.proxy.model import Proxy
from headrace.mixer.proxy.train import losses_of
from headrace.proto.errors import UsageError


class DogeObjective:
    """An objective that carries a DoGE state; `state.average` is the answer."""

    def __init__(self, initial: Mapping[str, float], spec: DogeSpec, *, largest_norm: float = 5.0) -> None:
        if not largest_norm > 0:
            raise UsageError(f"doge: largest_norm is {largest_norm}; it must be above 0")
        self.spec, self.largest_norm = spec, largest_norm
        self.state = doge.start(initial)

    def prepare(self, model: Proxy, rows: Rows, micro_rows: int) -> tuple[Rows, torch.Tensor]:
        """Update the weights from this batch's gradients, then weigh it with them."""
        if set(rows.names) != set(self.state.weights):
            raise UsageError(
                f"doge: the run serves {', '.join(rows.names)}, the weights name {', '.join(self.state.weights)}"
            )
        tokens = domain_sums(rows)[:, 0]
        present = [index for index, count in enumerate(tokens.tolist()) if count > 0]
        gradients = torch.stack(
            [self._gradient(model, rows.select(rows.domain == index), micro_rows) for index in present]
        )
        gram = (gradients @ gradients.T).double().cpu().numpy()
        self.state = doge.advance(self.state, tuple(rows.names[index] for index in present), gram, self.spec)
        return rows, row_weights(rows, tokens, self.state.weights)

    def note(self) -> dict[str, Any]:
        """The state."""
        return {"doge": self.state.to_json()}

    def restore(self, note: Mapping[str, Any]) -> None:
        """Go on from a note."""
        if "doge" not in note:
            raise ValueError("it was trained with another objective")
        self.state = DogeState(**note["doge"])

    def _gradient(self, model: Proxy, rows: Rows, micro_rows: int) -> torch.Tensor:
        """The gradient of the mean loss of rows (all of one domain), its norm clipped, as one flat vector."""
        parameters = list(model.parameters())
        total = torch.zeros(sum(p.numel() for p in parameters), device=rows.ids.device)
        tokens = rows.mask.sum().clamp(min=1)
        for part in rows.chunks(micro_rows):
            gradients = torch.autograd.grad(losses_of(model, part).sum() / tokens, parameters)
            total += torch.cat([gradient.flatten().float() for gradient in gradients])
        clipped: torch.Tensor = total * (self.largest_norm / total.norm().clamp(min=self.largest_norm))
        return clipped
