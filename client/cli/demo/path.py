"""The whole path, stage by stage: each stage is one block here, and its work is in a file of its own."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from headrace.client.cli.demo.configs import STORE, Addresses, corpus_toml, server_toml, write_config
from headrace.client.cli.demo.console import Stages, say, table
from headrace.client.cli.demo.folder import fresh_folder
from headrace.client.cli.demo.mixture import create_weighted_run, train_proxy
from headrace.client.cli.demo.processes import Children, free_port
from headrace.client.cli.demo.records import check_digests, check_one_swap, whole_stream
from headrace.client.cli.demo.report import check_complete, check_shares, mean_target, scrape, shares_table
from headrace.client.cli.demo.text import TextReport, write_text
from headrace.client.cli.demo.tokenizers import train_tokenizers
from headrace.client.cli.demo.training import RUN, start_server, swapped_weights, train_through_faults

STEPS = 200
_WINDOWS_OFF = 4.0


def run_demo(out: Path) -> None:
    """All stages in `out`. Raises HeadraceError when a check fails; every process is ended on the way out."""
    with fresh_folder(out) as folder, Children(folder) as children:
        _run(folder, children)


def _run(folder: Path, children: Children) -> None:
    stages = Stages(total=7)
    with stages.stage("text", "writing what Python, Django and Babel ship as source files"):
        text = write_text(folder)
        _say_text(text)
    with stages.stage("tokenizers", "training a parity-aware and a classical BPE of 2,048 ids; Gini on the test split"):
        train_tokenizers(children)
    with stages.stage("corpus", "tokenizing every domain into checksummed shards"):
        say(children.headrace("corpus", "build", write_config(folder, "CORPUS.toml", corpus_toml(text.domains))))
    addresses = Addresses(server=f"127.0.0.1:{free_port()}", metrics=f"127.0.0.1:{free_port()}")
    write_config(folder, "SERVER.toml", server_toml(addresses))
    with stages.stage("weights", "training a proxy on a uniform run, then KRLS weights from its embeddings"):
        server = start_server(children, addresses)
        train_proxy(children, addresses.server, text.domains)
        weights = create_weighted_run(children, addresses.server, RUN, steps=STEPS)
    with stages.stage(
        "training", f"two ranks, {STEPS} steps; weights swapped, server killed, trainers killed, four ranks resume"
    ):
        attempts, swapped = train_through_faults(
            children, addresses, server, lambda: _swap(children, addresses.server, weights), steps=STEPS
        )
    with stages.stage("proof", "comparing what was received with what the pure functions say, with no server asked"):
        stream = whole_stream(attempts, steps=STEPS)
        check_one_swap(stream, at=swapped)
        planned = children.headrace("run", "digest", RUN, "--steps", f"0:{STEPS}", "--store", STORE, "--json")
        check_digests(stream, {int(step): digest for step, digest in json.loads(planned).items()})
        say(
            f"all {STEPS} step digests are equal: over ranks 2 and 4, two crashes, and a swap at exactly step {swapped}"
        )
    with stages.stage("report", "what was asked for and what was served, from /metrics"):
        _report(addresses.metrics, weights, swapped)
    _farewell(folder, stages)


def _say_text(text: TextReport) -> None:
    sizes = [[name, f"{text.bytes_of[name] / 1000:,.1f}", f"{text.documents_of[name]:,}"] for name in text.domains]
    say(table(("domain", "kB", "documents"), sizes))
    splits = ", ".join(f"{count:,} {split}" for split, count in text.aligned.items())
    say(f"{sum(text.aligned.values()):,} segments aligned over 14 languages in 8 scripts: {splits}")
    for note in text.notes:
        say(f"left out: {note}")


def _swap(children: Children, server: str, weights: Mapping[str, float]) -> int:
    """Set other weights on the live run; the step from which they hold."""
    parts = [f"{name}={weight:.6f}" for name, weight in swapped_weights(weights).items()]
    options = ["--reason", "demo", "--server", server, "--json"]
    shown = f"weights set {RUN} {' '.join(parts[:2])} ... --server {server}"
    answer = json.loads(children.headrace("weights", "set", RUN, *parts, *options, show=shown))
    step = int(answer["event"]["from_step"])
    say(f"the new weights hold from step {step} on ({answer['confirmed']} steps were confirmed)")
    return step


def _report(metrics: str, weights: Mapping[str, float], swapped: int) -> None:
    scraped = scrape(metrics, RUN)
    target = mean_target(weights, scraped.target, swapped=swapped, steps=STEPS)
    check_complete(scraped, steps=STEPS)
    off = check_shares(target, scraped, windows=_WINDOWS_OFF)
    say(shares_table(target, scraped))
    say(f"no domain is more than {off:.2f} windows from its target over {STEPS} steps")


def _farewell(folder: Path, stages: Stages) -> None:
    say(f"times: {stages.summary()}")
    say("where to look next:")
    say(f"  cd {folder}        every command above runs there")
    say(f"  headrace run explain {RUN} --step 41 --store {STORE}      which document is in which row")
    say(f"  headrace weights history {RUN} --store {STORE}            the audit log")
    say("  headrace serve configs/SERVER.toml                        serve it again")
