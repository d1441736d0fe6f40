"""Held-out loss of a proxy by domain: sums over all windows, so that it does not depend on batches."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from headrace.mixer.proxy.batch import Rows
from headrace.mixer.proxy.losses import DomainLoss, by_name, domain_sums
from headrace.mixer.proxy.model import Proxy
from headrace.mixer.proxy.train import losses_of
from headrace.proto.errors import UsageError


@torch.no_grad()
def evaluate(model: Proxy, batches: Iterable[Rows], *, micro_rows: int = 0) -> dict[str, DomainLoss]:
    """Sums of losses and counts of tokens by domain over all batches. Raises UsageError when there is none."""
    total: torch.Tensor | None = None
    names: tuple[str, ...] = ()
    for rows in batches:
        for part in rows.chunks(micro_rows or len(rows)):
            sums = domain_sums(part, losses_of(model, part))
            if total is not None and len(total) < len(sums):  # a domain joined: names are only ever appended
                total = torch.cat([total, sums.new_zeros((len(sums) - len(total), 2))])
            total = sums if total is None else total + sums
        names = rows.names
    if total is None:
        raise UsageError("evaluate: the held-out run served no window")
    return dict(by_name(names, total))
