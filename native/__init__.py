"""The typed Python face of the Rust core."""

from headrace.native._native import (
    PADDING,
    Blake3,
    BpeEncoder,
    BpeTrainer,
    DamagedError,
    Piece,
    PieceCounter,
    TokenStore,
    block_sums,
    count_pieces,
    key,
    pattern_names,
    pattern_regex,
    permute,
    permute_many,
    plan_tokens,
    random_u64,
    row_digests,
    scan_jsonl,
    split_pieces,
    step_digest,
    text_digests,
    texts_with,
    wrap_documents,
)
from headrace.native._native import version as __version__

__all__ = [
    "__version__",
    # tokenizer
    "BpeEncoder",
    "BpeTrainer",
    "PieceCounter",
    "count_pieces",
    "pattern_names",
    "pattern_regex",
    "split_pieces",
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
    # token store
    "Blake3",
    "PADDING",
    "DamagedError",
    "TokenStore",
    "block_sums",
    "scan_jsonl",
    "text_digests",
    "texts_with",
    "wrap_documents",
]
