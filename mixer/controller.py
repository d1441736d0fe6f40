"""What the mixer decides about a window of reports: a pure function, so that a journal replays to the same decisions.

A window is [first, end) steps, at least max(lead, 100) of them, all settled (every rank has taken them). Its reports
are summed, the method advances from the weights in force, the guardrails bound the result, and there is one decision:

    push / propose   new weights
    hold             the change is too small to matter, the window comes late, or the last push has not held for half of
                     it: pushes that are slow to take effect never add up
    freeze           the window must not be trusted: a domain with weight has no usable loss or too many unusable ones,
                     too few steps were reported, the run diverges, or the guardrails cannot be met; the weights stay
                     as they are and the method learns nothing
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from headrace.mixer import online
from headrace.mixer.config import MixerConfig
from headrace.mixer.files import digest_numbers
from headrace.mixer.online import OnlineState
from headrace.mixer.reports import Report, add, screen
from headrace.mixer.result import Mixture, finish
from headrace.mixer.simplex import Weights, normalise
from headrace.proto.errors import UsageError


@dataclass(frozen=True, kw_only=True, slots=True)
class Window:
    """Reports of steps [first, end), summed over ranks and steps.

    reported: steps that had a report at all; weights: those in force; late: a newer window was settled too when this
    one was looked at, so nothing may be pushed for it; served, sizes: real tokens the run has served by domain when it
    was looked at, and tokens of each domain, as far as the server knows; spoilt: the part of a domain's values that had
    to be left out, where any had; pushed: the step from which the last push of this mixer holds, -1 without one.
    """

    first: int
    end: int
    reported: int
    weights: Weights
    report: Report
    late: bool = False
    served: Weights = field(default_factory=dict)
    sizes: Weights = field(default_factory=dict)
    spoilt: Weights = field(default_factory=dict)
    pushed: int = -1

    def to_json(self) -> dict[str, Any]:
        """A JSON object; `from_json` reads it."""
        return {
            "first": self.first,
            "end": self.end,
            "reported": self.reported,
            "weights": self.weights,
            "report": self.report.to_json(),
            "late": self.late,
            "served": self.served,
            "sizes": self.sizes,
            "spoilt": self.spoilt,
            "pushed": self.pushed,
        }

    @staticmethod
    def from_json(document: Mapping[str, Any]) -> Window:
        """The window that `to_json` wrote."""
        return Window(
            first=document["first"],
            end=document["end"],
            reported=document["reported"],
            weights=document["weights"],
            report=Report.from_json(document["report"]),
            late=document["late"],
            served=document.get("served", {}),
            sizes=document.get("sizes", {}),
            spoilt=document.get("spoilt", {}),
            pushed=document.get("pushed", -1),
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class ControllerState:
    """The method's state and the first step of the next window."""

    method: OnlineState
    next_step: int

    def to_json(self) -> dict[str, Any]:
        """A JSON object, for digests and display."""
        return {"method": self.method.to_json(), "next_step": self.next_step}


@dataclass(frozen=True, kw_only=True, slots=True)
class Decision:
    """kind: push, propose, hold or freeze; mixture: the new weights of the first two; reason: one sentence."""

    kind: str
    reason: str
    mixture: Mixture | None = None

    def key(self, run_id: str, window: Window) -> str:
        """The idempotency key of a push: one decision about one window is one push, however often it is sent."""
        assert self.mixture is not None
        return f"mixer-{run_id}-{window.end}-{digest_numbers(self.mixture.weights)[:16]}"


def start(weights: Mapping[str, float], first: int, config: MixerConfig) -> ControllerState:
    """The state before the first window, which begins at step `first`."""
    return ControllerState(method=online.start(weights, config.method), next_step=first)


