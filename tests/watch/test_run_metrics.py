"""Families at the edges: hostile names, a thousand domains, many runs, nothing served yet; parsed by promtool."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import prometheus
import pytest
from headrace.server.service.figures import DomainFigures, RunFigures, folded
from headrace.server.service.metrics import Losses, Metrics
from headrace.server.service.run_metrics import DriftState, RunCollector, Watched, domains_of_each
from headrace.server.watch.drift.features import FEATURES
from headrace.server.watch.drift_figures import DriftFigure
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families

HOSTILE = ['say "hi"', "two\nlines", "back\\slash", "‮rtl שלום", "x" * 10_240, "", '{a="b"}', "é\u0000", "\ud7ff𝔘"]
BUDGET = 5000


def domain(name: str, number: int) -> DomainFigures:
    return DomainFigures(
        name=name,
        target=0.001,
        share=0.001,
        window_target=0.001,
        window_share=0.0,
        tokens=1000 + number,
        epochs=0.5,
        cap=4.0,
        tokens_left=5.0,
    )


def run(name: str, domains: Iterable[DomainFigures]) -> RunFigures:
    return RunFigures(
        name=name,
        kind="train",
        seal=8,
        confirmed=0,
        end=100,
        lead=8,
        segment=0,
        slowest_rank=0,
        ranks=0,
        world=0,
        tolerance=1.0,
        changed=0.0,
        store_up=True,
        store_writable=True,
        seal_blocked=False,
        missing=False,
        events={"weights": 3, "mask": 1},
        masks={"shard": 1},
        read=10,
        rejected={"empty": 2, "filtered": 1},
        domains=tuple(domains),
    )


def drift(run_name: str, names: Iterable[str]) -> DriftState:
    figures = tuple(
        DriftFigure(
            run=run_name,
            domain=name,
            feature=feature,
            against=against,  # type: ignore[arg-type]
            jsd=0.01,
            psi=0.05,
            floor=0.01 / (1 + number),
            samples=64,
            from_step=0,
            to_step=32,
            alarm=False,
        )
        for number, name in enumerate(names)
        for feature in FEATURES
        for against in ("reference", "previous")
    )
    return DriftState(figures=figures, intervals=3)


def exposed(watched: list[Watched]) -> str:
    metrics = Metrics("1")
    metrics.registry.register(RunCollector(lambda: watched, lambda: 1.9e9))
    for each in watched[:1]:
        for method in [f"Method{number}" for number in range(20)]:
            metrics.handled(method, "OK", 0.1)
        metrics.served(each.run.name, 100, 0.1)
    return generate_latest(metrics.registry).decode()


def watch(run_name: str, names: list[str]) -> Watched:
    figures = run(run_name, folded([domain(name, number) for number, name in enumerate(names)], domains_of_each(1)))
    return Watched(run=figures, drift=drift(run_name, names), losses=dict.fromkeys(names, 2.5))


def values(text: str) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_hostile_names_stay_parseable() -> None:
    text = exposed([watch('run "of"\nlines', HOSTILE)])
    found = {dict(labels).get("domain") for (name, labels) in values(text) if name == "headrace_target_weight_ratio"}
    assert found == set(HOSTILE)
    done = prometheus.promtool("check", "metrics", stdin=text)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


def test_a_thousand_domains_stay_within_the_budget() -> None:
    names = [f"domain-{number:04}" for number in range(1000)]
    text = exposed([watch("r", names)])
    found = values(text)
    assert 2000 < len(found) <= BUDGET
    assert prometheus.promtool("check", "metrics", stdin=text).returncode == 0
    targets = {dict(labels)["domain"]: value for (name, labels), value in found.items() if "target_weight" in name}
    assert len(targets) == 257
    assert targets["other"] == pytest.approx(744 * 0.001)
    assert sum(targets.values()) == pytest.approx(1)
    tokens = [value for (name, _), value in found.items() if name == "headrace_served_tokens_total"]
    assert sum(tokens) == sum(1000 + number for number in range(1000))
    worst = [value for (name, labels), value in found.items() if name == "headrace_drift_noise_floor"]
    assert len(worst) == 257
    assert min(worst) == pytest.approx(0.01 / 1000)  # the worst of the domains in `other`


def test_many_runs_share_the_budget() -> None:
    names = [f"d{number}" for number in range(200)]
    most = domains_of_each(12)
    runs = []
    for number in range(12):
        figures = run(f"run-{number}", folded([domain(name, place) for place, name in enumerate(names)], most))
        runs.append(Watched(run=figures, drift=drift(f"run-{number}", names), losses={}))
    assert len(values(exposed(runs))) <= BUDGET


def test_nothing_is_ever_nan() -> None:
    text = exposed([Watched(run=run("r", [domain("a", 0)]), drift=DriftState(), losses={})])
    assert not [key for key, value in values(text).items() if np.isnan(value)]
    assert "headrace_domain_loss_nats{" not in text


def test_waits_of_ranks_are_counted_from_the_first_word_on() -> None:
    metrics = Metrics("1")
    for token, waited_us in [
        (b"a", 5_000_000),
        (b"b", 1_000_000),
        (b"a", 7_000_000),
        (b"b", 1_500_000),
        (b"a", 6_000_000),
    ]:
        metrics.waited("r", token, waited_us, 0)
    (total,) = [
        value
        for (name, _), value in values(generate_latest(metrics.registry).decode()).items()
        if name == "headrace_trainer_wait_seconds_total"
    ]
    assert total == pytest.approx(2.5)


def test_losses_are_means_over_the_newest_steps() -> None:
    losses = Losses()
    assert losses.mean("r", "a") is None
    for step in range(20):
        losses.add("r", "a", step, 10.0 if step >= 12 else 1e9, 4)
        losses.add("r", "a", step, 2.0 if step >= 12 else 1e9, 2)
    assert losses.mean("r", "a") == pytest.approx(2.0)
