"""What a step looks like: the domain of every slot, and the text of a row with the edges of tokens and documents."""

from __future__ import annotations

from codecs import getincrementaldecoder
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
from headrace.proto.errors import UsageError
from headrace.server.corpus.text_encoder import load_tokenizer
from headrace.server.service.explain import check_step
from headrace.server.service.rows import DIGEST_BYTES, build_rows
from headrace.server.service.view import View
from headrace.tokenizer import Tokenizer

MOST_TOKENS = 2048


def current_step(view: View) -> int:
    """The step that trains now: the first that is not confirmed, or the last one when the run is over."""
    end = view.plan.end
    last = view.run.confirmed if end is None else min(view.run.confirmed, end - 1)
    return max(0, last)


def batch(view: View, step: int | None) -> dict[str, Any]:
    """The slots of a step by domain; without a step the current one."""
    step = current_step(view) if step is None else step
    check_step(view, step)
    shape, draw, plan = view.plan.shape(step), view.plan.draw(step), view.plan
    return {
        "step": step,
        "sealed": step < view.run.seal,
        "phase": shape.phase,
        "segment": plan.segment(step),
        "batch": shape.batch,
        "seq_len": shape.seq_len,
        "names": list(plan.domains),
        "domains": draw.domains.tolist(),
        "passes": draw.passes.tolist(),
        "windows": draw.windows.astype(np.int64).tolist(),  # -1: fills the last batch of an evaluation
        "loss_weights": [round(float(weight), 6) for weight in draw.loss_weights],
    }


def row(view: View, step: int | None, slot: int, tokens: int) -> dict[str, Any]:
    """One row: where it comes from, and the pieces of its first tokens. Raises DataLossError for bad bytes."""
    step = current_step(view) if step is None else step
    check_step(view, step)
    shape, draw, plan = view.plan.shape(step), view.plan.draw(step), view.plan
    if not 0 <= slot < shape.batch:
        raise UsageError(f"step {step} has slots 0 to {shape.batch - 1}; slot {slot} is not one of them")
    built = build_rows(plan, view.library, step, slot, 1)
    domain, window = plan.domains[int(draw.domains[slot])], int(draw.windows[slot])
    base = view.library.base
    ids = np.frombuffer(built.ids, dtype=f"<u{base.id_bytes}").astype(np.uint32)
    real = int(np.frombuffer(built.real_ids, dtype="<u4")[0])
    edges = set(np.frombuffer(built.edges, dtype="<u4").tolist())
    shown = min(max(0, tokens), MOST_TOKENS, real)
    tokenizer = load_tokenizer(str(base.tokenizer_path), base.tokenizer_digest.hex())
    return {
        "step": step,
        "slot": slot,
        "domain": domain,
        "pass": int(draw.passes[slot]),
        "index": int(draw.indices[slot]),
        "window": window,
        "digest": built.digests[:DIGEST_BYTES].hex(),
        "tokens": len(ids) - 1,
        "real": real,
        "documents": len(edges | {0}),
        "sources": [
            {"file": file, "row": number, "begin": begin, "end": end}
            for file, number, begin, end in view.library.sources(plan, shape, domain, window)
        ],
        "pieces": list(pieces(tokenizer, ids[:shown], edges)),
    }


def pieces(tokenizer: Tokenizer, ids: npt.NDArray[np.uint32], edges: set[int]) -> Iterator[tuple[str, int, bool]]:
    """(text, tokens, whether a document begins here). Tokens that end within a character are one piece with the next.

    Bytes that are no UTF-8 become U+FFFD.
    """
    held, count, begins = b"", 0, False
    for place, token in enumerate(ids):
        if place in edges and held:
            yield held.decode("utf-8", errors="replace"), count, begins
            held, count, begins = b"", 0, False
        begins = begins or (place in edges and count == 0)
        held += tokenizer.decode(np.array([token]))
        count += 1
        if _is_whole(held):
            yield held.decode("utf-8", errors="replace"), count, begins
            held, count, begins = b"", 0, False
    if held:
        yield held.decode("utf-8", errors="replace"), count, begins


def _is_whole(text: bytes) -> bool:
    """Whether it ends with a character, not within one."""
    decoder = getincrementaldecoder("utf-8")(errors="replace")
    decoder.decode(text)
    return not decoder.getstate()[0]
