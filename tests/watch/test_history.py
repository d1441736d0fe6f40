"""The history of a run and what needs a look, against sums over every step."""

from __future__ import annotations

import random
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from headrace.server.plan.plan import Plan
from headrace.server.watch.attention import allowed_windows, judge_domains, judge_run
from headrace.server.watch.history import History, columns, due_tokens, first_stride, origin, stretch, weight_vector
from headrace.server.watch.values import DomainFigures, PhaseFigures, RunFigures, Surroundings

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "oracle"))
from random_runs import make_run


def runs(count: int) -> list[tuple[int, Plan, int]]:
    """Random runs of which every generation is open, with a step that they reach."""
    found = []
    for seed in range(count):
        plan = make_run(seed).plan()
        end = plan.end
        if end and plan.known_until is None:
            found.append((seed, plan, random.Random(seed).randint(1, end)))
    assert len(found) > count // 3
    return found


def due_by_steps(plan: Plan, first: int, last: int) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """The slow way."""
    due = np.zeros(len(plan.domains))
    for step in range(first, last):
        shape = plan.shape(step)
        due += weight_vector(plan, step) * (shape.batch * shape.seq_len)
    return due


def curves(plan: Plan) -> bool:
    return any(point.curve != "hold" for phase in plan.spec.phases for point in phase.points)


def test_due_tokens_are_the_sum_over_the_steps() -> None:
    for seed, plan, step in runs(60):
        quick, slow = due_tokens(plan, 0, step), due_by_steps(plan, 0, step)
        allowed = 0.05 * slow.sum() if curves(plan) else 1e-9 * slow.sum()
        assert np.abs(quick - slow).max() <= allowed, f"seed {seed}"


def test_points_are_cursors_however_the_run_has_grown() -> None:
    for seed, plan, step in runs(40):
        words = random.Random(seed)
        history, reached = History(most=8), 0
        while reached < step:
            reached = min(step, reached + words.randint(1, 9))
            now = history.reach(plan, reached)
            assert np.array_equal(now.served, plan.cursor(reached).tokens), f"seed {seed}"
        assert len(history.points) <= 8, f"seed {seed}"
        steps = [point.step for point in history.points]
        assert steps == sorted(set(steps)), f"seed {seed}"
        for point in history.points:
            assert np.array_equal(point.over(len(plan.domains)).served, plan.cursor(point.step).tokens), f"seed {seed}"
        middle = words.randint(0, step)
        assert np.array_equal(history.at(plan, middle).served, plan.cursor(middle).tokens), f"seed {seed}"


def test_shares_sum_to_one_and_series_agree_with_the_whole() -> None:
    for seed, plan, step in runs(40):
        history = History(most=20)
        now = history.reach(plan, step)
        whole = stretch(origin(plan), now)
        assert whole.share.sum() == pytest.approx(1 if now.served.sum() else 0), f"seed {seed}"
        assert whole.target.sum() == pytest.approx(1), f"seed {seed}"
        found = columns(history, now, plan, plan.domains)
        assert found["steps"][-1] == step, f"seed {seed}"
        for place, name in enumerate(plan.domains):
            series = found["domains"][name]
            assert {len(values) for values in series.values()} == {len(found["steps"])}, f"seed {seed}"
            if now.served.sum():
                assert series["share_so_far"][-1] == pytest.approx(whole.share[place], abs=1e-5), f"seed {seed}"


@pytest.mark.parametrize("steps", [1, 499, 500, 1000, 124_000, 200_000, 1_000_000, 10**8])
def test_a_long_run_has_few_points_and_they_lie_at_anchors(steps: int) -> None:
    stride = first_stride(steps)
    assert steps // stride <= 500
    assert steps // stride >= 120 or stride == 1
    assert stride & (stride - 1) == 0 or stride % 1000 == 0
    assert stride % 1000 == 0 or steps <= 250 * 500


