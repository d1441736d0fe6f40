"""Views: how many windows a stream of tokens has, and which tokens each holds. Pure arithmetic, nothing stored.

`concat` cuts a generation's tokens every `seq_len`; window w is tokens [w * seq_len, w * seq_len + seq_len], the last
one being the label of the one before it and the first input of the next window. The tail is padded (nothing is lost)
or dropped, as the corpus says.
"""

from __future__ import annotations

from dataclasses import dataclass

from headrace.proto.errors import UsageError
from headrace.server.plan.spec import LARGEST_SEQ_LEN

PACKINGS = ("concat",)


@dataclass(frozen=True, slots=True)
class ViewSize:
    """Number of windows and their real input tokens."""

    windows: int
    real_tokens: int

    def fill(self, seq_len: int) -> float:
        return self.real_tokens / (self.windows * seq_len) if self.windows else 0.0


def check_shape(seq_len: int, packing: str) -> None:
    """Refuses a shape that no view has."""
    if not 1 <= seq_len <= LARGEST_SEQ_LEN:
        raise UsageError(f"`seq_len` is from 1 to {LARGEST_SEQ_LEN} tokens, not {seq_len}")
    if packing not in PACKINGS:
        raise UsageError(f"no packing is called `{packing}`; there are {', '.join(PACKINGS)}")


def concat_size(tokens: int, seq_len: int, *, drop: bool) -> ViewSize:
    """Windows of a stream of `tokens`."""
    if drop:
        windows = tokens // seq_len
        return ViewSize(windows, windows * seq_len)
    return ViewSize(-(-tokens // seq_len), tokens)
