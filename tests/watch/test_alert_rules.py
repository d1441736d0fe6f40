"""The shipped rules, runbook, example and dashboard hold together; promtool proves each alert both ways."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import prometheus
import pytest
from headrace.server.watch.attention import OFF_TARGET

FOLDER = prometheus.RULES.parent
ALERTS = re.findall(r"- alert: (\w+)", prometheus.RULES.read_text())
DASHBOARD = prometheus.ROOT / "deploy" / "grafana"


def test_rules_are_good_and_each_fires_and_does_not() -> None:
    for words in (
        ("check", "rules", "--lint=all", "--lint-fatal", prometheus.RULES),
        ("check", "config", FOLDER / "prometheus.yml"),
        ("test", "rules", FOLDER / "headrace.test.yml"),
    ):
        done = prometheus.promtool(*words)
        assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("alert", ALERTS)
def test_the_proof_notices_an_alert_that_never_fires_or_always(alert: str, tmp_path: Path) -> None:
    shutil.copy(FOLDER / "headrace.test.yml", tmp_path)
    rules = prometheus.RULES.read_text()
    pattern = re.compile(rf"(- alert: {alert}\n        expr: )(.*?)(?=\n        (?:for|labels):)", re.S)
    assert pattern.search(rules)
    for expr in ("vector(1) > 2", "vector(1)"):
        (tmp_path / "headrace.rules.yml").write_text(pattern.sub(rf"\g<1>{expr}", rules))
        assert prometheus.promtool("test", "rules", tmp_path / "headrace.test.yml").returncode != 0, expr


def test_every_alert_has_its_runbook_text() -> None:
    runbook = (FOLDER / "runbook.md").read_text()
    sections = re.split(r"^## ", runbook, flags=re.M)[1:]
    texts = {section.split("\n", 1)[0]: section for section in sections}
    assert set(texts) == set(ALERTS)
    for alert, text in texts.items():
        assert all(f"**{part}**" in text for part in ("Meaning.", "Meanwhile.", "Do.")), alert
    links = re.findall(r"runbook: runbook\.md#(\w+)", prometheus.RULES.read_text())
    assert links == [alert.lower() for alert in ALERTS]


def test_the_page_and_the_rule_mean_the_same_by_off_target() -> None:
    assert f"> {OFF_TARGET}" in prometheus.RULES.read_text()


def test_dashboard_is_what_its_script_makes() -> None:
    done = subprocess.run([sys.executable, DASHBOARD / "make_dashboard.py", "--check"], check=False)
    assert done.returncode == 0
    made = json.loads((DASHBOARD / "headrace.json").read_text())
    numbers = [panel["id"] for panel in made["panels"]]
    assert len(numbers) == len(set(numbers))
    assert all(panel["type"] == "row" or panel["description"] for panel in made["panels"])
    places = {(p["gridPos"]["x"], p["gridPos"]["y"]) for p in made["panels"]}
    assert len(places) == len(numbers)
