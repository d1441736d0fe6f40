"""AdamW in thirty lines (Loshchilov and Hutter, 2019).

Why not torch's: making one imports torch's compiler, which costs more processor time than training a tiny proxy for
a hundred steps. What holds: the same update as `torch.optim.AdamW`, to rounding; moments by parameter name, so that
a checkpoint needs no order. What was given up: fused kernels; a proxy has few, small tensors.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor, nn

_FIRST, _SECOND, _EPSILON = 0.9, 0.95, 1e-8


class AdamW:
    """Moments of a model's parameters; weight decay on matrices only."""

    def __init__(self, model: nn.Module, *, weight_decay: float) -> None:
        self._parameters = dict(model.named_parameters())
        self._decay = weight_decay
        self.updates = 0
        self.first = {name: torch.zeros_like(p) for name, p in self._parameters.items()}
        self.second = {name: torch.zeros_like(p) for name, p in self._parameters.items()}

    @torch.no_grad()
    def step(self, rate: float) -> None:
        """One update with the gradients that are there, which are forgotten."""
        self.updates += 1
        scale = math.sqrt(1 - _SECOND**self.updates)
        size = rate / (1 - _FIRST**self.updates)
        for name, parameter in self._parameters.items():
            gradient = parameter.grad
            if gradient is None:
                continue
            if parameter.ndim > 1:
                parameter.mul_(1 - rate * self._decay)
            self.first[name].lerp_(gradient, 1 - _FIRST)
            self.second[name].mul_(_SECOND).addcmul_(gradient, gradient, value=1 - _SECOND)
            parameter.addcdiv_(self.first[name], (self.second[name].sqrt() / scale).add_(_EPSILON), value=-size)
            parameter.grad = None

    def moments(self) -> dict[str, Tensor]:
        """Both moments of every parameter, as `first/NAME` and `second/NAME`."""
        return {f"first/{n}": t for n, t in self.first.items()} | {f"second/{n}": t for n, t in self.second.items()}

    def load(self, moments: Mapping[str, Tensor], updates: int) -> None:
        """Go on from moments. Raises KeyError or RuntimeError when they belong to another model."""
        for name, mine in self.moments().items():
            mine.copy_(moments[name])
        self.updates = updates
