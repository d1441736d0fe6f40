"""Sizes of the proxy and how it is trained; plain numbers, no torch.

`chameleon-82m` is the published proxy (6 blocks, 12 heads, width 768, feed-forward 3,072, lr 5e-4, 2,000 steps of 128
rows of 512, weight decay 0.01, clip 1.0); `tiny` and `small` run on CPU cores in seconds and minutes.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any

from headrace.proto.errors import UsageError


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelConfig:
    """A GPT-2: learned positions, pre-norm blocks, GELU, output tied to the token embedding, no dropout.

    within_documents: attention stays inside a document (by position ids) instead of the whole window.
    """

    vocab_size: int
    seq_len: int
    width: int
    blocks: int
    heads: int
    feed_forward: int
    within_documents: bool = True

    def __post_init__(self) -> None:
        for name in ("vocab_size", "seq_len", "width", "blocks", "heads", "feed_forward"):
            if getattr(self, name) < 1:
                raise UsageError(f"proxy: {name} is {getattr(self, name)}; it must be at least 1")
        if self.width % self.heads:
            raise UsageError(f"proxy: width {self.width} is not a multiple of {self.heads} heads")

    @property
    def parameters(self) -> int:
        """Number of trainable numbers, the tied output counted once."""
        block = 4 * self.width**2 + 2 * self.width * self.feed_forward + 9 * self.width + self.feed_forward
        return (self.vocab_size + self.seq_len) * self.width + self.blocks * block + 2 * self.width

    @property
    def flops_per_token(self) -> int:
        """Multiply-adds times two of one training token: 6 x parameters (output included) + attention's 12 L w T."""
        body = self.parameters - self.seq_len * self.width
        return 6 * body + 12 * self.blocks * self.width * self.seq_len

    def to_json(self) -> dict[str, Any]:
        """The fields as a JSON object."""
        return asdict(self)


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainConfig:
    """AdamW with linear warm-up and cosine to a tenth. micro_rows: rows a forward pass, to bound memory; 0: all."""

    steps: int
    lr: float = 5e-4
    warmup: int = 50
    weight_decay: float = 0.01
    clip: float = 1.0
    seed: int = 0
    device: str = "cpu"
    micro_rows: int = 0

    def __post_init__(self) -> None:
        if self.steps < 1 or self.warmup < 0 or self.micro_rows < 0:
            raise UsageError(
                f"proxy: steps {self.steps}, warmup {self.warmup}, micro_rows {self.micro_rows}: too small"
            )
        if not (self.lr > 0 and self.clip > 0 and self.weight_decay >= 0):
            raise UsageError("proxy: lr and clip must be above 0, weight_decay not below 0")

    def to_json(self) -> dict[str, Any]:
        """The fields as a JSON object."""
        return asdict(self)


_SIZES: dict[str, tuple[int, int, int, int]] = {  # width, blocks, heads, feed-forward
    "tiny": (64, 2, 2, 256),
    "small": (192, 4, 6, 768),
    "chameleon-82m": (768, 6, 12, 3072),
}
_TRAINING: dict[str, TrainConfig] = {
    "tiny": TrainConfig(steps=300, lr=3e-3, warmup=20),
    "small": TrainConfig(steps=1000, lr=1e-3, warmup=50),
    "chameleon-82m": TrainConfig(steps=2000, lr=5e-4, warmup=100, micro_rows=32),
}
SIZES = tuple(_SIZES)


def model_config(size: str, *, vocab_size: int, seq_len: int) -> ModelConfig:
    """A named size for a vocabulary and a window length. Raises UsageError for an unknown name."""
    _known(size)
    width, blocks, heads, feed_forward = _SIZES[size]
    return ModelConfig(
        vocab_size=vocab_size, seq_len=seq_len, width=width, blocks=blocks, heads=heads, feed_forward=feed_forward
    )


def train_config(size: str, **changes: Any) -> TrainConfig:
    """The training that goes with a named size, with some fields changed."""
    _known(size)
    return replace(_TRAINING[size], **changes)


def _known(size: str) -> None:
    if size not in _SIZES:
        raise UsageError(f"proxy: no size `{size}`; choose one of {', '.join(_SIZES)}")
