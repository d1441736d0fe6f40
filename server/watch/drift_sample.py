"""Reads what was served in an interval of steps: a bounded sample of each domain's windows, counted into bins.

An interval is steps [number * steps, (number + 1) * steps), and which of its windows are taken is a pure function of
plan and interval, so any replica finds the same, and a restart what was found before it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from headrace.server.corpus.token_tables import TokenTables
from headrace.server.plan.plan import Plan
from headrace.server.plan.shapes import Shape
from headrace.server.service.library import Library
from headrace.server.watch.drift.features import LENGTH_BINS, length_bin
from headrace.server.watch.drift.near_duplicates import HEAD, document_keys
from headrace.server.watch.drift_settings import DriftSettings

TOKENS_A_WINDOW = 512
DOCUMENTS_WITHIN = 1024
MOST_STEPS = 32


@dataclass(frozen=True, kw_only=True, slots=True)
class Interval:
    """Windows drawn for each domain in some steps of one shape, and the plan that says what they are."""

    plan: Plan
    library: Library
    shape: Shape
    from_step: int
    to_step: int
    windows: Mapping[str, npt.NDArray[np.uint64]]


@dataclass(frozen=True, kw_only=True, slots=True)
class Observation:
    """What the sampled windows of one domain hold.

    Attributes:
        counts: (windows, bins) of each feature of documents and tokens
        documents: key and window of each document whose beginning was seen
        tokens, text_bytes: of those that were looked at
    """

    counts: Mapping[str, npt.NDArray[np.int64]]
    documents: tuple[tuple[int, int], ...]
    tokens: int
    text_bytes: int


def choose(plan: Plan, library: Library, from_step: int, to_step: int, sizes: DriftSettings) -> Interval:
    """Windows of each domain, from at most 32 steps that lie evenly in the interval and have the last one's shape.

    One in `one_in` of all that were served, at least `least` if there are as many, and at most `rows` a domain; one at
    least of each domain.
    """
    shape = plan.shape(to_step - 1)
    steps = [step for step in range(from_step, to_step) if plan.shape(step) == shape]
    served_windows = shape.batch * len(steps)
    looks = np.linspace(0, len(steps) - 1, min(MOST_STEPS, len(steps))).astype(np.int64).tolist()
    draws = [plan.draw(steps[look]) for look in looks]
    domains = np.concatenate([draw.domains for draw in draws])
    windows = np.concatenate([draw.windows for draw in draws])
    served = np.unique(domains)
    wanted = max(sizes.least, served_windows // sizes.one_in) // len(served)
    chosen = {}
    for place in served:
        mine = windows[domains == place]
        evenly = np.linspace(0, len(mine) - 1, min(max(1, wanted), sizes.rows, len(mine))).astype(np.int64)
        chosen[plan.domains[int(place)]] = mine[evenly]
    return Interval(plan=plan, library=library, shape=shape, from_step=steps[0], to_step=to_step, windows=chosen)


def observe(interval: Interval, domain: str, tables: TokenTables) -> Observation:
    """Reads the windows chosen of a domain; raises DataLossError when one cannot be read."""
    plan, library, shape = interval.plan, interval.library, interval.shape
    windows = interval.windows[domain]
    rows = len(windows)
    places = np.full(rows, plan.domains.index(domain), np.uint32)
    read = library.read(plan, shape, places, windows)
    kind = np.dtype("<u2" if library.base.id_bytes == 2 else "<u4")
    ids = np.frombuffer(read.ids, kind).reshape(rows, shape.seq_len + 1)
    real = np.minimum(read.real_ids.astype(np.int64), shape.seq_len)
    columns = _slice(windows, real)
    is_real = columns < real[:, None]
    _unmask(is_real, columns[:, 0], read.mask_ends, read.masks)
    row_of, place = np.nonzero(is_real)
    flat = ids[row_of, columns[row_of, place]]
    counts = tables.of_rows(flat, row_of, rows)
    row, offset, length = library.documents_of(plan, shape, domain, windows, DOCUMENTS_WITHIN)
    lengths = np.bincount(row * LENGTH_BINS + length_bin(length), minlength=rows * LENGTH_BINS)
    counts["document_length"] = lengths.reshape(rows, LENGTH_BINS)
    documents = _documents(ids, windows, _begun(row, offset, length, real))
    return Observation(counts=counts, documents=documents, tokens=len(flat), text_bytes=int(tables.widths[flat].sum()))


def _slice(windows: npt.NDArray[np.uint64], real: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """The columns of each window that are looked at, (windows, columns): a run whose place the window's number gives.

    Tokens of one window are so alike that more of them would say little.
    """
    width = int(min(TOKENS_A_WINDOW, max(1, real.max(initial=1))))
    mixed = (windows * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(33)
    first = mixed.astype(np.int64) % np.maximum(1, real - width + 1)
    return first[:, None] + np.arange(width)


def _begun(
    row: npt.NDArray[np.int64],
    offset: npt.NDArray[np.int64],
    length: npt.NDArray[np.int64],
    real: npt.NDArray[np.int64],
) -> npt.NDArray[np.int64]:
    """Row, offset and tokens to take of the first document of each row whose beginning the row holds."""
    heads = np.minimum(length, HEAD)
    seen = np.flatnonzero(heads <= real[row] - offset)
    _, first = np.unique(row[seen], return_index=True)
    return np.stack([row, offset, heads], axis=1)[seen[first]]


def _documents(
    ids: npt.NDArray[np.unsignedinteger], windows: npt.NDArray[np.uint64], begun: npt.NDArray[np.int64]
) -> tuple[tuple[int, int], ...]:
    """Key and window of documents that are (row, offset, tokens)."""
    row, offset, heads = begun.T
    columns = np.minimum(offset[:, None] + np.arange(HEAD), ids.shape[1] - 1)
    keys = document_keys(ids[row[:, None], columns], heads)
    return tuple(zip(keys.tolist(), windows[row].tolist(), strict=True))


def _unmask(
    is_real: npt.NDArray[np.bool_],
    starts: npt.NDArray[np.int64],
    mask_ends: npt.NDArray[np.uint32],
    masks: npt.NDArray[np.uint32],
) -> None:
    """Takes masked tokens out; column 0 of row r is offset `starts[r]` of its window."""
    first = 0
    for row, end in enumerate(mask_ends.tolist()):
        for begin, stop in zip(masks[first:end:2].tolist(), masks[first + 1 : end : 2].tolist(), strict=True):
            at = int(starts[row])
            is_real[row, max(0, begin - at) : max(0, stop - at)] = False
        first = end
