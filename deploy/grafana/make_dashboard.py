"""Writes the Grafana dashboard beside this file: `python deploy/grafana/make_dashboard.py [--check]`.

The JSON is plain and committed; `--check` says whether it is what this file makes. Panels are rows of (title, unit,
description, queries), and each query is a PromQL expression with its legend.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

TARGET = Path(__file__).resolve().parent / "headrace.json"
SOURCE = {"type": "prometheus", "uid": "${datasource}"}
RUN = '{run=~"$run"}'
Query = tuple[str, str]
Panel = tuple[str, str, str, list[Query]]

ROWS: list[tuple[str, list[Panel]]] = [
    (
        "The run",
        [
            ("Steps", "none", "Confirmed and sealed steps; the seal is at most `lead` ahead.",
             [(f"headrace_confirmed_step{RUN}", "{{run}} confirmed"), (f"headrace_seal_step{RUN}", "{{run}} seal")]),
            ("Steps a minute", "none", "How fast steps are confirmed.",
             [(f"60 * deriv(headrace_confirmed_step{RUN}[1m])", "{{run}}")]),
            ("Seal ahead of confirmed", "none", "0 while ranks are open means that trainers wait.",
             [(f"headrace_seal_step{RUN} - headrace_confirmed_step{RUN}", "{{run}} ahead"),
              (f"headrace_lead_steps{RUN}", "{{run}} lead")]),
            ("Slowest rank behind", "none", "Steps that the furthest confirmed one is ahead of the slowest rank.",
             [(f"headrace_confirmed_step{RUN} - headrace_slowest_rank_step{RUN}", "{{run}}")]),
            ("Ranks", "none", "Ranks that hold the lease, and those the attempt has.",
             [(f"headrace_open_ranks{RUN}", "{{run}} open"), (f"headrace_world_ranks{RUN}", "{{run}} world")]),
            ("Time that ranks wait", "percentunit", "Part of the ranks' time spent waiting for batches.",
             [(f"rate(headrace_trainer_wait_seconds_total{RUN}[5m]) / "
               f"on (job, instance, run) clamp_min(headrace_open_ranks{RUN}, 1)", "{{run}}")]),
            ("Stalls", "none", "Waits that ranks found too long.",
             [(f"headrace_trainer_stalls_total{RUN}", "{{run}}")]),
            ("State", "none", "Control store, its writes, the seal, generations: 1 is good.",
             [(f"headrace_store_up{RUN}", "{{run}} store up"), (f"headrace_store_writable{RUN}", "{{run}} writable"),
              (f"1 - headrace_seal_blocked{RUN}", "{{run}} seal free"),
              (f"1 - headrace_generation_missing{RUN}", "{{run}} generations here")]),
        ],
    ),
    (
        "Mixture",
        [
            ("Share over the last 256 steps", "percentunit", "Realized, from confirmed steps only.",
             [(f"headrace_window_share_ratio{RUN}", "{{domain}}")]),
            ("Target", "percentunit", "Of the first unsealed step, before caps.",
             [(f"headrace_target_weight_ratio{RUN}", "{{domain}}")]),
            ("Share minus target, last 256 steps", "percentunit", "Beyond 2 points for 10 minutes is an alert.",
             [(f"headrace_window_share_ratio{RUN} - headrace_window_target_ratio{RUN}", "{{domain}}"),
              (f"headrace_share_tolerance_ratio{RUN}", "{{run}} tolerance")]),
            ("Share so far", "percentunit", "Realized from the first step on.",
             [(f"headrace_served_share_ratio{RUN}", "{{domain}}")]),
            ("Epochs", "none", "Tokens served over tokens in the domain.",
             [(f"headrace_domain_epochs{RUN}", "{{domain}}"), (f"headrace_domain_cap_epochs{RUN}", "{{domain}} cap")]),
            ("Tokens left to the cap", "short", "Of domains that have one.",
             [(f"headrace_domain_remaining_tokens{RUN}", "{{domain}}")]),
            ("Tokens a second", "short", "Real tokens in confirmed steps.",
             [(f"deriv(headrace_served_tokens_total{RUN}[1m])", "{{domain}}")]),
            ("Loss", "none", "Mean over the last 8 reported steps, nats a token.",
             [(f"headrace_domain_loss_nats{RUN}", "{{domain}}")]),
            ("Segment", "none", "Rises with each change of weights.", [(f"headrace_segment{RUN}", "{{run}}")]),
            ("Time since the weights changed", "s", "A mixer that is stale shows here.",
             [(f"time() - headrace_weights_changed_timestamp_seconds{RUN}", "{{run}}")]),
        ],
    ),
    (
        "Drift",
        [
            ("JSD over its noise floor", "none", "Above 2, and JSD above the threshold, twice in a row: an alarm.",
             [(f"headrace_drift_jsd{RUN} / clamp_min(headrace_drift_noise_floor{RUN}, 1e-6)",
               "{{domain}} {{feature}} {{against}}")]),
            ("JSD", "none", "Bits, from 0 to 1.", [(f"headrace_drift_jsd{RUN}", "{{domain}} {{feature}} {{against}}")]),
            ("PSI", "none", "0.1 some, 0.25 large, by convention.",
             [(f"headrace_drift_psi{RUN}", "{{domain}} {{feature}} {{against}}")]),
            ("Alarms", "none", "Figures that are in alarm.", [(f"sum by (run, domain) (headrace_drift_alarm{RUN})",
                                                               "{{run}} {{domain}}")]),
            ("Intervals", "none", "Looked at, skipped, failed.",
             [(f"headrace_drift_intervals_total{RUN}", "{{run}} looked at"),
              (f"headrace_drift_skipped_intervals_total{RUN}", "{{run}} skipped"),
              (f"headrace_drift_failed_intervals_total{RUN}", "{{run}} failed")]),
            ("Time of a core", "percentunit", "What the watch takes; at most its duty.",
             [(f"rate(headrace_drift_cpu_seconds_total{RUN}[5m])", "{{run}}")]),
        ],
    ),
    (
        "Data",
        [
            ("Documents left out by the build", "short", "By reason.",
             [(f"headrace_documents_rejected_total{RUN}", "{{run}} {{reason}}")]),
            ("Documents read", "short", "By the builds of the corpora.",
             [(f"headrace_documents_read_total{RUN}", "{{run}}")]),
            ("Checksum failures", "none", "Blocks that failed; never served.",
             [(f"headrace_checksum_failures_total{RUN}", "{{run}}")]),
            ("Masks", "none", "Documents and shards taken down, by how they are named.",
             [(f"headrace_masks_total{RUN}", "{{run}} {{reason}}")]),
            ("Events of the log", "none", "By kind.", [(f"headrace_log_events_total{RUN}", "{{run}} {{kind}}")]),
        ],
    ),
    (
        "The server",
        [
            ("Batches a second", "ops", "Answers with rows, repeats included.",
             [(f"rate(headrace_batches_total{RUN}[1m])", "{{run}}")]),
            ("Bytes a second", "Bps", "Of those answers.", [(f"rate(headrace_batch_bytes_total{RUN}[1m])", "{{run}}")]),
            ("Time to serve a batch", "s", "Median and 99th percentile.",
             [("histogram_quantile(0.5, sum by (le) (rate(headrace_batch_serve_seconds_bucket[5m])))", "p50"),
              ("histogram_quantile(0.99, sum by (le) (rate(headrace_batch_serve_seconds_bucket[5m])))", "p99")]),
            ("Time to build a step", "s", "Median and 99th percentile.",
             [("histogram_quantile(0.5, sum by (le) (rate(headrace_batch_build_seconds_bucket[5m])))", "p50"),
              ("histogram_quantile(0.99, sum by (le) (rate(headrace_batch_build_seconds_bucket[5m])))", "p99")]),
            ("Calls", "ops", "By method and status.",
             [("sum by (method, code) (rate(grpc_server_handled_total[1m]))", "{{method}} {{code}}")]),
            ("Time of calls, 99th percentile", "s", "By method.",
             [("histogram_quantile(0.99, sum by (le, method) (rate(grpc_server_handling_seconds_bucket[5m])))",
               "{{method}}")]),
            ("Changes of the run", "none", "Accepted and refused.",
             [(f"headrace_weight_updates_total{RUN}", "{{run}} {{result}} {{reason}}")]),
            ("Loss reports", "none", "Values by result.",
             [(f"headrace_loss_reports_total{RUN}", "{{run}} {{reason}}")]),
            ("Series", "none", "The budget is 5,000 a server.",
             [('scrape_samples_scraped{job="headrace"}', "{{instance}}")]),
        ],
    ),
]  # fmt: skip


def dashboard() -> dict[str, Any]:
    """The whole dashboard as Grafana reads it."""
    panels: list[dict[str, Any]] = []
    y = 0
    for title, row in ROWS:
        panels.append({"id": len(panels) + 1, "type": "row", "title": title, "collapsed": False, "panels": [],
                       "gridPos": {"x": 0, "y": y, "w": 24, "h": 1}})  # fmt: skip
        y += 1
        for number, panel in enumerate(row):
            panels.append(_panel(len(panels) + 1, panel, x=8 * (number % 3), y=y + 8 * (number // 3)))
        y += 8 * -(-len(row) // 3)
    return {
        "title": "Headrace",
        "uid": "headrace",
        "tags": ["headrace"],
        "schemaVersion": 39,
        "version": 1,
        "editable": True,
        "refresh": "30s",
        "time": {"from": "now-6h", "to": "now"},
        "timezone": "",
        "templating": {"list": _variables()},
        "annotations": {"list": []},
        "panels": panels,
    }


def _variables() -> list[dict[str, Any]]:
    return [
        {"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus"},
        {
            "name": "run",
            "label": "Run",
            "type": "query",
            "datasource": SOURCE,
            "query": {"query": "label_values(headrace_confirmed_step, run)", "refId": "run"},
            "refresh": 2,
            "includeAll": True,
            "multi": True,
            "current": {"text": "All", "value": "$__all"},
        },
    ]


def _panel(number: int, panel: Panel, *, x: int, y: int) -> dict[str, Any]:
    title, unit, description, queries = panel
    return {
        "id": number,
        "type": "timeseries",
        "title": title,
        "description": description,
        "datasource": SOURCE,
        "gridPos": {"x": x, "y": y, "w": 8, "h": 8},
        "fieldConfig": {"defaults": {"unit": unit}, "overrides": []},
        "options": {"legend": {"displayMode": "list", "placement": "bottom"}, "tooltip": {"mode": "multi"}},
        "targets": [
            {"refId": chr(ord("A") + place), "datasource": SOURCE, "expr": expr, "legendFormat": legend}
            for place, (expr, legend) in enumerate(queries)
        ],
    }


def main() -> int:
    """Writes the file, or with --check compares it."""
    text = json.dumps(dashboard(), indent=1) + "\n"
    if "--check" in sys.argv[1:]:
        same = TARGET.exists() and TARGET.read_text(encoding="utf-8") == text
        print(f"{TARGET.name}: {'up to date' if same else 'not what make_dashboard.py makes; run it'}")
        return 0 if same else 1
    TARGET.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
