"""RUN.toml: what is read, and that every mistake names file, line, key and remedy."""

from __future__ import annotations

import re
from dataclasses import fields
from decimal import Decimal
from pathlib import Path

import pytest
from headrace.proto.errors import ConfigError, UsageError
from headrace.server.plan.plan import Plan
from headrace.server.plan.read import _PHASE_KEYS, read_changes
from headrace.server.plan.spec import AT_CAP, CURVES, DRAWS, KINDS, ORDERS, PACKINGS, RunSpec
from small import facts

SMALLEST = """\
[run]
name = "pretrain-1"
corpus = "corpus/manifest.json"
seed = 1234
[[phase]]
name = "stable"
steps = 40_000
seq_len = 4096
batch = 512
weights = { deu = 0.3, web-fra = 0.7 }
[domain.deu]
cap = 4.0
at_cap = "redistribute"
"""


def read(text: str) -> RunSpec:
    return RunSpec.from_toml(text, place="RUN.toml")


def test_the_smallest_file() -> None:
    spec = read(SMALLEST)
    assert (spec.name, spec.corpus, spec.seed, spec.lead, spec.draw) == (
        "pretrain-1",
        "corpus/manifest.json",
        1234,
        8,
        "balanced",
    )
    assert (spec.phases[0].steps, spec.phases[0].batch) == (40_000, 512)
    assert dict(spec.phases[0].points[0].weights) == {"deu": 0.3, "web-fra": 0.7}
    assert spec.domains["deu"].cap == Decimal("4.0")
    assert spec.shapes() == {(4096, "concat")}


def test_tokens_are_rounded_up_to_whole_steps() -> None:
    for text, steps in (
        ('tokens = "80B"', 38147),
        ("tokens = 1", 1),
        ('tokens = "1.5M"', 1),
        ('tokens = "4194305"', 3),
    ):
        assert read(SMALLEST.replace("steps = 40_000", text)).phases[0].steps == steps


def test_batch_tokens() -> None:
    assert read(SMALLEST.replace("batch = 512", 'batch_tokens = "2_097_152"')).phases[0].batch == 512
    with pytest.raises(ConfigError, match=r"RUN.toml:9: .*4096 does not divide; 1998848 or 2002944 would do"):
        read(SMALLEST.replace("batch = 512", 'batch_tokens = "2M"'))


def test_a_schedule() -> None:
    schedule = "schedule = [{ at = 0, weights = { deu = 1 }, curve = 'cosine' }, { at = 9, weights = { web-fra = 1 } }]"
    points = read(SMALLEST.replace("weights = { deu = 0.3, web-fra = 0.7 }", schedule)).phases[0].points
    assert [(point.at, point.curve) for point in points] == [(0, "cosine"), (9, "hold")]


