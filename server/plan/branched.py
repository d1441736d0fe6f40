"""Branches: a run that shares its parent's plan below a step and goes its own way from there.

`branch_spec` makes the child's spec, `branch_plan` its plan. The child's cursor at `at` is the parent's at `at + skip`:
with `skip` the windows of a loss spike are never read. Whatever is asked below `at`, the parent answers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property

import numpy as np
import numpy.typing as npt
from headrace.proto.errors import ConflictError, StateMismatchError, UsageError
from headrace.server.plan.answers import Draw, Past, Skipped
from headrace.server.plan.cursor import Cursor
from headrace.server.plan.facts import CorpusFacts
from headrace.server.plan.hidden import kept
from headrace.server.plan.log import CancelBody, Event, MaskBody
from headrace.server.plan.plan import Plan
from headrace.server.plan.shapes import Shape
from headrace.server.plan.spec import Branch, DomainPolicy, Phase, Point, RunSpec
from headrace.server.plan.timeline import phase_starts, weight_range


def branch_spec(
    parent: Plan,
    *,
    name: str,
    at: int,
    seal: int,
    skip: int = 0,
    phases: Sequence[Phase] | None = None,
    batch: int | None = None,
    weights: Mapping[str, float] | None = None,
    domains: Mapping[str, DomainPolicy] | None = None,
) -> RunSpec:
    """The spec of a child that leaves `parent` at step `at`.

    `phases`: those from `at` on, instead of the parent's; `batch`, `weights`: new ones for all that is left of the
    parent's phases; `domains`: policies that replace the parent's. Raises ConflictError when `at + skip` lies above
    the parent's seal, for what is not sealed could still change.
    """
    _check_point(parent, at, seal=seal, skip=skip)
    if phases is not None and (batch is not None or weights is not None):
        raise UsageError("new phases bring their own batch and weights; leave out `batch` and `weights`")
    made = tuple(_kept(parent.spec, at, batch, weights)) if phases is None else (*_cut(parent.spec, at), *phases)
    return replace(
        parent.spec,
        name=name,
        phases=made,
        domains=parent.spec.domains if domains is None else domains,
        branch=Branch(
            run=parent.spec.name,
            parent_digest=parent.spec_digest.hex(),
            parent_hash=parent.hash(at + skip).hex(),
            at=at,
            skip=skip,
            keeps_weights=phases is None and weights is None,
        ),
    )


def _check_point(parent: Plan, at: int, *, seal: int, skip: int) -> None:
    if not parent.first <= at or at + skip > seal:
        raise ConflictError(
            f"a branch of run `{parent.spec.name}` can begin at steps {parent.first} to {seal - skip} "
            f"(sealed: {seal}, skip: {skip}), not at {at}"
        )
    if parent.spec.kind == "eval":
        raise UsageError(f"run `{parent.spec.name}` is an evaluation; make another one instead of a branch")


def _kept(spec: RunSpec, at: int, batch: int | None, weights: Mapping[str, float] | None) -> Iterable[Phase]:
    """The parent's phases, with changes to those that reach beyond `at`."""
    starts = phase_starts(spec)
    for start, phase in zip(starts, spec.phases, strict=False):
        if start + phase.steps <= at:
            yield phase
            continue
        points = phase.points if weights is None else (Point(at=0, weights=weights),)
        yield replace(phase, batch=phase.batch if batch is None else batch, points=points)


def _cut(spec: RunSpec, at: int) -> Iterable[Phase]:
    """The parent's phases up to `at`."""
    for start, phase in zip(phase_starts(spec), spec.phases, strict=False):
        steps = min(phase.steps, at - start)
        if steps > 0:
            points = tuple(point for point in phase.points if point.at < steps)
            yield replace(phase, steps=steps, points=(*points[:-1], replace(points[-1], curve="hold")))


def branch_plan(
    spec: RunSpec,
    facts: CorpusFacts,
    events: Sequence[Event],
    anchors: Iterable[tuple[int, str]],
    parent: Plan,
) -> Plan:
    """The plan of a child. Raises StateMismatchError when `parent` is not the run that the child was made from."""
    return BranchedPlan(spec, facts, events, anchors, parent=parent)


