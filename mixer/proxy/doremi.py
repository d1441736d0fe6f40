"""DoReMi inside the proxy's trainer: the stream stays uniform and constant, the weights stay here.

Each step: the reference and the proxy read the same batch; max(proxy - reference, 0) by token, summed by domain,
moves the weights (`headrace.mixer.doremi`); then the step trains with them:

* `paper`: sum_i alpha_i * (mean loss of domain i), the plain loss, not the clamped one, over each domain's own tokens
  (the released code divides by alpha-weighted tokens of the whole batch, which is not the paper's objective).
* `sampled`: rows of the uniform batch drawn again with replacement, so that domain i has alpha_i of them on average,
  and trained with the plain mean: what textbooks describe. Another algorithm, named so in the result.

What holds: weights are updated before they are used, as published; a domain without a row in the batch is skipped; a
batch with fewer rows than domains is refused at the start. What was given up: gradient accumulation over several
updates.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, get_args

import torch
from headrace.mixer import doremi
from headrace.mixer.doremi import DoremiSpec, DoremiState
from headrace.mixer.proxy.batch import Rows
from headrace.mixer.proxy.losses import domain_sums, row_weights
from headrace.mixer.proxy.model import Proxy
from headrace.mixer.proxy.train import losses_of
from headrace.mixer.reports import Measured, Report
from headrace.mixer.simplex import vector
from headrace.proto.errors import ConflictError, UsageError

Mode = Literal["paper", "sampled"]


class DoremiObjective:
    """An objective that carries a DoReMi state; `state.average` is the answer."""

    def __init__(
        self, reference: Proxy, initial: Mapping[str, float], spec: DoremiSpec, *, mode: Mode = "paper", seed: int = 0
    ) -> None:
        if mode not in get_args(Mode):
            raise UsageError(f"doremi: mode is `{mode}`; choose `paper` or `sampled`")
        self.reference = reference.eval().requires_grad_(False)
        self.spec, self.mode, self.seed = spec, mode, seed
        self.state = doremi.start(initial, spec)

    def prepare(self, model: Proxy, rows: Rows, micro_rows: int) -> tuple[Rows, torch.Tensor]:
        """Update the weights from this batch, then say how they weigh it."""
        self._check(model, rows)
        sums = self._excess(model, rows, micro_rows)
        self.state = doremi.advance(self.state, _report(rows, sums), self.spec)
        if self.mode == "sampled":
            drawn = self._draw(rows)
            return drawn, (1.0 / drawn.mask.sum().clamp(min=1)).expand(len(drawn))
        return rows, row_weights(rows, sums[:, 0], self.state.weights)

    def note(self) -> dict[str, Any]:
        """The state and what made it."""
        return {"doremi": self.state.to_json(), "mode": self.mode, "seed": self.seed}

    def restore(self, note: Mapping[str, Any]) -> None:
        """Go on from a note of the same mode and seed."""
        if (note.get("mode"), note.get("seed")) != (self.mode, self.seed):
            raise ValueError(f"it was trained with DoReMi in mode {note.get('mode')}, seed {note.get('seed')}")
        self.state = DoremiState(**note["doremi"])

    def _check(self, model: Proxy, rows: Rows) -> None:
        if self.reference.config.vocab_size != model.config.vocab_size:
            raise ConflictError("doremi: reference and proxy have different vocabularies; train both on one corpus")
        if set(rows.names) != set(self.state.weights):
            raise UsageError(
                f"doremi: the run serves {', '.join(rows.names)}, the weights name {', '.join(self.state.weights)}"
            )
        if len(rows) < len(rows.names):
            raise UsageError(
                f"doremi: a batch of {len(rows)} rows cannot hold each of {len(rows.names)} domains; use a larger batch"
            )

    @torch.no_grad()
    def _excess(self, model: Proxy, rows: Rows, micro_rows: int) -> torch.Tensor:
        """(k, 3): tokens, proxy loss, clamped excess by domain."""
        parts = []
        for part in rows.chunks(micro_rows):
            losses = losses_of(model, part)
            parts.append(domain_sums(part, losses, (losses - losses_of(self.reference, part)).clamp(min=0)))
        return torch.stack(parts).sum(dim=0)

    def _draw(self, rows: Rows) -> Rows:
        weights = torch.tensor(vector(self.state.weights, rows.names), device=rows.ids.device)
        present = torch.bincount(rows.domain, minlength=len(rows.names)).clamp(min=1)
        generator = torch.Generator().manual_seed(self.seed * 1_000_003 + rows.step)
        chance = (weights / present)[rows.domain].cpu()
        return rows.select(
            torch.multinomial(chance, len(rows), replacement=True, generator=generator).to(rows.ids.device)
        )


def _report(rows: Rows, sums: torch.Tensor) -> Report:
    values = {
        name: Measured(loss=loss, tokens=int(tokens), excess=excess)
        for name, (tokens, loss, excess) in zip(rows.names, sums.tolist(), strict=True)
        if tokens > 0
    }
    return Report(step=rows.step, domains=values)
