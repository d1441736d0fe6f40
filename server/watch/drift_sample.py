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
from headrace.server.watch.drift.near_duplicates import HEAD, document_key


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
        tokens, text_bytes: in the sampled windows
    """

    counts: Mapping[str, npt.NDArray[np.int64]]
    documents: tuple[tuple[int, int], ...]
    tokens: int
    text_bytes: int


def choose(plan: Plan, library: Library, from_step: int, to_step: int, *, rows: int, tokens: int) -> Interval:
    """At most `rows` windows of each domain, and about `tokens` tokens of all, evenly over the steps.

    Steps of another shape than the last one's are left out.
    """
    shape = plan.shape(to_step - 1)
    steps = [step for step in range(from_step, to_step) if plan.shape(step) == shape]
    draws = [plan.draw(step) for step in steps]
    domains = np.concatenate([draw.domains for draw in draws])
    windows = np.concatenate([draw.windows for draw in draws])
    most = max(1, min(rows, tokens // (shape.seq_len * max(1, len(np.unique(domains))))))
    chosen = {}
    for place in np.unique(domains):
        mine = windows[domains == place]
        evenly = np.linspace(0, len(mine) - 1, min(most, len(mine))).astype(np.int64)
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
    ids = np.frombuffer(read.ids, kind).reshape(rows, shape.seq_len + 1)[:, : shape.seq_len]
    real = np.minimum(read.real_ids.astype(np.int64), shape.seq_len)
    is_real = np.arange(shape.seq_len) < real[:, None]
    _unmask(is_real, read.mask_ends, read.masks)
    row_of = np.broadcast_to(np.arange(rows)[:, None], is_real.shape)[is_real]
    flat = ids[is_real]
    counts = tables.of_rows(flat, row_of, rows)
    row, offset, length = library.documents_of(plan, shape, domain, windows)
    lengths = np.bincount(row * LENGTH_BINS + length_bin(length), minlength=rows * LENGTH_BINS)
    counts["document_length"] = lengths.reshape(rows, LENGTH_BINS)
    seen = np.minimum(length, HEAD) <= real[row] - offset
    documents = tuple(
        (document_key(ids[r, o : o + min(n, HEAD)]), int(windows[r]))
        for r, o, n in zip(row[seen].tolist(), offset[seen].tolist(), length[seen].tolist(), strict=True)
    )
    return Observation(counts=counts, documents=documents, tokens=len(flat), text_bytes=int(tables.widths[flat].sum()))


def _unmask(is_real: npt.NDArray[np.bool_], mask_ends: npt.NDArray[np.uint32], masks: npt.NDArray[np.uint32]) -> None:
    first = 0
    for row, end in enumerate(mask_ends.tolist()):
        for begin, stop in zip(masks[first:end:2].tolist(), masks[first + 1 : end : 2].tolist(), strict=True):
            is_real[row, begin:stop] = False
        first = end