def test_a_domain_called_no_stays_a_name() -> None:
    assert read(SMALLEST.replace("deu = 0.3", "no = 0.3")).phases[0].points[0].weights["no"] == 0.3


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("seed = 1234", "sed = 1234", r"RUN.toml:4: `run.seed` is missing; did you mean it by `sed`\?"),
        ("seed = 1234", "seed = 1234\nsead = 1", r"RUN.toml:5: unknown key `run.sead`; did you mean `seed`\?"),
        (
            "seed = 1234",
            "seed = 1\nsteps = 3",
            r"RUN.toml:5: unknown key `run.steps`; it belongs under `\[\[phase\]\]`",
        ),
        (
            "seed = 1234",
            "seed = 1\nzzzz = 3",
            r"RUN.toml:5: unknown key `run.zzzz`; known here: block_tokens, corpus, draw",
        ),
        (
            "weights = { deu = 0.3, web-fra = 0.7 }",
            "schedule = [{ at = 0, weights = { deu = 1 }, curve = 'cosine' }]",
            r"RUN.toml:10: .*the last point of its `schedule` has no next one",
        ),
        ("steps = 40_000", 'steps = 4\ntokens = "1B"', r"RUN.toml:8: .*either `steps` or `tokens`; both"),
        ("seed = 1234", "seed = -1", r"RUN.toml:4: `run.seed` must be from 0 to"),
        ("seed = 1234", "seed = 1.5", r"RUN.toml:4: `run.seed` must be a whole number"),
        ("seed = 1234", "seed = true", r"RUN.toml:4: `run.seed` must be a whole number"),
        ("seed = 1234", "seed = ", r"RUN.toml: not valid TOML: .*line 4"),
        ("steps = 40_000", "steps = 0", r"RUN.toml:7: `phase.steps` must be from 1"),
        ("steps = 40_000", "", r"RUN.toml:5: .*either `steps` or `tokens`; neither"),
        ("steps = 40_000", 'tokens = "eighty"', r"RUN.toml:7: `phase.tokens` must be a whole number above 0"),
        ("steps = 40_000", "tokens = nan", r"RUN.toml:7: `phase.tokens` must be a whole number above 0"),
        ("0.3,", "-0.3,", r"RUN.toml:10: weight of `deu` must be a finite number of at least 0, not `-0.3`"),
        ("0.3,", "nan,", r"RUN.toml:10: weight of `deu` must be a finite number"),
        ("0.3,", "inf,", r"RUN.toml:10: weight of `deu` must be a finite number"),
        ("0.3,", "'0.3',", r"RUN.toml:10: weight of `deu` must be a finite number"),
        ("0.3,", "true,", r"RUN.toml:10: weight of `deu` must be a finite number"),
        ("0.3,", "1e999,", r"RUN.toml:10: weight of `deu` is too large"),
        ("{ deu = 0.3, web-fra = 0.7 }", "{}", r"RUN.toml:10: .*must give some domain a weight above 0"),
        ("[[phase]]", "[phase]", r"RUN.toml:5: `phase` must be a list of tables, `\[phase\]` is one table; write"),
        ("[run]", "[[run]]", r"RUN.toml:1: `run` must be a table, .*; write `\[run\]`, with single brackets"),
        ("{ deu = 0.3, web-fra = 0.7 }", "[0.3, 0.7]", r"RUN.toml:10: `phase.weights` must be a table"),
        ("{ deu = 0.3, web-fra = 0.7 }", "{ 'co de' = 1 }", r"RUN.toml:10: `co de` is not a domain name"),
        ('name = "stable"', 'name = "sta ble"', r"RUN.toml:6: `sta ble` is not a name"),
        ("cap = 4.0", "cap = 0", r"RUN.toml:12: `domain.deu.cap` must be above 0 epochs"),
        ("cap = 4.0", "cap = inf", r"RUN.toml:12: `domain.deu.cap` must be a finite number"),
        ('"redistribute"', '"renormalise"', r"RUN.toml:13: `domain.deu.at_cap` must be one of redistribute, stop"),
        ("[domain.deu]", "[domian.deu]", r"RUN.toml:11: unknown key `domian`; did you mean `domain`\?"),
        ("seq_len = 4096", 'seq_len = 4096\npacking = "bestfit"', r"RUN.toml:9: `phase.packing` must be one of concat"),
    ],
)
def test_mistakes_name_line_and_remedy(old: str, new: str, message: str) -> None:
    assert old in SMALLEST
    with pytest.raises(ConfigError, match=message):
        read(SMALLEST.replace(old, new, 1))


def test_phases_need_different_names() -> None:
    again = SMALLEST[SMALLEST.index("[[phase]]") : SMALLEST.index("[domain")]
    with pytest.raises(ConfigError, match="no two of one name"):
        read(SMALLEST + again)


def test_the_line_of_a_second_phase() -> None:
    again = SMALLEST[SMALLEST.index("[[phase]]") : SMALLEST.index("[domain")].replace("stable", "long")
    with pytest.raises(ConfigError, match=re.escape("RUN.toml:18: `phase.batch` must be from 1")):
        read(SMALLEST + again.replace("batch = 512", "batch = 0"))


# ---- documents and digests


