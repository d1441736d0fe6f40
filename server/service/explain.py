"""What a step holds, slot by slot, and its digest: from the pure functions alone, so it needs no server."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from headrace.native import step_digest
from headrace.proto.errors import DataLossError, OutOfRangeError
from headrace.proto.v1 import control_pb2 as pb
from headrace.server.plan.shapes import Shape
from headrace.server.plan.whole import NO_WINDOW
from headrace.server.service.masked import emptied, spans
from headrace.server.service.rows import DIGEST_BYTES, StepRows, build_rows
from headrace.server.service.view import View
from headrace.tokenizer import Tokenizer


def check_step(view: View, step: int) -> None:
    """Raises OutOfRangeError for a step that the run does not have."""
    if view.plan.end is not None and step >= view.plan.end:
        raise OutOfRangeError(
            f"run `{view.run.name}` has steps 0 to {view.plan.end - 1}; step {step} is not one of them"
        )


def digest_of(view: View, step: int) -> bytes:
    """The digest of a step as it is, or would be, served: 32 bytes."""
    check_step(view, step)
    return step_digest(build_rows(view.plan, view.library, step, 0, view.plan.shape(step).batch).digests)


def explain(view: View, step: int, text_characters: int = 0) -> pb.ExplainResponse:
    """Domain, pass, window, sources, digest and (if wanted) text of every slot of a step."""
    check_step(view, step)
    shape = view.plan.shape(step)
    draw = view.plan.draw(step)
    built = build_rows(view.plan, view.library, step, 0, shape.batch)
    digests = built.digests
    texts = _texts(view, built, text_characters) if text_characters else [""] * shape.batch
    mask_ends, masks = _words(built.mask_ends), _words(built.masks)
    filling = draw.windows == np.uint64(NO_WINDOW)
    empty = emptied(_words(built.real_ids), mask_ends, masks) | filling
    answer = pb.ExplainResponse(
        step=step,
        segment=view.plan.segment(step),
        phase=shape.phase,
        step_digest=step_digest(digests),
        sealed=step < view.run.seal,
    )
    for slot in range(shape.batch):
        domain = view.plan.domains[int(draw.domains[slot])]
        window, index = int(draw.windows[slot]), int(draw.indices[slot])
        masked = list(spans(mask_ends, masks, slot))
        answer.slots.add(
            slot=slot,
            domain=domain,
            index=0 if filling[slot] else index,
            window=0 if filling[slot] else window,
            sources=_sources(view, shape, domain, window, masked),
            row_digest=digests[slot * DIGEST_BYTES : (slot + 1) * DIGEST_BYTES],
            text=texts[slot],
            masks=[offset for span in masked for offset in span],
            emptied=bool(empty[slot]),
            **{"pass": int(draw.passes[slot])},
        )
    return answer


def _words(data: bytes) -> npt.NDArray[np.uint32]:
    return np.frombuffer(data, dtype="<u4").astype(np.uint32)


def _sources(view: View, shape: Shape, domain: str, window: int, masked: list[tuple[int, int]]) -> list[pb.Source]:
    """The documents of a row in order, with whether they are masked; none when its shard, in quarantine, is damaged."""
    try:
        found = view.library.sources(view.plan, shape, domain, window)
    except DataLossError:
        if not masked:
            raise
        return []
    sources, offset = [], 0
    for file, row, begin, end in found:
        hit = any(low <= offset < high for low, high in masked)
        sources.append(pb.Source(file=file, row=row, begin=begin, end=end, masked=hit))
        offset += end - begin
    return sources


def _texts(view: View, built: StepRows, characters: int) -> list[str]:
    """The beginning of each row's text; a token is one byte at least, so few ids are enough."""
    base = view.library.base
    tokenizer = Tokenizer.load(base.tokenizer_path)
    ids = np.frombuffer(built.ids, dtype=f"<u{base.id_bytes}").reshape(built.rows, -1)
    real = np.frombuffer(built.real_ids, dtype="<u4")
    rows = (row[: min(int(count), 4 * characters)] for row, count in zip(ids, real, strict=True))
    return [tokenizer.decode_text(row.astype(np.uint32))[:characters] for row in rows]
