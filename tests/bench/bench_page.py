"""What the live page costs: time to first figures and first plot, time of an update, bytes, what serving pays for it.

    python tests/bench/bench_page.py [--quick] [--json]

One run of 200 domains and 10^6 confirmed steps (`--quick`: 60 and 10^5), in a store that was told so; a real server on
it, and a real Chromium. Serving is measured by a trainer that takes small steps, in alternating blocks with nobody
looking, and with eight pages connected and a scrape every second: the run moves, so each second has figures to make.
Figures are medians.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE.parent / "watch")]

from rig import Raw, ServerProcess, Trainer, serving  # noqa: E402
from web import Web  # noqa: E402
from worlds import World, make_world  # noqa: E402

WHOLE = World(domains=200, steps=1_100_000, confirmed=1_000_000, batch=4, seq_len=16, events=20, ranks=64, documents=20)
QUICK = World(domains=60, steps=200_000, confirmed=100_000, batch=4, seq_len=16, events=8, ranks=16, documents=20)
RUN = "/api/runs/pretrain-7b"


def timed(work: Callable[[], Any]) -> tuple[float, Any]:
    """Milliseconds, and what came of it."""
    begun = time.perf_counter()
    found = work()
    return 1e3 * (time.perf_counter() - begun), found


def median_of(work: Callable[[], Any], times: int = 9) -> float:
    return statistics.median(timed(work)[0] for _ in range(times))


def measure_figures(web: Web) -> dict[str, float]:
    """The first snapshot of a server that has just started, then what later requests take; milliseconds and bytes."""
    first, got = timed(lambda: web(RUN))
    names = [domain["name"] for domain in got.json["domains"]]
    few = "&".join(f"domain={name}" for name in names[:6])
    packed = {"accept_encoding": "gzip"}
    return {
        "first_snapshot_ms": first,
        "snapshot_ms": median_of(lambda: web(RUN)),
        "snapshot_bytes": len(got.body),
        "snapshot_gzip_bytes": len(web(RUN, **packed).body),
        "history_of_6_ms": median_of(lambda: web(f"{RUN}/history?{few}", **packed)),
        "history_of_6_gzip_bytes": len(web(f"{RUN}/history?{few}", **packed).body),
        "slots_ms": median_of(lambda: web(f"{RUN}/batch")),
        "row_ms": median_of(lambda: web(f"{RUN}/batch?slot=0")),
        "metrics_ms": median_of(lambda: web("/metrics", **packed)),
    }


_TASKS = (
    "window.tasks = []; new PerformanceObserver((l) => window.tasks.push(...l.getEntries().map((e) => e.duration)))"
)
_SHOW_ALL = "Show all"


def measure_browser(server: ServerProcess) -> dict[str, float]:
    """Page load, update and longest task in Chromium, in milliseconds; nothing where there is none."""
    path = shutil.which("chromium")
    if path is None:
        return {}
    from playwright.sync_api import expect, sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1280, "height": 900})
        page.add_init_script(f"{_TASKS}.observe({{ type: 'longtask', buffered: true }})")
        address = f"http://127.0.0.1:{server.metrics_port}/"
        loads = []
        for _ in range(3):
            table, _ = timed(
                lambda: (page.goto(address), expect(page.locator("#mixture tbody tr").first).to_be_visible())
            )
            plot, _ = timed(lambda: expect(page.locator("#chart canvas")).to_be_visible())
            loads.append((table, table + plot))
        page.get_by_role("button", name=_SHOW_ALL).first.click()
        page.wait_for_timeout(12_000)  # a snapshot comes at least every ten seconds
        draws = page.evaluate("performance.getEntriesByName('headrace-draw').map((entry) => entry.duration)")
        tasks = page.evaluate("window.tasks")
        rows = page.locator("#mixture tbody tr").count()
        browser.close()
    return {
        "load_to_table_ms": statistics.median(load[0] for load in loads),
        "load_to_plot_ms": statistics.median(load[1] for load in loads),
        "rows_shown": rows,
        "first_draw_ms": draws[0],
        "update_all_rows_ms": draws[-1],
        "longest_task_ms": max([0.0, *tasks]),
    }


LOOK = """
import sys, threading, time, urllib.request
page, run = sys.argv[1:]
def look():
    stream = urllib.request.urlopen(page + run + "/stream")
    while stream.readline():
        pass
for _ in range(8):
    threading.Thread(target=look, daemon=True).start()
print("looking", flush=True)
while True:
    urllib.request.urlopen(page + "/metrics").read()
    time.sleep(1)
"""


@contextlib.contextmanager
def lookers(server: ServerProcess) -> Iterator[None]:
    """Eight pages that read the stream, and a scraper, in a process of their own."""
    page = f"http://127.0.0.1:{server.metrics_port}"
    process = subprocess.Popen([sys.executable, "-c", LOOK, page, RUN], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    process.stdout.readline()
    try:
        yield
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def cpu_seconds(server: ServerProcess) -> float:
    """User and system time of the server so far."""
    assert server.process is not None
    fields = Path(f"/proc/{server.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def state_of(server: ServerProcess) -> dict[str, Any]:
    """What a trainer's checkpoint would say at the confirmed step."""
    from headrace.server.control.store import Store
    from headrace.server.service.loading import Opener

    store = Store(server.store, writable=False)
    try:
        view = Opener(store).view("pretrain-7b")
        run = view.run
        return {
            "schema": 1,
            "run_id": run.id,
            "spec_digest": run.spec_digest,
            "plan_hash": view.plan.hash(run.confirmed),
            "next_step": run.confirmed,
        }
    finally:
        store.close()


def measure_serving(server: ServerProcess, seconds: float, blocks: int) -> dict[str, float]:
    """Server CPU of a step that a trainer takes, and the slowest percent of steps, alone and with lookers."""
    cpu: dict[bool, list[float]] = {False: [], True: []}
    slow: dict[bool, list[float]] = {False: [], True: []}
    with Raw(server.address) as raw:
        trainer = Trainer(raw, run="pretrain-7b", job="slurm-48213", attempt=3).open(state_of(server))

        def block(watched: bool) -> None:
            before, until, times = cpu_seconds(server), time.perf_counter() + seconds, []
            while time.perf_counter() < until:
                times.append(timed(lambda: trainer.take(1))[0])
                time.sleep(0.002)  # a trainer computes meanwhile
            cpu[watched].append(1e3 * (cpu_seconds(server) - before) / len(times))
            slow[watched].append(sorted(times)[int(0.99 * len(times))])

        for _ in range(blocks):
            block(False)
            with lookers(server):
                block(True)
    return {
        "server_cpu_per_step_alone_ms": statistics.median(cpu[False]),
        "server_cpu_per_step_watched_ms": statistics.median(cpu[True]),
        "step_p99_alone_ms": statistics.median(slow[False]),
        "step_p99_watched_ms": statistics.median(slow[True]),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    world = QUICK if options.quick else WHOLE
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        run = make_world(folder, world)
        with serving(folder, [run]) as server:
            found: dict[str, float] = {"domains": world.domains, "steps": world.confirmed}
            found |= measure_figures(Web(server.metrics_port))
            found |= measure_browser(server)
            found |= measure_serving(server, *((2.0, 2) if options.quick else (4.0, 3)))
    if options.json:
        print(json.dumps(found, indent=2))
        return
    for key, value in found.items():
        print(f"{key:<28} {value:>14,.1f}")


if __name__ == "__main__":
    main()