def test_json_round_trip_is_canonical() -> None:
    spec = read(SMALLEST)
    assert RunSpec.from_json(spec.to_json()) == spec
    assert RunSpec.from_json(spec.to_json()).to_json() == spec.to_json()
    big = read(SMALLEST.replace("1234", str((1 << 63) - 1)))
    assert RunSpec.from_json(big.to_json()).seed == (1 << 63) - 1


def test_another_plan_version_is_refused_in_words() -> None:
    text = read(SMALLEST).to_json().replace('"plan_version":1', '"plan_version":99')
    with pytest.raises(UsageError, match="plan version 99"):
        RunSpec.from_json(text)


@pytest.mark.parametrize(
    ("old", "new", "same"),
    [
        ("pretrain-1", "other", True),
        ("corpus/manifest.json", "elsewhere/manifest.json", True),
        ("seed = 1234", "seed = 1234\nlead = 99", True),
        ('"stable"', '"steady"', True),
        ("cap = 4.0", "cap = 4.00", True),
        ("seed = 1234", "seed = 1235", False),
        ("steps = 40_000", "steps = 40_001", False),
        ("batch = 512", "batch = 256", False),
        ("0.3,", "0.31,", False),
        ("cap = 4.0", "cap = 4.1", False),
        ("redistribute", "stop", False),
        ("seed = 1234", 'seed = 1234\ndraw = "multinomial"', False),
    ],
)
def test_the_digest_covers_what_decides_the_stream(old: str, new: str, same: bool) -> None:
    digest = read(SMALLEST).digest(bytes(32))
    assert len(digest) == 32
    assert (read(SMALLEST.replace(old, new, 1)).digest(bytes(32)) == digest) is same


def test_the_digest_covers_the_corpus() -> None:
    assert read(SMALLEST).digest(bytes(32)) != read(SMALLEST).digest(b"x" * 32)


# ---- spec and corpus together


def test_a_domain_that_the_corpus_has_not_is_named() -> None:
    with pytest.raises(UsageError, match=r"names domain `web-fra`, which corpus .* has not; it has deu"):
        Plan(read(SMALLEST), facts({"deu": 10**6}, 4096))


def test_weight_for_a_view_without_windows_is_refused() -> None:
    corpus = facts({"deu": 10**6, "web-fra": 10**6}, 512)
    with pytest.raises(UsageError, match="phase `stable` gives domain `deu` a weight, but it has no window of 4096"):
        Plan(read(SMALLEST), corpus).draw(0)


def test_a_weight_that_rounds_to_no_share_is_refused() -> None:
    spec = read(SMALLEST.replace("0.3,", "1e-320,"))
    with pytest.raises(UsageError, match=r"weight of `deu` in phase `stable` .* never be served; give it more, or 0"):
        Plan(spec, facts({"deu": 10**6, "web-fra": 10**6}, 4096)).draw(0)


# ---- changes of a branch


def test_changes_are_phases_and_policies() -> None:
    tables = SMALLEST[SMALLEST.index("[[phase]]") :]
    changes = read_changes(tables, place="changes.toml")
    assert changes.phases == read(SMALLEST).phases
    assert changes.domains == read(SMALLEST).domains
    assert read_changes("", place="changes.toml").phases is None
    with pytest.raises(ConfigError, match=r"changes.toml:1: unknown key `run`"):
        read_changes(SMALLEST, place="changes.toml")


def test_the_page_has_every_key_and_its_file_is_read() -> None:
    page = (Path(__file__).parents[2] / "server/plan/README.md").read_text(encoding="utf-8")
    (example,) = re.findall(r"```toml\n(.*?)```", page, re.DOTALL)
    spec = read(example)
    assert [len(phase.points) for phase in spec.phases] == [1, 2]
    keys = {field.name for field in fields(RunSpec)} - {"phases", "domains", "branch"}
    for word in (*keys, *_PHASE_KEYS, "cap", "at_cap", *DRAWS, *ORDERS, *PACKINGS, *KINDS, *CURVES, *AT_CAP):
        assert re.search(rf"\b{word}\b", example), word
