"""The watch in a real server: figures on /metrics from confirmed steps, and a generation that drifts is caught."""

from __future__ import annotations

import json
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import planted
import pytest
from prometheus_client.parser import text_string_to_metric_families
from rig import Raw, ServerProcess, Trainer, serving

RUN = """
[run]
name = "r"
corpus = "{corpus}"
seed = 3
[[phase]]
name = "p"
steps = 4000
seq_len = 256
batch = 32
weights = {{ d = 1.0 }}
"""
DRIFT = "[drift]\nsteps = 8\none_in = 1\nduty = 1.0\n"

Key = tuple[str, str]


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> planted.Bench:
    return planted.Bench(tmp_path_factory.mktemp("live"))


@pytest.fixture
def server(bench: planted.Bench, tmp_path: Path) -> Iterator[ServerProcess]:
    run = tmp_path / "RUN.toml"
    run.write_text(RUN.format(corpus=bench.corpus.root / "manifest.json"))
    with serving(tmp_path, [run], extra=DRIFT) as started:
        yield started


def samples(server: ServerProcess, name: str) -> dict[Key, float]:
    text = urllib.request.urlopen(f"http://127.0.0.1:{server.metrics_port}/metrics", timeout=10).read().decode()
    return {
        (sample.labels.get("feature", ""), sample.labels.get("against", "")): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name == name
    }


def looked_at(server: ServerProcess) -> float:
    counts = (samples(server, f"headrace_drift_{name}_total") for name in ("intervals", "skipped_intervals"))
    return sum(sum(count.values()) for count in counts)


def train(trainer: Trainer, server: ServerProcess, intervals: int) -> None:
    """Takes the steps of some intervals, each looked at before the next."""
    for _ in range(intervals):
        before = looked_at(server)
        trainer.take(8).settle()
        until = time.monotonic() + 30
        while looked_at(server) == before:
            assert time.monotonic() < until, server.log.read_text()[-2000:]
            time.sleep(0.1)


def test_a_generation_in_another_script_is_caught(bench: planted.Bench, server: ServerProcess) -> None:
    grown = bench.built("grown", planted.mixed_in("cyr", 0.5))
    with Raw(server.address) as raw:
        trainer = Trainer(raw).open()
        train(trainer, server, 4)
        assert set(samples(server, "headrace_drift_alarm").values()) == {0.0}
        assert {feature for feature, _ in samples(server, "headrace_drift_jsd")} >= {"script", "document_length"}
        raw("GrowDomain", run="r", domain="d", manifest=str(grown.root / "manifest.json"), join="now", author="test")
        train(trainer, server, 4)
    alarms = samples(server, "headrace_drift_alarm")
    assert alarms["script", "reference"] == alarms["script", "previous"] == 1.0
    jsd, floor = samples(server, "headrace_drift_jsd"), samples(server, "headrace_drift_noise_floor")
    assert jsd["script", "reference"] > 10 * floor["script", "reference"]
    assert "drifts: script of steps" in server.log.read_text()
    page = urllib.request.urlopen(f"http://127.0.0.1:{server.metrics_port}/api/runs/r", timeout=10).read()
    assert any(figure["alarm"] and figure["feature"] == "script" for figure in json.loads(page)["drift"])
