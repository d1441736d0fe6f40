"""What a real client waits for its batches arrives in the server's counters."""

from __future__ import annotations

import threading
import time
import urllib.request
from pathlib import Path

from headrace.client import Loader, Settings
from prometheus_client.parser import text_string_to_metric_families
from rig import ServerProcess, serving, write_run


def counted(server: ServerProcess, name: str) -> float:
    text = urllib.request.urlopen(f"http://127.0.0.1:{server.metrics_port}/metrics", timeout=10).read().decode()
    return sum(
        sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name == name
    )


def waited(server: ServerProcess) -> float:
    return counted(server, "headrace_trainer_wait_seconds_total")


def stalls(server: ServerProcess) -> float:
    return counted(server, "headrace_trainer_stalls_total")


def test_a_stopped_server_is_seen_as_waiting(tmp_path: Path, corpus: Path) -> None:
    with (
        serving(tmp_path, [write_run(tmp_path, corpus)]) as server,
        Loader(server.address, "r", job="job", attempt=0, settings=Settings(stall_log=0.5)) as loader,
    ):
        batches = iter(loader)
        for _ in range(20):
            next(batches)
        time.sleep(1.2)  # a heartbeat or the next request says so
        for _ in range(5):
            next(batches)
        before, stalled = waited(server), stalls(server)
        server.pause()
        threading.Timer(2.0, server.go_on).start()
        for _ in range(20):  # more than the lead
            next(batches)
        until = time.monotonic() + 10
        while waited(server) < before + 1.0:
            assert time.monotonic() < until, (before, waited(server))
            next(batches)
            time.sleep(0.1)
        assert waited(server) < before + 30
        assert stalls(server) == stalled + loader.stats.stalls == stalled + 1