def domain(name: str = "a", **changes: float | str | None) -> DomainFigures:
    return replace(_DOMAIN, name=name, **changes)  # type: ignore[arg-type]


_DOMAIN = DomainFigures(
    name="a",
    target=0.5,
    share=0.5,
    due=0.5,
    window_share=0.5,
    window_due=0.5,
    behind=0.0,
    tokens=1000,
    size=10_000,
    epochs=0.1,
    cap=None,
    at_cap="",
    cap_step=None,
)
_RUN = RunFigures(
    name="r",
    kind="train",
    draw="balanced",
    parent="",
    branch_at=0,
    confirmed=100,
    seal=108,
    lead=8,
    end=1000,
    end_reason="",
    segment=0,
    phase=PhaseFigures(name="p", from_step=0, to_step=1000, batch=8, seq_len=10, packing="concat"),
    tokens=8000,
    window_from=0,
    steps_per_second=None,
    store_error="",
    data_error="",
    damage="",
    known_until=None,
)


def states(*domains: DomainFigures, drifting: tuple[str, ...] = (), draw: str = "balanced") -> dict[str, str]:
    run = replace(_RUN, draw=draw)
    judged = judge_domains(domains, run, windows=800, alarmed=drifting)
    return {one.name: one.state for one in judged}


def test_states_of_domains() -> None:
    found = states(
        domain("fine"),
        domain("off", window_share=0.4, behind=80.0),
        domain("few windows", window_share=0.4, behind=1.0),
        domain("near", cap=4.0, epochs=3.7, tokens=37_000),
        domain("drifting"),
        domain("unused", target=0.0, tokens=0),
        drifting=("drifting",),
    )
    assert found == {
        "fine": "ok",
        "off": "off",
        "few windows": "ok",
        "near": "near cap",
        "drifting": "drift",
        "unused": "unused",
    }


def test_what_a_capped_domain_gives_up_puts_nobody_off_target() -> None:
    spent = domain("spent", cap=1.0, epochs=1.0, tokens=9995, window_share=0.0, behind=400.0)
    found = states(
        spent,
        domain("gains", window_share=0.9, behind=-300.0),
        domain("loses", window_share=0.3, behind=160.0),
    )
    assert found == {"spent": "capped", "gains": "ok", "loses": "off"}


def test_noise_of_the_draw_is_allowed_for() -> None:
    assert allowed_windows("balanced", 0.5, 10_000, 16) < 5
    assert allowed_windows("multinomial", 0.5, 10_000, 16) == pytest.approx(201)
    noisy = domain("noisy", window_share=0.47, behind=24.0)
    assert states(noisy, draw="multinomial") == {"noisy": "ok"}
    assert states(noisy) == {"noisy": "off"}


def test_notes_are_most_urgent_first_and_bounded() -> None:
    run = replace(_RUN, store_error="no disk", known_until=120, data_error="bad block")
    many = [domain(f"d{n:03}", cap=4.0, epochs=3.9, tokens=39_000, state="near cap") for n in range(60)]
    notes = judge_run(run, None, many, (), Surroundings(now_us=0))
    assert [note.level for note in notes[:3]] == ["alarm"] * 3
    assert len(notes) == 25
    assert notes[-1].text == "and 39 more"
    assert judge_run(_RUN, None, [domain()], (), Surroundings(now_us=0)) == []


def test_damage_is_an_alarm_once() -> None:
    """A seal that is stuck names the same damage, so that it is not said twice."""
    (note,) = judge_run(replace(_RUN, damage="2 found"), None, [domain()], (), Surroundings(now_us=0))
    assert (note.level, note.text) == ("alarm", "Blocks failed their checksum: 2 found")
    (stuck,) = judge_run(
        replace(_RUN, damage="2 found", data_error="bad block"), None, [domain()], (), Surroundings(now_us=0)
    )
    assert stuck.text == "The seal is stuck: bad block"
