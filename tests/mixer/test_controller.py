"""Windows and decisions: guardrails, freezing, independence of ranks, the journal and its replay, MIXER.toml."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest
from headrace.mixer.config import Guardrails, MixerConfig, read_config
from headrace.mixer.controller import Decision, Window, decide, gather, start
from headrace.mixer.journal import Journal
from headrace.mixer.online import OnlineSpec
from headrace.mixer.reports import Measured, Report, add
from headrace.proto.errors import ConfigError, ConflictError, UsageError

EVEN = {"a": 0.4, "b": 0.4, "c": 0.2}


def config(folder: Path, **changes: object) -> MixerConfig:
    base = MixerConfig(run="r", server="s", folder=folder, mode="auto", method=OnlineSpec(eta=20.0))
    return dataclasses.replace(base, **changes)  # type: ignore[arg-type]


def steps(first: int, end: int, seed: int = 0, *, ranks: int = 1, slope: float = 0.001) -> list[Report]:
    """Reports of falling losses: `b` falls fastest."""
    rng, found = np.random.default_rng([seed, first]), []
    for step in range(first, end):
        whole = {}
        for name, speed in (("a", 1.0), ("b", 4.0), ("c", 0.0)):
            loss = 5.0 - slope * speed * step + 0.01 * float(rng.random())
            whole[name] = (loss, 64 * ranks)
        parts = [
            Report(step=step, domains={n: Measured(loss=loss * 64, tokens=64) for n, (loss, _) in whole.items()})
            for _ in range(ranks)
        ]
        found.append(add(parts))
    return found


def run(setup: MixerConfig, windows: int, seed: int = 0, ranks: int = 1) -> list[dict[str, float] | str]:
    state, weights, found = start(EVEN, 0, setup), dict(EVEN), []
    for index in range(windows):
        first, end = 100 * index, 100 * index + 100
        state, decision = decide(state, gather(steps(first, end, seed, ranks=ranks), first, end, weights), setup)
        found.append(dict(decision.mixture.weights) if decision.mixture else decision.kind)
        weights = dict(decision.mixture.weights) if decision.mixture else weights
    return found


def test_weights_follow_the_fastest_fall_within_the_guardrails(tmp_path: Path) -> None:
    setup = config(tmp_path, guardrails=Guardrails(largest_change=0.05, floor=0.01))
    found = run(setup, 6)
    assert found[0] == "hold"  # the first window has nothing to compare with
    previous = EVEN
    for weights in found[1:]:
        assert isinstance(weights, dict)
        assert max(abs(weights[name] - previous[name]) for name in EVEN) <= 0.05 + 1e-9
        assert min(weights.values()) >= 0.01 - 1e-12
        previous = weights
    assert previous["b"] > 0.55


def test_ranks_change_nothing_and_the_seed_does(tmp_path: Path) -> None:
    setup = config(tmp_path, method=OnlineSpec(eta=0.5))
    one, eight = run(setup, 4), run(setup, 4, ranks=8)
    for left, right in zip(one[1:], eight[1:], strict=True):
        assert left == pytest.approx(right, abs=1e-9)
    assert run(setup, 4) == one != run(setup, 4, seed=1)


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (lambda r: Report(step=r.step, domains={k: v for k, v in r.domains.items() if k != "b"}), "`b` has weight"),
        (
            lambda r: Report(step=r.step, domains=r.domains | {"b": Measured(loss=float("nan"), tokens=1)}),
            "`b` has weight",
        ),
        (lambda r: Report(step=r.step + 1000, domains=r.domains), "only 0 of 100 steps"),
        (lambda r: Report(step=r.step // 4, domains=r.domains), "only 25 of 100 steps"),
    ],
)
def test_a_window_that_cannot_be_trusted_freezes(tmp_path: Path, spoil: object, reason: str) -> None:
    setup = config(tmp_path)
    state = start(EVEN, 0, setup)
    state, _ = decide(state, gather(steps(0, 100), 0, 100, EVEN), setup)
    bad = [spoil(report) for report in steps(0, 100)]  # type: ignore[operator]
    after, decision = decide(state, gather(bad, 0, 100, EVEN), setup)
    assert decision.kind == "freeze"
    assert reason in decision.reason
    assert after.method == state.method


def test_one_bad_value_among_good_ones_is_left_out_not_fatal(tmp_path: Path) -> None:
    setup = config(tmp_path)
    reports = steps(0, 100)
    reports[7] = Report(step=7, domains=reports[7].domains | {"b": Measured(loss=float("inf"), tokens=64)})
    window = gather(reports, 0, 100, EVEN)
    assert window.report.domains["b"].tokens == 64 * 99
    assert decide(start(EVEN, 0, setup), window, setup)[1].kind == "hold"


def test_mostly_bad_values_of_one_domain_freeze(tmp_path: Path) -> None:
    setup, bad = config(tmp_path), Measured(loss=float("inf"), tokens=64)

    def decided(number: int, value: Measured = bad) -> Decision:
        spoilt = [
            Report(step=r.step, domains=r.domains | ({"b": value} if r.step < 100 + number else {}))
            for r in steps(100, 200)
        ]
        window = gather(spoilt, 100, 200, EVEN)
        assert Window.from_json(json.loads(json.dumps(window.to_json()))) == window
        state, _ = decide(start(EVEN, 0, setup), gather(steps(0, 100), 0, 100, EVEN), setup)
        return decide(state, window, setup)[1]

    assert decided(50).kind == "push"
    assert (decided(51).kind, decided(51).reason[:29]) == ("freeze", "51% of the losses of `b` in 1")
    assert decided(90, Measured(loss=0.0, tokens=0)).kind == "push"  # it was not in those batches


def test_a_push_that_is_slow_to_take_effect_is_waited_for(tmp_path: Path) -> None:
    """Else two changes could hold from one step, each as large as one may be."""
    setup = config(tmp_path)
    state, _ = decide(start(EVEN, 0, setup), gather(steps(0, 100), 0, 100, EVEN), setup)
    kinds = {}
    for pushed in (-1, 128, 150, 151, 228):
        after, decision = decide(state, gather(steps(100, 200), 100, 200, EVEN, pushed=pushed), setup)
        kinds[pushed] = decision.kind
        assert after.method.updates == 2
    assert kinds == {-1: "push", 128: "push", 150: "push", 151: "hold", 228: "hold"}


def test_epoch_caps_hold_for_the_whole_budget(tmp_path: Path) -> None:
    rails = Guardrails(max_epochs=4.0, budget=1000.0, largest_change=1.0)
    setup = config(tmp_path, guardrails=rails, tokens={"a": 1000.0, "b": 112.5, "c": 1000.0})
    pushed = [weights["b"] for weights in run(setup, 6) if isinstance(weights, dict)]
    assert pushed
    assert max(pushed) == pytest.approx(0.45)
    tight = config(tmp_path, guardrails=rails, tokens={"a": 1.0, "b": 1.0, "c": 1.0})
    assert run(tight, 2) == ["freeze", "freeze"]


def test_caps_count_what_was_served_already(tmp_path: Path) -> None:
    """4 epochs of 112.5 tokens are 450; 150 of them and 600 of 1,000 tokens are spent: 300 of the 400 left remain."""
    rails = Guardrails(max_epochs=4.0, budget=1000.0, largest_change=1.0)
    setup = config(tmp_path, guardrails=rails)
    sizes, served = {"a": 1000.0, "b": 112.5, "c": 1000.0}, {"a": 400.0, "b": 150.0, "c": 50.0}
    state, _ = decide(start(EVEN, 0, setup), gather(steps(0, 100), 0, 100, EVEN, served=served, sizes=sizes), setup)

    def second(**facts: dict[str, float]) -> Decision:
        return decide(state, gather(steps(100, 200), 100, 200, EVEN, **facts), setup)[1]  # type: ignore[arg-type]

    window = gather(steps(100, 200), 100, 200, EVEN, served=served, sizes=sizes)
    assert Window.from_json(json.loads(json.dumps(window.to_json()))) == window
    found = second(served=served, sizes=sizes).mixture
    assert found is not None
    assert found.weights["b"] == pytest.approx(0.75)
    spent = second(served=served | {"b": 450.0}, sizes=sizes).mixture
    assert spent is not None
    assert spent.weights["b"] == 0.0  # its epochs are used up
    over = second(served=served | {"a": 900.0}, sizes=sizes)
    assert (over.kind, "is spent" in over.reason) == ("freeze", True)
    unknown = second(served=served, sizes={"a": 1000.0, "b": 112.5})
    assert (unknown.kind, "tokens of `c` are not known" in unknown.reason) == ("freeze", True)


def test_late_windows_teach_but_do_not_push(tmp_path: Path) -> None:
    setup = config(tmp_path)
    state, _ = decide(start(EVEN, 0, setup), gather(steps(0, 100), 0, 100, EVEN), setup)
    after, decision = decide(state, gather(steps(100, 200), 100, 200, EVEN, late=True), setup)
    assert decision.kind == "hold"
    assert after.method.updates == 2


def test_a_domain_that_joins_or_is_switched_off(tmp_path: Path) -> None:
    setup = config(tmp_path, guardrails=Guardrails(floor=0.01, largest_change=1.0))
    state, _ = decide(start(EVEN, 0, setup), gather(steps(0, 100), 0, 100, EVEN), setup)
    joined = {"a": 0.4, "b": 0.4, "c": 0.0, "d": 0.2}
    reports = [
        Report(step=r.step, domains={**r.domains, "d": Measured(loss=100.0, tokens=64)}) for r in steps(100, 200)
    ]
    _, decision = decide(state, gather(reports, 100, 200, joined), setup)
    assert decision.mixture is not None
    assert decision.mixture.weights["c"] == 0.0
    assert set(decision.mixture.weights) == set(joined)


def test_a_journal_survives_a_torn_line_and_has_one_writer(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    window = gather(steps(0, 100), 0, 100, EVEN)
    with Journal(path) as journal:
        journal.append({"kind": "window", "window": window.to_json()})
        with pytest.raises(ConflictError, match="another mixer"):
            Journal(path)
    with path.open("ab") as stream:
        stream.write(b'{"kind": "dec')
    with Journal(path) as journal:
        assert journal.torn == 13
        assert [Window.from_json(entry["window"]) for entry in journal.entries()] == [window]
    path.write_text('{"kind": "window"}\nnonsense\n')
    with Journal(path) as journal, pytest.raises(ConfigError, match="line 2"):
        list(journal.entries())


GOOD = """
[mixer]
run = "pretrain-1"
server = "127.0.0.1:7750"
method = "online"
mode = "propose"
[method]
rule = "odm"
beta = 0.5
[guardrails]
largest_change = 0.05
max_epochs = 4.0
budget = "80B"
[tokens]
deu = "12B"
"""


def test_a_whole_configuration(tmp_path: Path) -> None:
    path = tmp_path / "MIXER.toml"
    path.write_text(GOOD)
    found = read_config(path)
    assert (found.method.rule, found.method.beta, found.mode) == ("odm", 0.5, "propose")
    assert (found.guardrails.budget, found.tokens) == (80e9, {"deu": 12e9})
    assert found.folder == tmp_path / "mixer"
    assert found.window(lead=8) == 100
    assert found.window(lead=500) == 500
    assert found.bounds({"deu": 1.0}).caps == {"deu": pytest.approx(0.6)}
    assert found.bounds({"deu": 1.0}, {"deu": 40e9}).caps == {"deu": pytest.approx(0.2)}
    assert (found.tls, found.metrics) == (None, "")
    path.write_text(GOOD.replace("[mixer]", '[mixer]\ntls_ca = "ca.pem"\nmetrics = "127.0.0.1:0"'))
    secured = read_config(path)
    assert secured.tls is not None
    assert (secured.tls.ca, secured.metrics) == (tmp_path / "ca.pem", "127.0.0.1:0")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('run = "pretrain-1"', "", "`run` is missing"),
        ('method = "online"', 'method = "krls"', "the only method"),
        ('mode = "propose"', 'mode = "yolo"', "choose `propose` or `auto`"),
        ("largest_change = 0.05", "largest_change = nan", "largest_change"),
        ("largest_change = 0.05", "largest_step = 0.05", "unknown key `largest_step`"),
        ('budget = "80B"', "", "needs budget"),
        ('budget = "80B"', 'budget = "lots"', "no number of tokens"),
        ("[mixer]", '[mixer]\nmetrics = "7752"', "write host:port"),
        ("[mixer]", '[mixer]\ntls_cert = "c.pem"', "go together"),
        ("[mixer]", "[mixer]\ntls_ca = 3", "no str"),
        ("beta = 0.5", "beta = 1.5", "beta is 1.5"),
        ("beta = 0.5", 'beta = "x"', "no float"),
        ("[mixer]", "[mixer", "cannot be read"),
        ("[mixer]", "[mixer]\ninterval = 5", "at least 100"),
    ],
)
def test_mistakes_in_it_are_named(tmp_path: Path, old: str, new: str, message: str) -> None:
    path = tmp_path / "MIXER.toml"
    path.write_text(GOOD.replace(old, new))
    with pytest.raises(ConfigError, match=message):
        read_config(path)


def test_window_json_is_lossless(tmp_path: Path) -> None:
    window = gather(steps(0, 100), 0, 100, EVEN)
    assert Window.from_json(json.loads(json.dumps(window.to_json()))) == window
    with pytest.raises(UsageError):
        Guardrails(coverage=0)
