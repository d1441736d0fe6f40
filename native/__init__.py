"""The typed Python face of the Rust core."""

from headrace.native._native import (
    PADDING,
    Blake3,
    BpeEncoder,
    BpeTrainer,
    DamagedError,
    Piece,
    PieceCounter,
    Texts,
    TokenStore,
    block_sums,
    copy_rows,
    count_ids,
    count_pieces,
    encode_documents,
    key,
    pattern_names,
    pattern_regex,
    permute,
    permute_many,
    plan_tokens,
    random_u64,
    row_digests,
    split_pieces,
    step_digest,
    take_plain,
    text_digests,
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
    "copy_rows",
    "row_digests",
    "step_digest",
    # replies
    "take_plain",
    # token store
    "Blake3",
    "PADDING",
    "DamagedError",
    "Texts",
    "TokenStore",
    "block_sums",
    "count_ids",
    "encode_documents",
    "text_digests",
]
