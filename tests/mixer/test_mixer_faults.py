"""A mixer that is fed nonsense: whatever comes, weights stay or move within the guardrails, and it recovers."""

from __future__ import annotations

import dataclasses
import json
import math
from pathlib import Path

import pytest
from headrace.mixer.config import Guardrails, MixerConfig
from headrace.mixer.controller import Window, decide, gather, start
from headrace.mixer.online import OnlineSpec, Rule
from headrace.mixer.reports import Measured, Report
from hypothesis import given, settings
from hypothesis import strategies as st

NAMES = ("a", "b", "c")
EVEN = dict.fromkeys(NAMES, 1 / 3)
RAILS = Guardrails(largest_change=0.05, floor=0.02)


def config(rule: Rule) -> MixerConfig:
    return MixerConfig(
        run="r",
        server="s",
        folder=Path("unused"),
        mode="auto",
        method=OnlineSpec(rule=rule, eta=50.0, least_points=3),
        guardrails=RAILS,
    )


losses = st.one_of(
    st.floats(min_value=0.0, max_value=12.0),
    st.sampled_from([math.nan, math.inf, -math.inf, -1.0, 1e30, 5e-324, 0.0]),
)
measured = st.builds(Measured, loss=losses, tokens=st.sampled_from([-1, 0, 1, 64, 10**12]))
window = st.lists(st.dictionaries(st.sampled_from([*NAMES, "stranger"]), measured, max_size=4), max_size=6)


@pytest.mark.parametrize("rule", ["velocity", "odm", "ado"])
@settings(max_examples=60, deadline=None)
@given(windows=st.lists(st.tuples(window, st.booleans()), min_size=1, max_size=12))
def test_no_report_moves_weights_beyond_the_guardrails(
    rule: Rule, windows: list[tuple[list[dict[str, Measured]], bool]]
) -> None:
    setup, weights = config(rule), dict(EVEN)
    state = start(weights, 0, setup)
    for index, (reports, late) in enumerate(windows):
        first, end = 100 * index, 100 * index + 100
        steps = [Report(step=first + 17 * n, domains=domains) for n, domains in enumerate(reports)]
        seen = dataclasses.replace(gather(steps, first, end, weights, late=late), reported=100 if reports else 0)
        replayed = Window.from_json(json.loads(json.dumps(seen.to_json(), allow_nan=False)))
        before = state
        state, decision = decide(before, seen, setup)
        assert (state, decision) == decide(before, replayed, setup)
        assert state.next_step == end
        if decision.kind == "freeze":
            assert state.method == before.method
        if decision.mixture is None:
            continue
        assert not late
        new = decision.mixture.weights
        assert set(new) == set(NAMES)
        assert sum(new.values()) == pytest.approx(1.0)
        assert all(math.isfinite(weight) and weight >= 0.02 - 1e-9 for weight in new.values())
        assert max(abs(new[name] - weights[name]) for name in NAMES) <= 0.05 + 1e-9
        weights = dict(new)


def steady(first: int, levels: dict[str, float]) -> Window:
    domains = {name: Measured(loss=64 * level, tokens=64) for name, level in levels.items()}
    return gather([Report(step=step, domains=domains) for step in range(first, first + 100)], first, first + 100, EVEN)


def test_a_run_that_diverges_freezes_the_weights_until_it_has_recovered() -> None:
    setup = config("velocity")
    level = {"a": 3.0, "b": 3.0, "c": 3.0}
    state, _ = decide(start(EVEN, 0, setup), steady(0, level), setup)
    kinds = []
    for index, rise in enumerate((3.0, 2.0, 0.6, 0.1, -0.5), start=1):
        moved = {name: loss + rise * (2 if name == "b" else 0.5) for name, loss in level.items()}
        state, decision = decide(state, steady(100 * index, moved), setup)
        kinds.append(decision.kind)
        if decision.kind == "freeze":
            assert "diverging" in decision.reason
    assert kinds == ["freeze", "freeze", "freeze", "hold", "push"]
    patient = dataclasses.replace(setup, guardrails=Guardrails(largest_rise=5.0))
    state, _ = decide(start(EVEN, 0, patient), steady(0, level), patient)
    _, decision = decide(state, steady(100, {name: loss + 3 for name, loss in level.items()}), patient)
    assert decision.kind != "freeze"
