"""The events that requests ask for, before anybody has judged them."""

from __future__ import annotations

from pathlib import Path

from headrace.proto.v1 import control_pb2 as pb
from headrace.server.control.events import Wish
from headrace.server.plan.log import Body, CancelBody, GrowBody, MaskBody, WeightsBody
from headrace.server.plan.validate import check_mask_domain
from headrace.server.service.changes import all_masks
from headrace.server.service.loading import Opener
from headrace.server.service.view import View

Request = pb.SetWeightsRequest | pb.CancelEventRequest | pb.GrowDomainRequest | pb.MaskRequest


def weights_wish(request: pb.SetWeightsRequest) -> Wish:
    """The event that a SetWeights asks for."""
    return _wish(request, WeightsBody(weights=dict(request.weights), loss_weights=dict(request.loss_weights)))


def cancel_wish(request: pb.CancelEventRequest) -> Wish:
    """The event that a CancelEvent asks for."""
    return _wish(request, CancelBody(sequence=request.sequence))


def grow_wish(request: pb.GrowDomainRequest, opener: Opener, view: View) -> Wish:
    """The event that a GrowDomain asks for; the digest comes from the manifest, which is opened for it."""
    path = Path(opener.folders.get(view.run.name, view.run.base_dir)) / request.manifest
    generation = opener.corpora.open(path).digest.hex()
    join = request.join or "next_pass"
    body = GrowBody(domain=request.domain, generation=generation, join=join, manifest=request.manifest)
    return _wish(request, body)


def mask_wish(request: pb.MaskRequest, view: View) -> tuple[Wish, tuple[str, ...]]:
    """The event that a Mask asks for, and what it takes down; NotFoundError when a value of it names nothing,
    UsageError for a domain that there is not.

    Looks the documents up in the shards, which may take long: call it in a thread.
    """
    mask = request.mask
    body = MaskBody(by=mask.by, values=tuple(mask.values), domain=mask.domain)
    check_mask_domain(view.plan, body)
    tokens = view.library.look_up(body, all_masks(view))
    taken = ", ".join(f"{name} {count:,}" for name, count in sorted(tokens.items()))
    return _wish(request, body), (f"takes down {sum(tokens.values()):,} tokens: {taken or 'none'}",)


def _wish(request: Request, body: Body) -> Wish:
    return Wish(
        body=body,
        from_step=_step(request, "from_step"),
        until_step=_step(request, "until_step"),
        author=request.author,
        reason=request.reason,
        expected_head=request.expected_head,
        key=request.idempotency_key,
        dry_run=request.dry_run,
    )


def _step(request: Request, field: str) -> int | None:
    """A step that the request names; None where it names none, or is of a kind that has no such field."""
    there = field in request.DESCRIPTOR.fields_by_name and request.HasField(field)
    return getattr(request, field) if there else None
