"""Evaluation: every window once, in order, and a last batch that is filled up with nothing."""

from __future__ import annotations

import numpy as np
import pytest
from headrace.proto.errors import ConfigError, OutOfRangeError, UsageError
from headrace.server.plan.branched import branch_spec
from headrace.server.plan.facts import CorpusFacts, ViewFacts
from headrace.server.plan.forecast import make_forecast
from headrace.server.plan.plan import Plan
from headrace.server.plan.spec import RunSpec
from headrace.server.plan.whole import NO_WINDOW
from small import facts

TOKENS = {"a": 41, "b": 3, "c": 90}
TOML = """
[run]
name = "held-out"
corpus = "c"
seed = 1
kind = "eval"
[[phase]]
name = "short"
seq_len = 4
batch = 8
"""
LONG = """[[phase]]
name = "long"
seq_len = 16
batch = 3
weights = { a = 0.0, b = 0.5, c = 2 }
"""


def read(text: str = TOML) -> RunSpec:
    return RunSpec.from_toml(text, place="RUN.toml")


def stream(text: str = TOML, anchors: tuple[tuple[int, str], ...] = ()) -> Plan:
    return Plan(read(text), facts(TOKENS, 4, 16), (), anchors)


def rows(plan: Plan, steps: range) -> list[tuple[str, int, int]]:
    """(domain, index, window) of every row that is one, in slot order."""
    found = []
    for step in steps:
        draw = plan.draw(step)
        assert len(draw.domains) == plan.shape(step).batch
        for domain, index, window in zip(draw.domains, draw.indices, draw.windows, strict=True):
            if window != NO_WINDOW:
                found.append((plan.domains[domain], int(index), int(window)))
    return found


def test_every_window_once_and_in_order() -> None:
    plan = stream()
    counts = {name: -(-tokens // 4) for name, tokens in TOKENS.items()}
    assert plan.end == -(-sum(counts.values()) // 8) == 5
    assert rows(plan, range(5)) == [(name, w, w) for name, count in counts.items() for w in range(count)]
    last = plan.draw(4)
    assert (last.windows == NO_WINDOW).tolist() == [False] * 3 + [True] * 5
    assert np.unique(last.domains[3:]).tolist() == [2]
    with pytest.raises(OutOfRangeError):
        plan.draw(5)


def test_nothing_is_shuffled_by_the_seed() -> None:
    assert rows(stream(), range(5)) == rows(stream(TOML.replace("seed = 1", "seed = 2")), range(5))


def test_phases_each_read_all_and_cursors_count_on() -> None:
    """The second phase leaves `a` out; tokens and passes go on from the first, from any anchor."""
    plan = stream(TOML + LONG)
    assert plan.end == 5 + 3
    counts = {"b": 1, "c": 6}
    assert rows(plan, range(5, 8)) == [(name, w, w) for name, count in counts.items() for w in range(count)]
    assert dict(zip(plan.domains, map(int, plan.cursor(8).tokens), strict=True)) == {"a": 41, "b": 6, "c": 180}
    assert plan.cursor(8).passes.tolist() == [0, 1, 1]
    for step in range(9):
        anchor = (step, plan.anchor(step))
        assert stream(TOML + LONG, (anchor,)).anchor(8) == plan.anchor(8)
        assert step == 8 or int(plan.shares(step).sum()) == 1 << 32


def test_forecast_counts_everything_once() -> None:
    forecast = make_forecast(stream())
    assert {domain.name: domain.tokens for domain in forecast.domains} == TOKENS
    assert {domain.epochs for domain in forecast.domains} == {1.0}


def test_a_batch_of_one_and_a_batch_that_fits() -> None:
    for batch in (1, 2, 36, 37, 100):
        plan = stream(TOML.replace("batch = 8", f"batch = {batch}"))
        assert len(rows(plan, range(plan.end or 0))) == 11 + 1 + 23
        assert plan.end == -(-35 // batch)


def test_an_evaluation_in_order_needs_no_seed() -> None:
    assert read(TOML.replace("seed = 1\n", "")).seed == 0
    with pytest.raises(ConfigError, match=r"`run\.seed` is missing"):
        read(TOML.replace("seed = 1\n", "") + "steps = 3\nweights = { a = 1 }\n")


def test_what_cannot_be_an_evaluation_of_everything() -> None:
    with pytest.raises(ConfigError, match="either `steps` or `tokens`"):
        read(TOML.replace('kind = "eval"', 'kind = "train"') + "weights = { a = 1 }\n")
    with pytest.raises(ConfigError, match="names neither steps nor tokens"):
        read(TOML + LONG + "steps = 3\n")
    with pytest.raises(ConfigError, match="has no schedule"):
        read(TOML + "[[phase.schedule]]\nat = 3\nweights = { a = 1 }\n")
    with pytest.raises(UsageError, match="no caps"):
        stream(TOML + "[domain.a]\ncap = 1.0\n")
    views = {("a", 4, "concat"): ViewFacts(windows=0, real_tokens=0)}
    nothing = CorpusFacts(digest=bytes(32), tokens={"a": 3}, vocab_size=9, pad_id=0, views=views)
    with pytest.raises(UsageError, match="no window of 4 tokens"):
        Plan(read(), nothing)
    with pytest.raises(UsageError, match="is an evaluation"):
        branch_spec(stream(), name="x", at=1, seal=5)


def test_the_digest_is_of_the_spec_as_written() -> None:
    assert stream().spec_digest == read().digest(bytes(32))
    assert RunSpec.from_json(read(TOML + LONG).to_json()) == read(TOML + LONG)