def gather(
    reports: Sequence[Report],
    first: int,
    end: int,
    weights: Mapping[str, float],
    *,
    late: bool = False,
    served: Mapping[str, float] | None = None,
    sizes: Mapping[str, float] | None = None,
    pushed: int = -1,
) -> Window:
    """The window of the reports whose steps lie in [first, end); bad values are left out of the sums, step by step."""
    inside = [report for report in reports if first <= report.step < end]
    screened = [screen(report, weights, after=-1) for report in inside]
    good = [each.report for each in screened]
    values = Counter(name for report in inside for name, value in report.domains.items() if value.tokens)
    refused = Counter(
        name
        for report, each in zip(inside, screened, strict=True)
        for name in each.refused
        if report.domains[name].tokens  # a domain that was not in a batch is no bad value
    )
    total = add(good) if good else Report(step=end - 1)
    return Window(
        first=first,
        end=end,
        reported=len({report.step for report in good if report.domains}),
        weights=normalise(weights, place="weights in force"),
        report=Report(step=end - 1, domains=total.domains),
        late=late,
        served=dict(served or {}),
        sizes=dict(sizes or {}),
        spoilt={name: count / values[name] for name, count in sorted(refused.items()) if name in weights},
        pushed=pushed,
    )


def decide(state: ControllerState, window: Window, config: MixerConfig) -> tuple[ControllerState, Decision]:
    """The decision about one window and the state after it."""
    skipped = replace(state, next_step=window.end)
    fault = _fault(window, config) or _divergence(state, window, config.guardrails.largest_rise)
    if fault:
        return skipped, Decision(kind="freeze", reason=fault)
    method = online.advance(online.rebase(state.method, window.weights), window.report, config.method)
    after = ControllerState(method=method, next_step=window.end)
    if window.late:
        return after, Decision(
            kind="hold", reason="a newer window is settled already; this one only teaches the method"
        )
    if window.pushed > window.end - (window.end - window.first) // 2:
        return after, Decision(
            kind="hold", reason=f"the last push holds from step {window.pushed}, for less than half of this window"
        )
    try:
        mixture = _mixture(method, window, config)
    except UsageError as error:
        return skipped, Decision(kind="freeze", reason=str(error))
    moved = sum(abs(mixture.weights[name] - weight) for name, weight in window.weights.items()) / 2
    if moved < max(config.guardrails.smallest_change, 1e-12):
        return after, Decision(kind="hold", reason=f"the weights would move by {moved:.6f} only")
    kind = "push" if config.mode == "auto" else "propose"
    return after, Decision(kind=kind, reason=f"steps {window.first} to {window.end - 1}", mixture=mixture)


def _fault(window: Window, config: MixerConfig) -> str:
    size = window.end - window.first
    if window.reported < config.guardrails.coverage * size:
        return f"only {window.reported} of {size} steps were reported; do the trainers call `loader.report`?"
    silent = [name for name, weight in window.weights.items() if weight > 0 and name not in window.report.domains]
    if silent:
        return f"`{silent[0]}` has weight {window.weights[silent[0]]:.6f} but no usable loss in {size} steps"
    for name, part in window.spoilt.items():
        if window.weights[name] > 0 and part > 1 - config.guardrails.coverage:
            return f"{part:.0%} of the losses of `{name}` in {size} steps are unusable; is the run diverging?"
    return ""


def _divergence(state: ControllerState, window: Window, limit: float) -> str:
    """Whether the losses, each at the domain's weight, rose too far since the last window that taught something."""
    before = state.method.losses
    rise = sum(
        weight * (window.report.domains[name].mean_loss - before[name])
        for name, weight in window.weights.items()
        if name in before and name in window.report.domains
    )
    return f"the loss rose by {rise:.3f} nats a token; is the run diverging?" if rise > limit else ""


def _mixture(method: OnlineState, window: Window, config: MixerConfig) -> Mixture:
    losses = {name: measured.mean_loss for name, measured in window.report.domains.items()}
    return finish(
        "online",
        method.weights,
        config.bounds(window.weights, window.served, window.sizes),
        convention=config.method.rule,
        parameters={"window": [window.first, window.end], "memory": config.method.memory, "eta": config.method.eta},
        inputs={"report": digest_numbers({n: m.loss for n, m in window.report.domains.items()})},
        diagnostics={"losses": losses, "updates": method.updates, "refused": dict(method.refused)},
    )
