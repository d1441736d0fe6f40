"""What `/metrics` says: figures of the stream from confirmed steps, figures of the service from this process."""

from __future__ import annotations

import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families
from rig import Raw, ServerProcess, Trainer, serving, write_run

Series = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def scrape(server: ServerProcess) -> Series:
    text = urllib.request.urlopen(f"http://127.0.0.1:{server.metrics_port}/metrics", timeout=10).read().decode()
    families = text_string_to_metric_families(text)
    return {(s.name, tuple(sorted(s.labels.items()))): s.value for family in families for s in family.samples}


def of_domains(series: Series, name: str, run: str) -> dict[str, float]:
    return {
        dict(labels)["domain"]: value for (n, labels), value in series.items() if n == name and ("run", run) in labels
    }


def test_realized_figures_count_each_confirmed_step_once(tmp_path: Path, corpus: Path) -> None:
    with serving(tmp_path, [write_run(tmp_path, corpus)]) as server:
        with Raw(server.address) as raw:
            before = scrape(server)
            assert set(of_domains(before, "headrace_served_share_ratio", "r").values()) == {0.0}
            trainer = Trainer(raw).open().take(40)
            trainer.settle()
            once = scrape(server)
            for step in range(20, 40):  # read again, as after a crash
                trainer.fetch(step)
            twice = scrape(server)
        server.kill()
        server.start()
        restarted = scrape(server)
    for name in ("headrace_served_tokens_total", "headrace_domain_epochs", "headrace_served_share_ratio"):
        assert of_domains(once, name, "r") == of_domains(twice, name, "r") == of_domains(restarted, name, "r")
    tokens = of_domains(once, "headrace_served_tokens_total", "r")
    assert sum(tokens.values()) == pytest.approx(40 * 8 * 32, rel=0.02)
    shares = of_domains(once, "headrace_served_share_ratio", "r")
    assert sum(shares.values()) == pytest.approx(1)
    for domain, target in of_domains(once, "headrace_target_weight_ratio", "r").items():
        assert shares[domain] == pytest.approx(target, abs=0.02)
    window, due = (of_domains(once, f"headrace_window_{name}_ratio", "r") for name in ("share", "target"))
    assert window == pytest.approx(shares)  # the run is shorter than the window
    assert due == pytest.approx(of_domains(once, "headrace_target_weight_ratio", "r"), abs=1e-6)
    assert not of_domains(once, "headrace_domain_remaining_tokens", "r")
    run = (("run", "r"),)
    assert once["headrace_confirmed_step", run] == 40
    assert once["headrace_seal_step", run] == 48
    assert once["headrace_batches_total", run] == 40
    assert twice["headrace_batches_total", run] == 60
    assert restarted.get(("headrace_batches_total", run), 0.0) == 0.0


def test_series_are_bounded_and_hostile_calls_make_none(
    raw: Raw, server: ServerProcess, make_run: Callable[..., str]
) -> None:
    trainer = Trainer(raw, run=make_run()).open().take(2)
    before = set(scrape(server))
    for attempt in range(1, 20):
        Trainer(raw, run=trainer.run, attempt=attempt, rank=f"rank-{attempt}").open().take(1)
    after = set(scrape(server))
    assert after == before
    assert not any(name.endswith("_created") for name, _ in after)
