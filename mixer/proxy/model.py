"""A GPT-2 small enough to read: embeddings, pre-norm blocks, tied output.

What holds: equal seeds give equal initial weights on any device (they are drawn on the CPU from a generator of their
own); `hidden(..., depth)` is the output of block `depth`, which is what domain embeddings are means of.
What was given up: dropout, key-value caches, anything that only larger models need.
"""

from __future__ import annotations

import math

import torch
from headrace.mixer.proxy.config import ModelConfig
from torch import nn
from torch.nn import functional


class Block(nn.Module):
    """x + attention(norm(x)), then x + feed_forward(norm(x))."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.heads = config.heads
        self.norm_attention = nn.LayerNorm(config.width)
        self.qkv = nn.Linear(config.width, 3 * config.width)
        self.mix = nn.Linear(config.width, config.width)
        self.norm_feed = nn.LayerNorm(config.width)
        self.widen = nn.Linear(config.width, config.feed_forward)
        self.narrow = nn.Linear(config.feed_forward, config.width)

    def forward(self, x: torch.Tensor, allowed: torch.Tensor | None) -> torch.Tensor:
        """(R, S, width) -> (R, S, width); `allowed` (R, 1, S, S) says who may look at whom, None is plain causal."""
        rows, length, width = x.shape
        qkv = self.qkv(self.norm_attention(x)).view(rows, length, 3, self.heads, width // self.heads)
        query, key, value = qkv.permute(2, 0, 3, 1, 4)
        mixed = functional.scaled_dot_product_attention(query, key, value, attn_mask=allowed, is_causal=allowed is None)
        x = x + self.mix(mixed.transpose(1, 2).reshape(rows, length, width))
        fed: torch.Tensor = self.narrow(functional.gelu(self.widen(self.norm_feed(x)), approximate="tanh"))
        return x + fed


class Proxy(nn.Module):
    """The model; `forward` gives logits (R, S, vocab)."""

    def __init__(self, config: ModelConfig, *, seed: int) -> None:
        super().__init__()
        self.config = config
        self.tokens = nn.Embedding(config.vocab_size, config.width)
        self.places = nn.Embedding(config.seq_len, config.width)
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.blocks))
        self.norm = nn.LayerNorm(config.width)
        self._draw(seed)

    def _draw(self, seed: int) -> None:
        generator = torch.Generator().manual_seed(seed)
        into_stream = 0.02 / math.sqrt(2 * self.config.blocks)
        for name, parameter in self.named_parameters():
            if name.endswith("bias"):
                nn.init.zeros_(parameter)
            elif parameter.ndim == 1:
                nn.init.ones_(parameter)
            else:
                scale = into_stream if name.endswith(("mix.weight", "narrow.weight")) else 0.02
                nn.init.normal_(parameter, std=scale, generator=generator)

    def hidden(self, ids: torch.Tensor, positions: torch.Tensor, depth: int | None = None) -> torch.Tensor:
        """(R, S) ids and positions -> (R, S, width) after block `depth`; 0: the embeddings, None: after all, normed."""
        x: torch.Tensor = self.tokens(ids) + self.places(positions)
        allowed = self._allowed(positions) if self.config.within_documents else None
        for block in self.blocks[: self.config.blocks if depth is None else depth]:
            x = block(x, allowed)
        if depth is None:
            x = self.norm(x)
        return x

    def _allowed(self, positions: torch.Tensor) -> torch.Tensor | None:
        starts = positions == 0
        if not starts[:, 1:].any():
            return None  # no document begins inside a row: plain causal attention is the same and faster
        document = starts.cumsum(dim=1)
        same = document[:, :, None] == document[:, None, :]
        return same.tril()[:, None]

    def forward(self, ids: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        """Logits of the next id, (R, S, vocab)."""
        return functional.linear(self.hidden(ids, positions), self.tokens.weight)
