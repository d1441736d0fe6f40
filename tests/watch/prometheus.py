"""Debian's Prometheus and promtool for the tests: found or skipped, started on a free port, asked over HTTP."""

from __future__ import annotations

import json
import shutil
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from ports import free_port

ROOT = Path(__file__).resolve().parent.parent.parent
RULES = ROOT / "deploy" / "prometheus" / "headrace.rules.yml"


def tool(name: str) -> str:
    """The path of `prometheus` or `promtool`; skips where the machine has none."""
    path = shutil.which(name)
    if path is None:
        pytest.skip(f"`{name}` is not on this machine (apt-get install prometheus)")
    return path


def promtool(*words: str | Path, stdin: str | None = None) -> subprocess.CompletedProcess[str]:
    """What promtool says."""
    command = [tool("promtool"), *map(str, words)]
    return subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=60, check=False)


class Prometheus:
    """A Prometheus of its own that scrapes one server every 200 ms and judges rules as often."""

    def __init__(self, folder: Path, targets: list[str], rules: Path) -> None:
        self._port = free_port()
        config = folder / "prometheus.yml"
        config.write_text(
            json.dumps(
                {
                    "global": {"scrape_interval": "200ms", "evaluation_interval": "200ms"},
                    "rule_files": [str(rules)],
                    "scrape_configs": [{"job_name": "headrace", "static_configs": [{"targets": targets}]}],
                }
            )
        )
        self.log = folder / "prometheus.log"
        with self.log.open("w") as log:
            self._process = subprocess.Popen(
                [
                    tool("prometheus"),
                    f"--config.file={config}",
                    f"--storage.tsdb.path={folder / 'tsdb'}",
                    f"--web.listen-address=127.0.0.1:{self._port}",
                ],
                stdout=log,
                stderr=log,
            )

    def stop(self) -> None:
        self._process.terminate()
        self._process.wait(timeout=30)

    def get(self, path: str, **query: str) -> Any:
        """The `data` of an answer; a refused query is an error with Prometheus's own words."""
        url = f"http://127.0.0.1:{self._port}/api/v1/{path}?{urllib.parse.urlencode(query)}"
        try:
            with urllib.request.urlopen(url, timeout=10) as answer:
                return json.load(answer)["data"]
        except urllib.error.HTTPError as error:
            if error.code == 503:  # it is starting
                raise
            raise AssertionError(f"{query}: {error.read().decode()}") from None

    def query(self, expr: str) -> list[Any]:
        """The series that an expression gives now."""
        found: list[Any] = self.get("query", query=expr)["result"]
        return found

    def wait(self, ready: Callable[[], Any], *, seconds: float = 60.0) -> Any:
        """What `ready` gives once it is true; connection errors while it starts count as not yet."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            assert self._process.poll() is None, self.log.read_text()[-2000:]
            try:
                found = ready()
            except OSError:
                found = None
            if found:
                return found
            time.sleep(0.1)
        raise AssertionError(f"nothing within {seconds} s; {self.log.read_text()[-2000:]}")

    def alerts(self, state: str = "firing") -> dict[str, list[dict[str, str]]]:
        """Labels of the alerts in a state, by name."""
        found: dict[str, list[dict[str, str]]] = {}
        for alert in self.get("alerts")["alerts"]:
            if alert["state"] == state:
                found.setdefault(alert["labels"]["alertname"], []).append(alert["labels"])
        return found