class BranchedPlan(Plan):
    """A plan whose steps below `branch.at` are its parent's."""

    def __init__(
        self,
        spec: RunSpec,
        facts: CorpusFacts,
        events: Sequence[Event] = (),
        anchors: Iterable[tuple[int, str]] = (),
        *,
        parent: Plan,
    ) -> None:
        if spec.branch is None:
            raise UsageError(f"run `{spec.name}` is no branch, it has no parent")
        self.branch = spec.branch
        self.parent = _sealed(parent, spec.branch)
        _check_parent(spec, self.parent)
        super().__init__(spec, facts, events, anchors, _past(self.parent, spec.branch))

    def _with(self, events: Sequence[Event]) -> Plan:
        return BranchedPlan(self.given, self.facts, events, parent=self.parent)

    def draw(self, step: int) -> Draw:
        return self.parent.draw(step) if step < self.first else super().draw(step)

    def cursor(self, step: int) -> Cursor:
        return self.parent.cursor(step).over(self.domains) if step < self.first else super().cursor(step)

    def shape(self, step: int) -> Shape:
        return self.parent.shape(step).clipped(0, self.first) if step < self.first else super().shape(step)

    def shapes(self, from_step: int = 0) -> list[Shape]:
        past = self.parent.shapes(from_step) if from_step < self.first else []
        shared = (shape.clipped(0, self.first) for shape in past if shape.from_step < self.first)
        return [*shared, *super().shapes(max(from_step, self.first))]

    def segment(self, step: int) -> int:
        if step < self.first:
            return self.parent.segment(step)
        before = self.parent.segment(self.first - 1) + 1 if self.first else 0
        return before + super().segment(step) - super().segment(self.first)

    def weights(self, step: int) -> dict[str, float]:
        if step >= self.first:
            return super().weights(step)
        return {**dict.fromkeys(self.domains, 0.0), **self.parent.weights(step)}

    def shares(self, step: int) -> npt.NDArray[np.int64]:
        if step >= self.first:
            return super().shares(step)
        shares = self.parent.shares(step)
        return np.concatenate([shares, np.zeros(len(self.domains) - len(shares), dtype=np.int64)])

    def loss_weights(self, step: int) -> dict[str, float]:
        if step >= self.first:
            return super().loss_weights(step)
        return {**dict.fromkeys(self.domains, 1.0), **self.parent.loss_weights(step)}

    def size(self, name: str, step: int) -> int:
        inherited = step < self.first and name in self.parent.domains
        return self.parent.size(name, step) if inherited else super().size(name, max(step, self.first))

    def masks(self, step: int) -> tuple[MaskBody, ...]:
        return self.parent.masks(step) if step < self.first else super().masks(step)

    @cached_property
    def skipped(self) -> Mapping[str, Skipped]:
        before = self.parent.cursor(self.first)
        after = self.parent.cursor(self.first + self.branch.skip)
        windows = np.zeros(len(self.parent.domains), dtype=np.int64)
        for step in range(self.first, self.first + self.branch.skip):
            windows += np.bincount(self.parent.draw(step).domains, minlength=len(windows))
        return {
            name: Skipped(
                windows=int(windows[i]),
                tokens=int(after.tokens[i] - before.tokens[i]),
                first=(int(before.passes[i]), int(before.indices[i])),
                end=(int(after.passes[i]), int(after.indices[i])),
            )
            for i, name in enumerate(self.parent.domains)
            if windows[i]
        }

    def hash(self, step: int) -> bytes:
        """At the branch point itself the parent's hash: a state saved there belongs to both."""
        return self.parent.hash(step) if step <= self.first else super().hash(step)


def later_masks(parent: Plan, shared: int) -> tuple[Event, ...]:
    """What a plan takes down only from step `shared` on: a branch that shares the steps below would serve it again."""
    return tuple(event for event in parent.live if event.kind == "mask" and event.from_step >= shared)


def left_behind(parent: Plan, branch: Branch) -> tuple[tuple[Event, tuple[tuple[int, int], ...]], ...]:
    """What a branch does not take over of its parent's changes: weights, with the steps [first, end) from `at` on that
    they have in the parent, and generations that join only from `at + skip` on."""
    starts = phase_starts(parent.spec)
    found: list[tuple[Event, tuple[tuple[int, int], ...]]] = []
    for event in parent.holding:
        if event.kind == "grow" and event.from_step >= branch.at + branch.skip:
            found.append((event, ()))
        if event.kind == "weights" and not (branch.keeps_weights and event.from_step < branch.at):
            held = kept(parent.timeline, weight_range(event, starts))
            steps = tuple((max(first, branch.at), end) for first, end in held if end > branch.at)
            found += [(event, steps)] if steps else []
    return tuple(found)


def _sealed(parent: Plan, branch: Branch) -> Plan:
    """The parent without what holds only from `at + skip` on: that could still change, and is not shared."""
    shared = {event.sequence for event in parent.live if event.from_step < branch.at + branch.skip}
    return parent.with_events([e for e in parent.events if e.sequence in shared or _cancels(e, shared)])


def _cancels(event: Event, shared: set[int]) -> bool:
    return event.kind == "cancel" and isinstance(event.body, CancelBody) and event.body.sequence in shared


def _check_parent(spec: RunSpec, parent: Plan) -> None:
    assert spec.branch is not None
    for what, wanted, found in (
        ("spec digest", spec.branch.parent_digest, parent.spec_digest.hex()),
        ("plan hash", spec.branch.parent_hash, parent.hash(spec.branch.at + spec.branch.skip).hex()),
    ):
        if wanted != found:
            raise StateMismatchError(
                f"run `{spec.name}` was branched from `{spec.branch.run}` with {what} {wanted[:16]}, but there it is "
                f"{found[:16]}; restore the parent's log and corpus"
            )


def _past(parent: Plan, branch: Branch) -> Past:
    """What the child begins with: weights that hold at the branch point if it keeps them, generations and masks."""

    def goes_on(event: Event) -> bool:
        if event.kind == "weights":
            return branch.keeps_weights and event.from_step < branch.at
        return True

    return Past(
        at=branch.at,
        cursor=replace(parent.cursor(branch.at + branch.skip), step=branch.at),
        domains=parent.domains,
        events=tuple(_from(event, branch.at) for event in parent.holding if goes_on(event)),
        hash=parent.hash(branch.at),
    )


def _from(event: Event, step: int) -> Event:
    """What the skipped steps brought holds at the branch point."""
    return event if event.from_step < step else replace(event, from_step=step)
