"""Online mixing: weights that follow the losses of the run itself, without a reference.

* `odm` (Albalak et al. 2023, arXiv 2312.02406): each domain is an arm whose reward is its training loss,
      R_i <- beta R_i + (1 - beta) L_i / pi_i;   e_t = min(1/K, sqrt(ln K / (K t)));
      pi_t = (1 - K e_t) softmax(e_{t-1} R) + e_t
  exactly uniform until t = K ln K.
* `velocity`: multiplicative weights on how much each domain's loss fell since it was last seen,
      w <- w exp(eta max(previous - current, 0)) / sum;   w <- (1 - c) w + c / k
  `memory` smooths the losses first (0: as they come).
* `ado` (Jiang et al. 2024, arXiv 2410.11820): how fast each domain's loss falls by a scaling law fitted to its own
  history; see `headrace.mixer.ado`. It acts after `least_points` reports.

What holds: pure `advance(state, report)`, in log space; a domain that a report does not name keeps its estimate, and in
`velocity` its weight; values that cannot be used are left out and counted; equal journals give equal weights.
What was given up: the released code of ODM, which trains with exp(loss) and linear weights, a rule the paper does
not name.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal, get_args

import numpy as np
from headrace.mixer import ado
from headrace.mixer.doremi import DoremiSpec, step
from headrace.mixer.reports import Measured, Report, screen
from headrace.mixer.simplex import Weights, named, normalise, softmax, vector
from headrace.proto.errors import UsageError

Rule = Literal["odm", "velocity", "ado"]


@dataclass(frozen=True, kw_only=True, slots=True)
class OnlineSpec:
    """rule; beta: memory of ODM's rewards; eta, smoothing, memory: of the velocity rule; credit, fresh, least_points,
    ignored (first reports that no law is fitted to), beta (memory of what was given): of ADO."""

    rule: Rule = "velocity"
    beta: float = 0.9
    eta: float = 200.0
    smoothing: float = 0.05
    memory: float = 0.0
    credit: float = 0.5
    fresh: float = 0.1
    least_points: int = 6
    ignored: int = 1

    def __post_init__(self) -> None:
        if self.rule not in get_args(Rule):
            raise UsageError(f"online: rule is `{self.rule}`; choose `odm`, `velocity` or `ado`")
        if not (math.isfinite(self.eta) and self.eta > 0):
            raise UsageError(f"online: eta is {self.eta}; it must be finite and above 0")
        for name in ("beta", "smoothing", "memory"):
            if not 0 <= getattr(self, name) < 1:
                raise UsageError(f"online: {name} is {getattr(self, name)}; it must be at least 0 and below 1")
        if not (0 <= self.credit <= 1 and 0 < self.fresh <= 1 and self.least_points >= 3):
            raise UsageError("online: credit must be 0 to 1, fresh above 0 and at most 1, least_points at least 3")
        if self.ignored < 0:
            raise UsageError(f"online: ignored is {self.ignored}; it must not be below 0")


@dataclass(frozen=True, kw_only=True, slots=True)
class OnlineState:
    """updates: reports used; step: of the last one; rewards: of ODM; losses: the last (smoothed) ones, nats a token;
    tokens, history, given, mean, prior: of ADO."""

    weights: Weights
    updates: int = 0
    step: int = -1
    rewards: Weights = field(default_factory=dict)
    losses: Weights = field(default_factory=dict)
    refused: Mapping[str, int] = field(default_factory=dict)
    tokens: int = 0
    history: Mapping[str, list[list[float]]] = field(default_factory=dict)
    given: Weights = field(default_factory=dict)
    mean: Weights = field(default_factory=dict)
    prior: Weights = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """A JSON object; `OnlineState(**document)` reads it."""
        return asdict(self)


def start(initial: Mapping[str, float], spec: OnlineSpec, losses: Mapping[str, float] | None = None) -> OnlineState:
    """The state before the first report; `losses` are those before training, if known."""
    weights = normalise(initial, place="online")
    return OnlineState(
        weights=weights,
        rewards=dict.fromkeys(weights, 0.0),
        losses=dict(losses or {}),
        given=weights,
        mean=weights,
        prior=weights,
    )


def rebase(state: OnlineState, weights: Mapping[str, float]) -> OnlineState:
    """Go on from the weights that are in force; domains that joined start without an estimate, those that left go."""
    now = normalise(weights, place="online")
    return replace(
        state,
        weights=now,
        rewards={name: state.rewards.get(name, 0.0) for name in now},
        losses={name: loss for name, loss in state.losses.items() if name in now},
        history={name: points for name, points in state.history.items() if name in now},
        given=_over(state.given, now),
        mean=_over(state.mean, now),
        prior=_over(state.prior, now),
    )


def _over(known: Mapping[str, float], now: Weights) -> Weights:
    """Known weights over the domains there are now: a new one has its weight in force, the others share the rest."""
    new = {name: weight for name, weight in now.items() if name not in known}
    old = {name: known[name] for name in now if name in known}
    if not any(old.values()):
        return now
    room = (1 - sum(new.values())) / sum(old.values())
    return {name: new[name] if name in new else old[name] * room for name in now}


def advance(state: OnlineState, report: Report, spec: OnlineSpec) -> OnlineState:
    """The state after one more report (a window of steps, summed)."""
    screened = screen(report, state.weights, after=state.step)
    refused = dict(state.refused)
    for name in screened.refused:
        refused[name] = refused.get(name, 0) + 1
    if not screened.report.domains:
        return replace(state, refused=refused)
    rules = {"odm": _odm, "velocity": _velocity, "ado": _ado}
    return replace(rules[spec.rule](state, screened.report.domains, spec), step=report.step, refused=refused)


def exploration(arms: int, t: int) -> float:
    """e_t = min(1/K, sqrt(ln K / (K t))): the least weight of an arm after t updates."""
    return 1.0 / arms if t <= 0 else min(1.0 / arms, math.sqrt(math.log(arms) / (arms * t)))


def _odm(state: OnlineState, measured: Mapping[str, Measured], spec: OnlineSpec) -> OnlineState:
    names, t = tuple(state.weights), state.updates + 1
    rewards = dict(state.rewards)
    for name, value in measured.items():
        # A domain at weight 0 has no probability to divide by; it is not an arm until someone gives it weight.
        if state.weights[name] > 0:
            gain = value.mean_loss / state.weights[name]
            rewards[name] = spec.beta * rewards[name] + (1 - spec.beta) * gain
    floor = exploration(len(names), t)
    chosen = softmax(exploration(len(names), t - 1) * vector(rewards, names))
    weights = (1 - len(names) * floor) * chosen + floor
    losses = {**state.losses, **{name: value.mean_loss for name, value in measured.items()}}
    return replace(state, weights=named(names, weights), updates=t, rewards=rewards, losses=losses)


def _velocity(state: OnlineState, measured: Mapping[str, Measured], spec: OnlineSpec) -> OnlineState:
    current = {
        name: spec.memory * state.losses.get(name, value.mean_loss) + (1 - spec.memory) * value.mean_loss
        for name, value in measured.items()
    }
    known = {name: loss for name, loss in current.items() if name in state.losses}
    fall = {name: float(np.maximum(state.losses[name] - loss, 0.0)) for name, loss in known.items()}
    weights = dict(state.weights)
    if fall:
        weights, _, _ = step(weights, fall, DoremiSpec(eta=spec.eta, smoothing=spec.smoothing))
    return replace(state, weights=weights, updates=state.updates + 1, losses={**state.losses, **current})


def _ado(state: OnlineState, measured: Mapping[str, Measured], spec: OnlineSpec) -> OnlineState:
    seen = sum(value.tokens for value in measured.values())
    middle, total = state.tokens + seen / 2, state.tokens + seen
    history = dict(state.history)
    if state.updates >= spec.ignored:
        for name, value in measured.items():
            history[name] = ado.remember(history.get(name, []), middle, value.mean_loss)
    shares = {name: measured[name].tokens / seen if name in measured else 0.0 for name in state.given}
    given = {name: spec.beta * old + (1 - spec.beta) * shares[name] for name, old in state.given.items()}
    ready = {name: points for name, points in history.items() if len(points) >= spec.least_points}
    weights, mean = state.weights, state.mean
    if any(state.prior[name] > 0 for name in ready):
        # A domain without enough points keeps the weight it has; the others share the rest as their laws ask.
        held = {name: weight for name, weight in state.weights.items() if name not in ready}
        laws = {name: ado.fit(points) for name, points in ready.items()}
        rho = ado.preference(state.prior, state.given, laws, total, credit=spec.credit)
        room = 1 - sum(held.values())
        rho = {name: rho[name] * room if name in rho else held[name] for name in state.weights}
        weights, mean = ado.blend(state.mean, rho, state.updates + 1, fresh=spec.fresh)
    losses = {**state.losses, **{name: value.mean_loss for name, value in measured.items()}}
    return replace(
        state,
        weights=weights,
        updates=state.updates + 1,
        losses=losses,
        tokens=total,
        history=history,
        given=given,
        mean=mean,
    )
