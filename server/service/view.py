"""A run as one moment of the store shows it: row, plan and lease together, never changed, only replaced.

Whatever a request reads, it reads from one view, so that seal, log and plan always belong together.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from headrace.server.control.records import LeaseRecord, RunRecord
from headrace.server.control.runs import Made
from headrace.server.control.seal import Advanced
from headrace.server.plan.log import Event
from headrace.server.plan.plan import Plan
from headrace.server.service.library import Library

ANCHOR_EVERY = 1000
MOST_SPREAD = 1000


@dataclass(frozen=True, kw_only=True, slots=True)
class View:
    """One moment of a run.

    `labels` are those of the ranks that may confirm, by lease token (SHA-256); `parent` is the run that a branch left,
    as it was when this one was opened: what they share is sealed.
    """

    run: RunRecord
    plan: Plan
    library: Library
    events: tuple[Event, ...]
    lease: LeaseRecord | None
    labels: Mapping[bytes, str] = field(default_factory=dict)
    parent: View | None = None

    def after(self, advanced: Advanced) -> View:
        """The view after a transaction; never one that is older than this."""
        if advanced.run.seal < self.run.seal or advanced.run.sequence < self.run.sequence:
            return self
        fresh = tuple(event for event in advanced.events if event.sequence > self.run.sequence)
        events = self.events + fresh
        plan = self.plan.with_events(events) if fresh else self.plan
        return self.with_lease(advanced.lease, run=advanced.run, plan=plan, events=events)

    def with_event(self, event: Event) -> View:
        """The view with the event that follows its newest one."""
        events = (*self.events, event)
        run = replace(self.run, head=event.hash, sequence=event.sequence)
        return self.with_lease(self.lease, run=run, plan=self.plan.with_events(events), events=events)

    def with_lease(
        self,
        lease: LeaseRecord | None,
        *,
        run: RunRecord | None = None,
        plan: Plan | None = None,
        events: Iterable[Event] | None = None,
    ) -> View:
        """The same run under another lease."""
        return replace(
            self,
            run=run or self.run,
            plan=plan or self.plan,
            events=self.events if events is None else tuple(events),
            lease=lease,
            labels={rank.token: rank.label for rank in lease.open_ranks} if lease else {},
        )

    def limit(self, confirmed: int) -> int:
        """How far the seal may rise with this many confirmed steps: not to a step that cannot be read here."""
        bounds = (confirmed + self.run.lead, self.plan.end, self.plan.known_until)
        return min(bound for bound in bounds if bound is not None)

    @property
    def shown_step(self) -> int:
        """The first unsealed step, or the last one that there is or that can be read here."""
        bounds = (self.run.seal, *(bound - 1 for bound in (self.plan.end, self.plan.known_until) if bound is not None))
        return max(self.plan.first, min(bounds))

    def anchors(self, to: int) -> Made:
        """Cursors of the multiples of 1,000 that a seal at `to` passes."""
        first = (self.run.seal // ANCHOR_EVERY + 1) * ANCHOR_EVERY
        return tuple((step, self.plan.anchor(step)) for step in range(first, to + 1, ANCHOR_EVERY))


def spread_anchors(plan: Plan, seal: int) -> Made:
    """At most 1,000 cursors of multiples of 1,000, evenly up to a seal that was reached without them."""
    every = ANCHOR_EVERY * max(1, -(-seal // (ANCHOR_EVERY * MOST_SPREAD)))
    return tuple((step, plan.anchor(step)) for step in range(every, seal + 1, every) if step > plan.first)
