"""What the examples share: options, an orderly end, a very small language model, the trace of what was trained on."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypedDict

import torch
from headrace.client import exit_on_signal
from headrace.client.batch import Batch
from headrace.client.torch import TensorBatch
from headrace.proto.errors import HeadraceError
from torch import Tensor, nn
from torch.nn import functional


class LaunchOptions(TypedDict):
    """What a Loader takes of them, as keywords."""

    job: str | None
    attempt: int | None
    takeover: bool
    start: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Options:
    """Command line of an example."""

    server: list[str]
    run: str
    steps: int
    folder: Path
    trace: Path | None
    save_every: int
    print_every: int
    job: str | None
    attempt: int | None
    takeover: bool
    start: str

    @property
    def launch(self) -> LaunchOptions:
        return LaunchOptions(job=self.job, attempt=self.attempt, takeover=self.takeover, start=self.start)


def main(example: Callable[[Options], object], description: str | None) -> None:
    """Runs an example as a command: SIGTERM leaves its `with` blocks, and what is refused is said in one line."""
    chosen = options(description)
    exit_on_signal()
    try:
        example(chosen)
    except HeadraceError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(error.exit_code)


def options(description: str | None) -> Options:
    parser = argparse.ArgumentParser(description=(description or "").partition("\n")[0])
    parser.add_argument("server", type=lambda text: text.split(","), help="HOST:PORT; several with commas between")
    parser.add_argument("run", help="name of the run")
    parser.add_argument("--steps", type=int, default=20, help="train until this many steps were taken")
    parser.add_argument("--folder", type=Path, default=Path("checkpoints"))
    parser.add_argument("--trace", type=Path, help="write a line a step: step, first slot, digests of the rows")
    parser.add_argument("--save-every", type=int, default=5)
    parser.add_argument("--print-every", type=int, default=1, help="plain: print the losses every so many steps")
    parser.add_argument("--job", help="name of the launch (default: torchrun's run id or Slurm's job id)")
    parser.add_argument("--attempt", type=int, help="its restart count: one higher fences what is left of the old one")
    parser.add_argument("--takeover", action="store_true", help="take the run from another job, which is stopped")
    parser.add_argument("--start", default="warn", help="without a checkpoint: warn, resume or beginning, see Loader")
    return Options(**vars(parser.parse_args()))


class Model(nn.Module):
    """Next-token model: embedding, position, one causal attention layer that keeps documents apart, tied output."""

    def __init__(self, vocabulary: int, width: int = 16, longest: int = 4096) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.positions = nn.Embedding(longest, width)
        self.attention = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, input_ids: Tensor, position_ids: Tensor, document_ids: Tensor | None = None) -> Tensor:
        """(R, S) ids and positions -> (R, S, vocabulary) logits."""
        hidden = self.tokens(input_ids) + self.positions(position_ids)
        query, key, value = self.attention(hidden).chunk(3, dim=-1)
        mask = torch.ones(input_ids.shape[1], input_ids.shape[1], dtype=torch.bool, device=input_ids.device).tril()
        if document_ids is not None:
            mask = mask & (document_ids[:, :, None] == document_ids[:, None, :])
        hidden = hidden + self.out(functional.scaled_dot_product_attention(query, key, value, attn_mask=mask))
        return functional.linear(hidden, self.tokens.weight)


def mean_loss(logits: Tensor, labels: Tensor, loss_weight: Tensor) -> Tensor:
    """Mean over labelled tokens of the weighted cross entropy (nats); labels are shifted already."""
    losses = functional.cross_entropy(logits.flatten(0, 1).float(), labels.flatten(), reduction="none")
    weights = loss_weight[:, None].expand_as(labels).flatten() * (labels.flatten() >= 0)
    return (losses * weights).sum() / weights.sum().clamp_min(1)


def losses_of(logits: Tensor, batch: TensorBatch) -> str:
    """Mean loss of each domain's rows in a batch, in nats a token."""
    losses = functional.cross_entropy(logits.transpose(1, 2).float(), batch.labels, reduction="none")
    told = []
    for index in batch.domain.unique().tolist():
        rows = batch.domain == index
        tokens = (batch.labels[rows] >= 0).sum().clamp_min(1)
        told.append(f"{batch.domain_names[index]} {(losses[rows].sum() / tokens).item():.3f}")
    return ", ".join(told)


def trace(path: Path | None, batch: Batch) -> None:
    """Appends what was trained on, durably: whoever kills this process finds every step that it has trained."""
    if path is None:
        return
    line = {"step": batch.step, "slot": batch.first_slot, "rows": batch.row_digests.tobytes().hex(), "pid": os.getpid()}
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")


def replace_durably(path: Path, content: bytes) -> None:
    """Writes a file so that a crash, or a disk that is full, leaves the old one or the new one, whole."""
    fresh = path.with_suffix(f".{os.getpid()}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with fresh.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        fresh.rename(path)
    except OSError as error:
        fresh.unlink(missing_ok=True)
        raise HeadraceError(
            f"{path} cannot be written: {error.strerror}; the checkpoint before it is whole, and training again with "
            "the same options goes on from there"
        ) from None
