"""Losses by token and by domain: sums and counts, so that they add up over micro-batches and ranks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from headrace.mixer.proxy.batch import Rows
from torch.nn import functional


@dataclass(frozen=True, kw_only=True, slots=True)
class DomainLoss:
    """Sum of the losses (nats) of a domain's tokens and their number; excess: sum of max(loss - reference, 0)."""

    loss: float
    tokens: int
    excess: float | None = None

    @property
    def mean(self) -> float:
        """Nats a token."""
        return self.loss / self.tokens


def token_losses(logits: torch.Tensor, rows: Rows) -> torch.Tensor:
    """(R, S) cross-entropy in nats, 0 where there is no label."""
    labels = torch.where(rows.mask, rows.labels, -100)
    flat = functional.cross_entropy(logits.flatten(0, 1).float(), labels.flatten(), ignore_index=-100, reduction="none")
    return flat.view(labels.shape)


def domain_sums(rows: Rows, *losses: torch.Tensor) -> torch.Tensor:
    """(k, 1 + n) float64: number of labelled tokens and the sum of each (R, S) loss, by domain, in one `index_add`."""
    counted = rows.mask.sum(dim=1).double()
    columns = torch.stack([counted, *((loss * rows.mask).sum(dim=1).double() for loss in losses)], dim=1)
    empty = torch.zeros((len(rows.names), columns.shape[1]), dtype=torch.float64, device=columns.device)
    return empty.index_add_(0, rows.domain, columns)


def row_weights(rows: Rows, tokens: torch.Tensor, weights: Mapping[str, float]) -> torch.Tensor:
    """(R,) the weight of each row's summed token losses in sum_i weights_i * (mean loss of domain i). tokens: (k,)
    labelled ones by domain, as `domain_sums` has them; a domain without any counts nothing."""
    parts = torch.tensor([weights[name] for name in rows.names], dtype=torch.float64, device=tokens.device)
    return torch.where(tokens > 0, parts / tokens.clamp(min=1), 0.0)[rows.domain].float()


def by_name(names: tuple[str, ...], sums: torch.Tensor) -> Mapping[str, DomainLoss]:
    """The domains that had a labelled token, by name."""
    return {
        name: DomainLoss(loss=row[1], tokens=int(row[0]), excess=row[2] if len(row) > 2 else None)
        for name, row in zip(names, sums.tolist(), strict=True)
        if row[0] > 0
    }
