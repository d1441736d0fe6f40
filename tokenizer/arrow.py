"""Arrow in and out: string arrays to arrays of lists of ids, without a Python object a text.

    ids = encode_arrow(tokenizer, table["text"])        # ListArray<uint32>, chunked as the input is; null stays null

The texts are read where they lie, and the ids' array is the encoder's own memory. pyarrow is needed only here.
"""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np
from headrace.proto.errors import UsageError
from headrace.tokenizer.tokenizer import Tokenizer


def encode_arrow(tokenizer: Tokenizer, texts: Any, *, allow_special: bool = False, threads: int | None = None) -> Any:
    """Ids of each text of a pyarrow Array or ChunkedArray of (large) strings.

    Returns an array of large lists of uint32, or a ChunkedArray of them. UsageError for another type, or for a string
    that is no UTF-8 (which Arrow forbids but does not check).
    """
    pa = _pyarrow()
    if isinstance(texts, pa.ChunkedArray):
        chunks = [
            encode_arrow(tokenizer, chunk, allow_special=allow_special, threads=threads) for chunk in texts.chunks
        ]
        return pa.chunked_array(chunks, type=pa.large_list(pa.uint32()))
    if not isinstance(texts, pa.Array):
        raise UsageError(f"encode_arrow takes a pyarrow array of strings, not {type(texts).__name__}")
    if pa.types.is_string_view(texts.type) or pa.types.is_dictionary(texts.type):
        texts = texts.cast(pa.large_string())
    if not (pa.types.is_string(texts.type) or pa.types.is_large_string(texts.type)):
        raise UsageError(f"encode_arrow takes an array of strings, not of {texts.type}")
    content, offsets = _buffers(pa, texts)
    ids, ends = tokenizer.encode_buffer(content, offsets, allow_special=allow_special, threads=threads)
    starts = np.concatenate([np.zeros(1, np.int64), ends.astype(np.int64)])
    mask = texts.is_null() if texts.null_count else None
    return pa.LargeListArray.from_arrays(pa.array(starts), pa.array(ids), mask=mask)


def _buffers(pa: Any, texts: Any) -> tuple[Any, Any]:
    """The bytes of all texts, and where each begins and ends among them; a null has no bytes."""
    width = np.dtype(np.int64 if pa.types.is_large_string(texts.type) else np.int32)
    validity, offsets, content = texts.buffers()
    if len(texts) == 0 or offsets is None:
        return np.empty(0, np.uint8), np.zeros(1, np.int64)
    places = np.frombuffer(offsets, width, len(texts) + 1, texts.offset * width.itemsize).astype(np.int64)
    flat = np.empty(0, np.uint8) if content is None else np.frombuffer(content, np.uint8)
    if validity is not None and texts.null_count:
        # Arrow lets a null have bytes; they are no text.
        lengths = np.where(texts.is_valid().to_numpy(zero_copy_only=False), np.diff(places), 0)
        if not np.array_equal(lengths, np.diff(places)):
            return _buffers(pa, texts.fill_null(""))
    return flat, places


def _pyarrow() -> Any:
    try:
        return importlib.import_module("pyarrow")
    except ModuleNotFoundError:
        raise UsageError("Arrow arrays need pyarrow; install it with: pip install 'headrace[server]'") from None
