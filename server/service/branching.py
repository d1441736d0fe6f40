"""BranchRun: the spec of a child from its parent and the changes, checked, and what the store needs to make it.

What the parent takes down after the branch point stays down in the child, by events of the child's own from its first
step on: a text whose licence was withdrawn does not come back by branching. Who wants it back says so.
"""

from __future__ import annotations

from collections.abc import Iterator

from headrace.proto.errors import ConflictError
from headrace.proto.v1 import control_pb2 as pb
from headrace.server.control.records import NewRun
from headrace.server.plan.branched import branch_spec, later_masks, left_behind
from headrace.server.plan.hidden import MOST_NAMED, in_words
from headrace.server.plan.log import Event, GrowBody, MaskBody
from headrace.server.plan.read import read_changes
from headrace.server.plan.spec import PLAN_VERSION, RunSpec
from headrace.server.plan.validate import check_weights, named
from headrace.server.service.loading import make_plan
from headrace.server.service.view import View


def new_branch(parent: View, request: pb.BranchRunRequest, author: str) -> NewRun:
    """The child that a request asks for; raises ConflictError or UsageError when it cannot be."""
    run = parent.run
    if run.kind != "train":
        raise ConflictError(f"run `{run.name}` is of kind {run.kind}, which cannot be branched; create a new run")
    changes = read_changes(request.changes_toml, place="changes")
    if request.weights:
        check_weights(request.weights, parent.plan.domains)
    spec = branch_spec(
        parent.plan,
        name=request.name,
        at=request.at,
        seal=run.seal,
        skip=request.skip,
        phases=changes.phases,
        batch=request.batch if request.HasField("batch") else None,
        weights=dict(request.weights) or None,
        domains={**parent.plan.spec.domains, **changes.domains},
    )
    later = later_masks(parent.plan, request.at + request.skip)
    plan = make_plan(spec, parent.library, parent=parent.plan)
    for span in plan.spans():
        plan.piece(span)
    return NewRun(
        name=spec.name,
        kind=spec.kind,
        plan_version=PLAN_VERSION,
        spec_json=spec.to_json(),
        spec_digest=plan.spec_digest,
        base_dir=run.base_dir,
        lead=spec.lead,
        author=author,
        head=run.head,
        seal=request.at,
        confirmed=request.at,
        parent=run.id,
        events=() if request.without_masks else tuple((event.body, _why(run.name, event)) for event in later),
    )


def branch_notes(parent: View, request: pb.BranchRunRequest, new: NewRun) -> tuple[str, ...]:
    """What the new child takes down as its parent does, or serves again, one line a mask; then what it leaves out."""
    does = "is served again" if request.without_masks else f"is taken down from step {request.at} on here too"
    masks = tuple(
        f"what event {event.sequence} of run `{parent.run.name}` takes down from step {event.from_step} on {does}: "
        f"{_named(event.body)}"
        for event in later_masks(parent.plan, request.at + request.skip)
        if isinstance(event.body, MaskBody)
    )
    return (*masks, *_left_out(parent, new))


def _left_out(parent: View, new: NewRun) -> Iterator[str]:
    """The parent's changes of weights and its generations that are not the child's."""
    branch = RunSpec.from_json(new.spec_json).branch
    assert branch is not None
    left = left_behind(parent.plan, branch)
    for event, steps in left[:MOST_NAMED]:
        what = f"in run `{parent.run.name}`, {named(parent.plan, event)}"
        if isinstance(event.body, GrowBody):
            yield f"{what} brings a generation of domain `{event.body.domain}`, which does not join here"
        else:
            yield f"{what} gives the weights of {in_words(steps)}, which it does not here"
    if len(left) > MOST_NAMED:
        yield f"{len(left) - MOST_NAMED} events more of run `{parent.run.name}` do not hold here"


def _named(body: MaskBody) -> str:
    more = len(body.values) - 8
    where = f" in domain {body.domain}" if body.domain else ""
    return f"by {body.by}{where}: {', '.join(body.values[:8])}{f' and {more} more' if more > 0 else ''}"


def _why(parent: str, event: Event) -> str:
    return f"as event {event.sequence} of run {parent}{f': {event.reason}' if event.reason else ''}"[:2000]
