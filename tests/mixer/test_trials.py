"""Measured mixtures: target losses, ranking within one setting, agreement of two sizes, specs made from a template."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
from headrace.mixer.ablate import spec_text
from headrace.mixer.grid import grid
from headrace.mixer.trials import Trial, agreement, load_trial, load_trials, rank
from headrace.proto.errors import ConfigError, UsageError
from scipy.stats import spearmanr

SETTING = {"size": "tiny", "steps": 10, "seed": 0, "held_out": "eval"}


def trial(name: str, a: float, b: float, **setting: object) -> Trial:
    return Trial(
        name=name,
        weights={"a": 0.5, "b": 0.5},
        losses={"a": a, "b": b},
        setting=SETTING | setting,
        flops=1.0,
        seconds=1.0,
    )


def test_the_target_decides_who_wins(tmp_path: Path) -> None:
    one, two = trial("one", 2.0, 4.0), trial("two", 3.0, 2.5)
    assert [t.name for t in rank([one, two])] == ["two", "one"]
    assert [t.name for t in rank([one, two], {"a": 9, "b": 1})] == ["one", "two"]
    assert one.target({"a": 9, "b": 1}) == pytest.approx(2.2)
    one.save(tmp_path / "one.trial.json")
    two.save(tmp_path / "two.trial.json")
    assert load_trials(tmp_path) == (one, two)
    with pytest.raises(UsageError, match="one setting at a time"):
        rank([one, trial("large", 1.0, 1.0, size="small")])
    with pytest.raises(UsageError, match="`c` has no held-out loss"):
        one.target({"c": 1})


def test_what_is_no_trial_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="ablate"):
        load_trials(tmp_path)
    (tmp_path / "x.trial.json").write_text("{}")
    with pytest.raises(ConfigError, match=r"x\.trial\.json"):
        load_trial(tmp_path / "x.trial.json")
    with pytest.raises(UsageError, match="`b` is no finite loss"):
        trial("bad", 1.0, float("nan"))


def test_agreement_is_the_rank_correlation() -> None:
    losses = [(1.0, 1.5), (2.0, 1.0), (3.0, 3.0), (3.0, 2.0), (5.0, 2.0)]
    small = [trial(f"m{i}", s, s) for i, (s, _) in enumerate(losses)]
    large = [trial(f"m{i}", lg, lg, size="small") for i, (_, lg) in enumerate(losses)]
    expected = spearmanr([s for s, _ in losses], [lg for _, lg in losses]).statistic
    assert agreement(small, large) == (pytest.approx(float(expected)), 5)
    with pytest.raises(UsageError, match="at least 3"):
        agreement(small[:2], large)


TEMPLATE = """
[run]
name = "base"
corpus = "corpus/manifest.json"
seed = 7
[[phase]]
name = "all"
steps = 100
seq_len = 128
batch = 16
weights = { a = 1, "b.c" = 2 }
[domain.a]
cap = 4.0
at_cap = "redistribute"
[domain."b.c"]
cap = 2.0
"""


def test_a_candidate_is_the_template_with_its_name_and_weights() -> None:
    text = spec_text(TEMPLATE, name="sweep-1", weights={"a": 0.25, "b.c": 0.75}, place="RUN.toml")
    found, base = tomllib.loads(text), tomllib.loads(TEMPLATE)
    assert found["run"] == base["run"] | {"name": "sweep-1"}
    assert found["phase"] == [base["phase"][0] | {"weights": {"a": 0.25, "b.c": 0.75}}]
    assert found["domain"] == base["domain"]
    with pytest.raises(ConfigError, match="RUN"):
        spec_text("[run]\n", name="x", weights={}, place="RUN.toml")


def test_a_grid_varies_some_and_keeps_the_proportions_of_the_rest() -> None:
    found = grid({"web": 6, "code": 3, "math": 1}, {"math": [0.05, 0.3], "code": [0.0, 0.5]})
    assert list(found) == ["math-0.05+code-0", "math-0.05+code-0.5", "math-0.3+code-0", "math-0.3+code-0.5"]
    assert found["math-0.3+code-0.5"] == pytest.approx({"code": 0.5, "math": 0.3, "web": 0.2})
    assert grid({"a": 6, "b": 3, "c": 1}, {"c": [0.4]})["c-0.4"] == pytest.approx({"a": 0.4, "b": 0.2, "c": 0.4})
    assert grid({"a": 1, "b": 1}, {"a": [0.25], "b": [0.75]})["a-0.25+b-0.75"] == {"a": 0.25, "b": 0.75}
    for axes, said in (
        ({"web": [0.7], "code": [0.4]}, "`web-0.7+code-0.4` leaves more than the whole"),
        ({"web": [0.1], "code": [0.1], "math": [0.1]}, "that no other domain"),
        ({"books": [0.1]}, "`books`"),
        ({}, "no domain"),
        ({"web": []}, "0 mixtures"),
        ({"web": [0.1] * 40, "code": [0.1] * 40}, "1600 mixtures"),
        ({"web": [float("nan")]}, "`web`"),
    ):
        with pytest.raises(UsageError, match=re.escape(said)):
            grid({"web": 6, "code": 3, "math": 1}, axes)
