"""A small decoder-only transformer, as plain as it can be: pre-norm blocks, learned positions, tied output.

Shapes: B rows, T tokens, D width, V vocabulary. Attention stays inside a document: `position_ids` starts again at each
document, which is enough to tell documents of a row apart.
"""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812 - the name that every torch program uses


class Block(nn.Module):
    """Attention and a feed-forward layer, each behind a norm and beside a residual path."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm_1, self.norm_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """(B, T, D) and a mask (B, 1, T, T) that is true where attention is allowed -> (B, T, D)."""
        batch, length, width = x.shape
        q, k, v = self.qkv(self.norm_1(x)).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, length, width))
        fed: torch.Tensor = self.down(F.gelu(self.up(self.norm_2(x))))
        return x + fed


class Transformer(nn.Module):
    """Next-token model; `forward` gives logits (B, T, V) for input ids and position ids (B, T)."""

    def __init__(
        self, vocab_size: int, *, width: int = 96, layers: int = 2, heads: int = 4, max_len: int = 128
    ) -> None:
        super().__init__()
        self.tokens, self.positions = nn.Embedding(vocab_size, width), nn.Embedding(max_len, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        for weight in (self.tokens.weight, self.positions.weight):
            nn.init.normal_(weight, std=0.02)

    def forward(self, input_ids: torch.Tensor, position_ids: torch.Tensor) -> torch.Tensor:
        x = self.tokens(input_ids) + self.positions(position_ids)
        mask = document_mask(position_ids)
        for block in self.blocks:
            x = block(x, mask)
        return F.linear(self.norm(x), self.tokens.weight)


def document_mask(position_ids: torch.Tensor) -> torch.Tensor:
    """True where token i may look at token j: not later, and in the same document. (B, T) -> (B, 1, T, T)."""
    length = position_ids.shape[1]
    document = (position_ids == 0).cumsum(dim=1)
    same = document[:, :, None] == document[:, None, :]
    return (same & torch.ones(length, length, dtype=torch.bool).tril())[:, None]


def token_losses(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Loss of each token in nats, (B, T); labels below 0 are masked and give 0."""
    losses = F.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=-100, reduction="none")
    return losses.view_as(labels)
