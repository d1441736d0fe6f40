"""The mixer's service: watch a run's losses, decide window by window, push or propose. It owns nothing that serving
needs.

What holds: every window and decision is in the journal before it is pushed; started again, the service replays the
journal, compares each decision, and sends an unanswered push again under the same idempotency key; a push names the
log head that it was computed from, so a change by anyone else in between makes it void (said, and the next window
starts from the new weights). A dead mixer, or a dead server, changes nothing: the weights in force stay.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from headrace.mixer import controller
from headrace.mixer.config import MixerConfig
from headrace.mixer.controller import ControllerState, Decision, Window
from headrace.mixer.exposition import Figures
from headrace.mixer.journal import Journal
from headrace.mixer.reports import Report
from headrace.mixer.result import Mixture
from headrace.mixer.simplex import Weights
from headrace.proto.errors import ConflictError, HeadraceError, LimitError, StaleError, UnavailableError

log = logging.getLogger("headrace.mixer")


@dataclass(frozen=True, kw_only=True, slots=True)
class RunFacts:
    """What the server says of the run.

    weights: of the first unsealed step; head: hash of the newest event; served: real tokens of the confirmed steps by
    domain; sizes: tokens that each domain holds, for those that were served.
    """

    run_id: str
    weights: Weights
    confirmed: int
    seal: int
    lead: int
    end_step: int | None
    head: bytes
    served: Weights = field(default_factory=dict)
    sizes: Weights = field(default_factory=dict)

    @property
    def settled(self) -> int:
        """Steps below this were taken by every rank: none is more than `lead` behind the first."""
        if self.end_step is not None and self.confirmed >= self.end_step:
            return self.end_step
        return max(0, self.confirmed - self.lead)


@dataclass(frozen=True, kw_only=True, slots=True)
class Pushed:
    """A change of weights that the server took: its number and the first step for which it holds."""

    sequence: int
    from_step: int


class Source(Protocol):
    """The server, as the mixer needs it."""

    def facts(self) -> RunFacts:
        """The run now."""

    def losses(self, first: int, end: int) -> Sequence[Report]:
        """Reports of steps [first, end), summed over ranks."""

    def push(self, mixture: Mixture, *, head: bytes, key: str, reason: str) -> Pushed:
        """Set the weights from the first unsealed step on. Raises StaleError when the head has moved."""


class Service:
    """One run's mixer. `tick` looks once; `run` until stopped or the run has ended."""

    def __init__(self, config: MixerConfig, source: Source, journal: Journal) -> None:
        self.config, self.source, self.journal = config, source, journal
        self.figures = Figures(config.run)
        self.state: ControllerState | None = None
        self._unanswered: dict[str, Any] | None = None
        self._pushed = -1  # the step from which the last push holds
        self._replay()

    def _replay(self) -> None:
        """Rebuild the state from the journal. Raises ConflictError when it decides otherwise than it did."""
        pending: Decision | None = None
        for entry in self.journal.entries():
            if entry["kind"] == "start":
                self.state = controller.start(entry["weights"], entry["first"], self.config)
            elif entry["kind"] == "window" and self.state is not None:
                self.state, pending = controller.decide(self.state, Window.from_json(entry["window"]), self.config)
            elif entry["kind"] == "decision":
                self._compare(entry, pending)
                self._unanswered = dict(entry) if entry["decision"] == "push" else None
            elif entry["kind"] == "outcome":
                self._unanswered, self._pushed = None, entry.get("from_step", self._pushed)

    def _compare(self, entry: Any, decision: Decision | None) -> None:
        weights = dict(decision.mixture.weights) if decision and decision.mixture else None
        if decision is None or (entry["decision"], entry["weights"]) != (decision.kind, weights):
            raise ConflictError(
                f"`{self.journal.path}`: replayed, it decides otherwise than it did for the window that ended at step "
                f"{entry['end']}; the configuration or the version has changed: name another journal folder"
            )

    def tick(self) -> int:
        """Look once; the number of windows that were decided. Raises UnavailableError when the server is away."""
        facts = self.source.facts()
        if self.state is None:
            self._begin(facts)
        self._resend(facts)
        decided = sum(1 for window in self._windows(facts) if self._handle(window))
        self.figures.look(self.state.next_step if self.state else 0)
        return decided

    def run(self, stop: threading.Event) -> None:
        """Tick until `stop` is set or the run has ended and all its windows are decided."""
        away = False
        while not stop.is_set():
            try:
                decided = self.tick()
                away = False
            except (UnavailableError, LimitError) as error:
                if not away:
                    log.warning("%s; the weights stay as they are, trying on", error)
                away, decided = True, 0
            if not decided:
                if not away and self._ended():
                    return
                stop.wait(self.config.poll)

    def _ended(self) -> bool:
        facts = self.source.facts()
        done = facts.end_step is not None and facts.confirmed >= facts.end_step
        return done and self.state is not None and facts.settled - self.state.next_step < self.config.window(facts.lead)

    def _begin(self, facts: RunFacts) -> None:
        """The first window starts at the first unsealed step: what came before was not under watch."""
        self.journal.append({"kind": "start", "run": facts.run_id, "first": facts.confirmed, "weights": facts.weights})
        self.state = controller.start(facts.weights, facts.confirmed, self.config)
        log.info("watching run %s from step %d", self.config.run, facts.confirmed)

    def _windows(self, facts: RunFacts) -> Iterator[tuple[Window, RunFacts]]:
        """Windows that are settled. Only the newest may lead to a push: older ones were missed, and say so."""
        assert self.state is not None
        size = self.config.window(facts.lead)
        while self.state.next_step + size <= facts.settled:
            first = self.state.next_step
            reports = self.source.losses(first, first + size)
            late = first + 2 * size <= facts.settled
            window = controller.gather(
                reports,
                first,
                first + size,
                facts.weights,
                late=late,
                served=facts.served,
                sizes=facts.sizes,
                pushed=self._pushed,
            )
            yield window, facts
            facts = self.source.facts()

    def _handle(self, settled: tuple[Window, RunFacts]) -> bool:
        window, facts = settled
        assert self.state is not None
        self.journal.append({"kind": "window", "window": window.to_json()})
        self.state, decision = controller.decide(self.state, window, self.config)
        entry = {
            "kind": "decision",
            "decision": decision.kind,
            "end": window.end,
            "reason": decision.reason,
            "weights": dict(decision.mixture.weights) if decision.mixture else None,
            "key": decision.key(facts.run_id, window) if decision.mixture else None,
            "head": facts.head.hex(),
        }
        self.journal.append(entry)
        self.figures.decide(decision.kind)
        log.info("steps %d to %d: %s, %s", window.first, window.end - 1, decision.kind, decision.reason)
        if decision.kind == "push" and decision.mixture:
            self._push(decision.mixture, entry, facts)
        elif decision.kind == "propose" and decision.mixture:
            path = self.config.folder / f"proposal-{window.end}.json"
            decision.mixture.save(path)
            log.info("proposed in %s; approve with: headrace weights set %s --proposal %s", path, self.config.run, path)
        return True

    def _resend(self, facts: RunFacts) -> None:
        """Send the push whose answer a crash lost; the server answers a key it knows with its first result."""
        entry, self._unanswered = self._unanswered, None
        if entry is not None:
            mixture = Mixture(method="online", weights=entry["weights"], raw=entry["weights"])
            self._push(mixture, entry, facts)

    def _push(self, mixture: Mixture, entry: Any, facts: RunFacts) -> None:
        outcome: dict[str, Any] = {"kind": "outcome", "key": entry["key"]}
        try:
            pushed = self.source.push(
                mixture, head=bytes.fromhex(entry["head"]), key=entry["key"], reason=f"mixer: {entry['reason']}"
            )
        except StaleError as error:
            outcome["void"] = str(error)
            self.figures.push("void")
            log.warning("the push is void, someone else changed the run meanwhile: %s", error)
        except (UnavailableError, LimitError):  # try again: the key makes sure that it holds once
            self._unanswered = dict(entry)
            raise
        except HeadraceError as error:
            outcome["refused"] = str(error)
            self.figures.push("refused")
            log.error("the push was refused: %s", error)
        else:
            self.figures.push("accepted")
            self._pushed = pushed.from_step
            outcome |= {"sequence": pushed.sequence, "from_step": pushed.from_step}
            delay = pushed.from_step - entry["end"]
            log.info("pushed: holds from step %d on, %d steps after its window ended", pushed.from_step, delay)
        self.journal.append(outcome)
