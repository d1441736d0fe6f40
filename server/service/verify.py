"""Recomputes what a store keeps of a run: the audit chain, the digest of spec and corpus, and every anchor."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from headrace.proto.errors import HeadraceError
from headrace.server.control.store import Store
from headrace.server.plan import log
from headrace.server.service.loading import Opener


@dataclass(frozen=True, kw_only=True, slots=True)
class VerifyReport:
    """What was recomputed, and every fault that was found."""

    run: str
    events: int
    anchors: int
    faults: tuple[str, ...]

    def as_dict(self) -> dict[str, Any]:
        """For `--json`."""
        return {"run": self.run, "events": self.events, "anchors": self.anchors, "faults": list(self.faults)}

    def lines(self) -> list[str]:
        """For people."""
        checked = f"run {self.run}: {self.events} events in one chain, {self.anchors} anchors recomputed"
        return [checked, *(f"fault: {fault}" for fault in self.faults)] if self.faults else [f"{checked}, all good"]


def verify_run(store: Store, name: str) -> VerifyReport:
    """Checks one run; a fault is reported, not raised, so that all of them are seen."""
    snapshot = store.snapshot(name)
    anchors = store.anchors(snapshot.run.id)
    faults: list[str] = []
    try:
        if log.verify(snapshot.events, snapshot.run.first_head) != snapshot.run.head:
            faults.append("the head in the run's row is not the hash of the newest event")
        view = Opener(store).view(name, trust_anchors=False)
        faults += [
            f"the anchor of step {step} is not what the plan gives"
            for step, cursor in anchors
            if view.plan.anchor(step) != cursor
        ]
    except HeadraceError as error:
        faults.append(str(error))
    return VerifyReport(run=name, events=len(snapshot.events), anchors=len(anchors), faults=tuple(faults))
