"""The typed Python face of the Rust core."""

from headrace.native._native import (
    Piece,
    key,
    permute,
    permute_many,
    plan_tokens,
    random_u64,
    row_digests,
    step_digest,
)
from headrace.native._native import version as __version__

__all__ = [
    "__version__",
    # plan
    "Piece",
    "key",
    "permute",
    "permute_many",
    "plan_tokens",
    "random_u64",
    # digests
    "row_digests",
    "step_digest",
]
