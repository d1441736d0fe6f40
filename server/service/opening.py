"""What OpenRun checks and answers: the state against the run, the world against every batch to come."""

from __future__ import annotations

import time
from collections.abc import Sequence

from headrace.proto.errors import ConflictError, StateMismatchError
from headrace.proto.v1 import data_pb2 as pb
from headrace.server.control.leases import OpenLease
from headrace.server.control.records import RankRecord
from headrace.server.service.view import View

STATE_SCHEMA = 1


def check_state(view: View, state: pb.State) -> None:
    """A checkpoint must be of this run, spec and plan; raises StateMismatchError naming both sides."""
    run = view.run
    if state.schema != STATE_SCHEMA:
        raise StateMismatchError(
            f"the state has schema {state.schema}, this server knows {STATE_SCHEMA}; use the version that wrote it"
        )
    origin = _origin(view, state)
    if state.spec_digest != origin.run.spec_digest:
        raise StateMismatchError(_differ("spec digest", state.spec_digest, origin.run.spec_digest, origin.run.name))
    if view.plan.end is not None and state.next_step > view.plan.end:
        raise StateMismatchError(
            f"the state is at step {state.next_step}, but run `{run.name}` ends at step {view.plan.end}; the "
            f"checkpoint was made with a longer run, or with another one: open that one, or branch it to go on"
        )
    if state.next_step > run.seal:
        raise StateMismatchError(
            f"the state is at step {state.next_step}, but run `{run.name}` was sealed to step {run.seal} only: the "
            f"store is older than the checkpoint; restore the one that served steps {run.seal} to {state.next_step - 1}"
        )
    plan_hash = view.plan.hash(state.next_step)
    if state.plan_hash != plan_hash:
        raise StateMismatchError(_differ(f"plan hash at step {state.next_step}", state.plan_hash, plan_hash, run.name))


def _origin(view: View, state: pb.State) -> View:
    """The run that the state was made with: this one, or an ancestor up to where this one left it."""
    origin: View | None = view
    bound = None
    while origin is not None and origin.run.id != state.run_id:
        bound = origin.plan.first if bound is None else min(bound, origin.plan.first)
        origin = origin.parent
    run = view.run
    if origin is None:
        raise StateMismatchError(
            f"the state belongs to run id `{state.run_id}`, run `{run.name}` has id `{run.id}`; open the run that the "
            f"checkpoint was made with, or start without its state"
        )
    if bound is not None and state.next_step > bound:
        raise StateMismatchError(
            f"the state is at step {state.next_step} of run `{origin.run.name}`, which run `{run.name}` left at step "
            f"{bound}; load a checkpoint of step {bound} or before"
        )
    return origin


def _differ(what: str, theirs: bytes, ours: bytes, name: str) -> str:
    return (
        f"the state has {what} {theirs.hex()[:16] or 'none'}, run `{name}` has {ours.hex()[:16]}; the stream would not "
        f"be the one that was trained on: open the run that the checkpoint was made with"
    )


def check_world(view: View, world: int, next_step: int) -> None:
    """Every batch from `next_step` on must divide among the ranks; raises ConflictError naming the first that does
    not."""
    for shape in view.plan.shapes(next_step):
        if shape.batch % world:
            step = max(shape.from_step, next_step)
            raise ConflictError(
                f"world {world} does not divide the batch of {shape.batch} rows at step {step} of run "
                f"`{view.run.name}`; use a number of ranks that divides every batch from step {next_step} on"
            )


def note_of_double(wish: OpenLease, others: Sequence[RankRecord]) -> str:
    """For both sides: two processes hold one rank of one attempt."""
    names = ", ".join(rank.holder for rank in others)
    return (
        f"rank {wish.label} of attempt {wish.attempt} of job `{wish.job}` was opened by {wish.holder} while {names} "
        "held it: where both still run they train on the same rows twice; stop one, or give the newer launch a higher "
        "attempt, which fences the older (processes that share a rank say so with peers=)"
    )


def note_of_beginning(view: View, confirmed: int) -> str:
    """A job without a state begins a run that has been trained on, or a branch that shares steps with its parent."""
    run, branch = view.run.name, view.plan.spec.branch
    if branch is not None and confirmed == branch.at:
        return (
            f"run `{run}` leaves `{branch.run}` at step {branch.at}, but this job names no state and begins at step 0: "
            f"to go on from there, load the checkpoint that `{branch.run}` took at step {branch.at} "
            f"(`load_state_dict`) before the first batch"
        )
    return (
        f"run `{run}` has {confirmed} confirmed steps, but this job names no state and begins at step 0: steps 0 to "
        f"{confirmed - 1} are trained on once more; to go on, load the checkpoint's state (`load_state_dict`) before "
        f"the first batch; for a run of its own, `headrace run branch {run} NEW --at STEP`"
    )


def open_answer(
    view: View, *, lease: str, next_step: int, message_bytes: int, server_version: str, notes: Sequence[str] = ()
) -> pb.OpenRunResponse:
    """The answer to OpenRun for this view."""
    corpus = view.library.base
    shapes = [
        pb.Shape(from_step=shape.from_step, to_step=shape.to_step, batch=shape.batch, seq_len=shape.seq_len)
        for shape in view.plan.shapes(next_step)
    ]
    longest = max((shape.seq_len for shape in shapes), default=view.plan.shape(0).seq_len)
    return pb.OpenRunResponse(
        run_id=view.run.id,
        lease=lease,
        spec_digest=view.run.spec_digest,
        plan_hash=view.plan.hash(next_step),
        next_step=next_step,
        seal=view.run.seal,
        confirmed=view.run.confirmed,
        lead=view.run.lead,
        end_step=view.plan.end,
        domains=view.plan.domains,
        vocab_size=corpus.vocab_size,
        pad_id=corpus.pad_id,
        id_bytes=corpus.id_bytes,
        shapes=shapes,
        max_rows=max(1, message_bytes // ((longest + 1) * corpus.id_bytes)),
        server_version=server_version,
        tokenizer_digest=corpus.tokenizer_digest,
        corpus_digest=corpus.digest,
        server_time_us=time.time_ns() // 1000,
        streams=True,
        notes=notes,
    )
