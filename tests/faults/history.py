"""What happened in a test, step by step, and the one checker of it: nothing lost, nothing twice, nothing changed.

A test takes steps with a `Trainer` (which refuses a step that comes back with other content) and notes every change
that was acknowledged. The checker compares with the pure functions, the log and the windows of each domain's passes.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from headrace.server.control.store import Store
from headrace.server.plan import log
from headrace.server.service.explain import digest_of
from headrace.server.service.loading import Opener
from rig import Trainer


@dataclass
class History:
    """Changes that were acknowledged, by idempotency key: (sequence, first step, hash)."""

    acknowledged: dict[str, tuple[int, int, bytes]] = field(default_factory=dict)

    def note(self, key: str, answer: Any) -> None:
        """An acknowledged change; the same key must always get the same answer."""
        found = (answer.event.sequence, answer.event.from_step, answer.event.hash)
        assert self.acknowledged.setdefault(key, found) == found, f"key {key} was answered in two ways"


def check(trainer: Trainer, history: History, store_url: str, *, steps: int) -> None:
    """All promises at once, from the store alone."""
    store = Store(store_url, writable=False)
    try:
        view = Opener(store).view(trainer.run)
    finally:
        store.close()
    assert sorted(trainer.digests) == list(range(steps)), "a step was lost"
    for step, digest in trainer.digests.items():
        assert digest_of(view, step) == digest, f"step {step} was not what was planned"
        assert view.plan.segment(step) == trainer.segments[step], f"step {step} had another segment"
    _check_log(view.events, view.run.first_head, history)
    _check_passes(view.plan, steps)
    assert view.run.confirmed <= view.run.seal <= view.run.confirmed + view.run.lead


def _check_log(events: tuple[log.Event, ...], head: bytes, history: History) -> None:
    log.verify(events, head)
    by_sequence = {event.sequence: event for event in events}
    for key, (sequence, from_step, own) in history.acknowledged.items():
        event = by_sequence.get(sequence)
        assert event is not None, f"change {key} was acknowledged and is gone"
        assert (event.from_step, event.hash) == (from_step, own), f"change {key} is not the one that was acknowledged"
    assert len(history.acknowledged) == len(events), "a change is in the log twice, or was never acknowledged"


def _check_passes(plan: Any, steps: int) -> None:
    """Within a pass each window comes once, and the indices have no gap."""
    seen: dict[tuple[int, int], list[tuple[int, int]]] = defaultdict(list)
    for step in range(steps):
        draw = plan.draw(step)
        for domain, number, index, window in zip(draw.domains, draw.passes, draw.indices, draw.windows, strict=True):
            seen[int(domain), int(number)].append((int(index), int(window)))
    for where, found in seen.items():
        indices, windows = zip(*sorted(found), strict=True)
        assert list(indices) == list(range(len(found))), f"pass {where} has a gap or a repeat"
        assert len(set(windows)) == len(found), f"pass {where} has a window twice"


def patiently(call: Callable[[], Any], *, seconds: float = 60.0) -> Any:
    """Asks again while the answer is "try again"."""
    import time

    from headrace.proto.errors import HeadraceError

    until = time.monotonic() + seconds
    while True:
        try:
            return call()
        except HeadraceError as error:
            if error.exit_code != 75 or time.monotonic() > until:
                raise
            time.sleep(0.05)
