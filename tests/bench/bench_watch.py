"""What watching costs beside serving, how many series it makes, and how soon planted drifts are caught.

    python tests/bench/bench_watch.py [--quick] [--json]

A trainer takes steps of 256 rows of 4,096 tokens from a real server as fast as it can. `metrics` is the CPU time
that counting takes per answer (timed in this process over many calls) as a part of what the server takes per answer;
`drift` is the CPU time of the watch as a part of the server's; `scrapes` is the CPU time of one scrape, at one every 15
seconds as a part of a core. The planted table is that of `tests/watch/planted.py`.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
import urllib.request
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE.parent / "watch")]
SEQ_LEN, BATCH, ROWS = 4096, 256, 64


def cpu_seconds(pid: int) -> float:
    """User and system time of a process."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def scrape(port: int) -> dict[str, float]:
    """Sums of the samples of each name, and the number of series."""
    from prometheus_client.parser import text_string_to_metric_families

    text = urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30).read().decode()
    found: dict[str, float] = {"series": 0}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            found["series"] += 1
            found[sample.name] = found.get(sample.name, 0.0) + sample.value
    return found


def counting_seconds(calls: int) -> float:
    """What the counters of one answer take."""
    from headrace.server.service.metrics import Metrics

    metrics = Metrics("bench")
    begun = time.process_time()
    for number in range(calls):
        metrics.built(0.001)
        metrics.served("r", 1 << 20, 0.001)
        metrics.waited("r", b"token", number, 0)
        metrics.handled("GetBatch", "OK", 0.001)
    return (time.process_time() - begun) / calls


def serving_cost(seconds: float, drift: str) -> dict[str, float]:
    """A trainer at full speed for some seconds."""
    from corpora import build_small_corpus
    from rig import Raw, Trainer, serving, write_run

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        corpus = build_small_corpus(folder, documents={"a": 20_000, "b": 10_000, "c": 5_000})
        run = write_run(folder, corpus, seq_len=SEQ_LEN, batch=BATCH, steps=100_000)
        with serving(folder, [run], extra=drift) as server, Raw(server.address) as raw:
            assert server.process is not None
            trainer = Trainer(raw, world=BATCH // ROWS).open()
            trainer.next_step = 0
            begun, cpu = time.perf_counter(), cpu_seconds(server.process.pid)
            while time.perf_counter() - begun < seconds:
                answers = trainer.fetch(trainer.next_step)
                trainer.plan_hash = answers[-1].batch.next_plan_hash
                trainer.next_step += 1
            wall = time.perf_counter() - begun
            cpu = cpu_seconds(server.process.pid) - cpu
            found = scrape(server.metrics_port)
            before = cpu_seconds(server.process.pid)
            scrapes = 20
            for _ in range(scrapes):
                scrape(server.metrics_port)
            each = (cpu_seconds(server.process.pid) - before) / scrapes
            answer = cpu / found["headrace_batch_serve_seconds_count"]
            return {
                "tokens_s": trainer.next_step * BATCH * SEQ_LEN / wall,
                "answer_cpu_us": answer * 1e6,
                "server_cpu_s": cpu,
                "drift_cpu_s": found.get("headrace_drift_cpu_seconds_total", 0.0),
                "drift_intervals": found.get("headrace_drift_intervals_total", 0.0),
                "drift_skipped": found.get("headrace_drift_skipped_intervals_total", 0.0),
                "scrape_cpu_s": each,
                "series": found["series"],
            }


def planted_rows(quick: bool) -> list[dict[str, Any]]:
    """Each planted drift: the interval of the alarm, and what raised it."""
    import planted

    with tempfile.TemporaryDirectory() as name:
        bench = planted.Bench(Path(name))
        names = list(planted.DRIFTS)[:: 3 if quick else 1]
        rows = []
        for drift in names:
            interval, features = planted.caught(bench, bench.drifted(drift))
            rows.append({"drift": drift, "interval": interval, "features": list(features)})
        return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    counting = counting_seconds(5_000 if arguments.quick else 50_000)
    cost = serving_cost(6.0 if arguments.quick else 40.0, "")
    result: dict[str, Any] = {
        "counting_us": counting * 1e6,
        "metrics_part": counting * 1e6 / cost["answer_cpu_us"],
        "drift_part": cost["drift_cpu_s"] / cost["server_cpu_s"],
        "scrapes_part": cost["scrape_cpu_s"] / 15,
        **cost,
        "planted": planted_rows(arguments.quick),
    }
    result["part"] = result["metrics_part"] + result["drift_part"] + result["scrapes_part"]
    if arguments.json:
        print(json.dumps(result, indent=2))
        return
    each = f"{result['answer_cpu_us']:.0f} us of CPU an answer of {ROWS} rows"
    print(f"serving {result['tokens_s'] / 1e6:.1f} M tokens/s, {each}")
    print(
        f"watching costs {result['part']:.2%} of serving: metrics {result['metrics_part']:.2%} "
        f"({result['counting_us']:.1f} us an answer), drift {result['drift_part']:.2%} "
        f"({result['drift_intervals']:.0f} intervals looked at, {result['drift_skipped']:.0f} skipped), "
        f"scrapes {result['scrapes_part']:.2%} of a core ({1e3 * result['scrape_cpu_s']:.1f} ms each)"
    )
    print(f"{result['series']:.0f} series with one run of 3 domains")
    for row in result["planted"]:
        print(f"  {row['drift']:<50} interval {row['interval']}: {', '.join(row['features'])}")


if __name__ == "__main__":
    main()
