"""Recomputes what a store keeps of a run: the audit chain, the digest of spec and corpus, and every anchor."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from headrace.proto.errors import HeadraceError, OutOfRangeError
from headrace.server.control.store import Store
from headrace.server.plan import log
from headrace.server.plan.plan import Plan
from headrace.server.service.loading import Opener


@dataclass(frozen=True, kw_only=True, slots=True)
class VerifyReport:
    """What was recomputed, and every fault that was found."""

    run: str
    events: int
    anchors: int
    faults: tuple[str, ...]
    forgotten: int = 0

    def as_dict(self) -> dict[str, Any]:
        """For `--json`."""
        return {
            "run": self.run,
            "events": self.events,
            "anchors": self.anchors,
            "faults": list(self.faults),
            "forgotten_anchors": self.forgotten,
        }

    def lines(self) -> list[str]:
        """For people."""
        checked = f"run {self.run}: {self.events} events in one chain, {self.anchors} anchors recomputed"
        gone = [f"{self.forgotten} anchors deleted, they are made again"] if self.forgotten else []
        found = [f"fault: {fault}" for fault in self.faults]
        return [checked, *found, *gone] if found else [f"{checked}, all good"]


def verify_run(store: Store, name: str, *, forget_anchors: bool = False) -> VerifyReport:
    """Checks one run; a fault is reported, not raised, so that all of them are seen.

    With `forget_anchors` those that are not what the plan gives are deleted: they are a cache.
    """
    snapshot = store.snapshot(name)
    anchors = store.anchors(snapshot.run.id, every=True)
    faults: list[str] = []
    bad: list[int] = []
    try:
        if log.verify(snapshot.events, snapshot.run.first_head) != snapshot.run.head:
            faults.append("the head in the run's row is not the hash of the newest event")
        view = Opener(store).view(name, trust_anchors=False)
        bad = [step for step, text in anchors if not _is_right(view.plan, step, text)]
        faults += [f"the anchor of step {step} is not what the plan gives" for step in bad]
    except HeadraceError as error:
        faults.append(str(error))
    forgotten = bad if forget_anchors else []
    if forgotten:
        store.forget_anchors(snapshot.run.id, forgotten)
    return VerifyReport(
        run=name,
        events=len(snapshot.events),
        anchors=len(anchors),
        faults=tuple(faults),
        forgotten=len(forgotten),
    )


def _is_right(plan: Plan, step: int, text: str) -> bool:
    """A step that the run does not have cannot have an anchor."""
    try:
        return plan.anchor(step) == text
    except OutOfRangeError:
        return False
