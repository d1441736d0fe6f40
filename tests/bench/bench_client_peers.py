"""The client beside other loaders on the same token ids in one run: tokens/s, tokens a CPU second, first batch, memory.

    python tests/bench/bench_client_peers.py --peers PYTHON [--quick] [--json]

PYTHON is an interpreter in which the others are installed, apart from this project's:

    python -m venv ~/peers
    ~/peers/bin/pip install mosaicml-streaming torchvision litdata "datasets>=4.4" grain torchdata

A corpus of random text is built and served by the real server in a process of its own; the same windows are written in
each tool's own format. All figures are of the trainer's process alone. The work of Headrace's server
is not in them, though the others do theirs in the trainer; `bench_serve.py` measures what it costs. Headrace's batches
are checked against their digests and confirmed; their ids come through shared memory, or, where that is said, in
messages as from another host. The others read local files and mix at fixed weights, and none of them is asked here to
verify checksums.
Tools take turns; figures are medians. A tool that is not installed is left out with the reason.

What a row hands over a step, always batch x seq_len and mixed over three domains:

    a tool's name         ids as int32, on memory of its own or the file's map, and nothing else: no labels, no edges
    Headrace, ids         ids as they came (uint32), with the digest of each row checked and confirmed
    Headrace, labels      int64 input_ids and labels shifted by one, -100 where there is none; digests as before
    Headrace, documents   also int64 position_ids that begin again in each document, and int32 cu_seqlens
    torchdata, documents  the same four tensors by torchdata's nodes, made in a Mapper by the NumPy code that Headrace
                          uses, of windows with the id more and the edges that Headrace serves; no digests, no
                          confirmation. It is the row to hold against `Headrace, documents`.

`bench_client_resume.py` times what resuming costs far into a run.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
SEQ_LEN, BATCH = 4096, 64
WEIGHTS = {"a": 0.5, "b": 0.3, "c": 0.2}
# Ids of four bytes, as those of the large vocabularies of today: the others hold int32.
VOCABULARY = 70_000


def build(folder: Path, quick: bool) -> Path:
    """A corpus of words whose ids need four bytes."""
    from corpora import build_small_corpus

    size = 40_000 if quick else 200_000
    return build_small_corpus(
        folder, documents={"a": size, "b": size // 2, "c": size // 4}, extra_tokens=VOCABULARY - 258
    )


def export(manifest: Path, data: Path, seq_len: int = SEQ_LEN, batch: int = BATCH) -> None:
    """The corpus's windows as files of int32, and what the tools have to know."""
    from headrace.server.corpus.manifest import Corpus

    corpus = Corpus.open(manifest)
    (data / "bin").mkdir(parents=True)
    total = 0
    for name in WEIGHTS:
        count = corpus.facts({(seq_len, "concat")}).views[name, seq_len, "concat"].windows
        total += count
        edges: list[Any] = []
        with (data / "bin" / f"{name}.bin").open("wb") as out, (data / "bin" / f"{name}.last").open("wb") as last:
            for first in range(0, count, 256):
                numbers = np.arange(first, min(first + 256, count), dtype=np.uint64)
                rows = corpus.read(seq_len, "concat", [name], np.zeros(len(numbers), dtype=np.uint32), numbers)
                ids = np.frombuffer(rows.ids, dtype="<u4").reshape(-1, seq_len + 1)
                out.write(ids[:, :seq_len].astype("<i4").tobytes())
                last.write(ids[:, seq_len].astype("<i4").tobytes())
                edges += np.split(rows.edges, rows.edge_ends[:-1])
        ends = np.cumsum([len(row) for row in edges])
        np.savez(data / "bin" / f"{name}.npz", edges=np.concatenate(edges), ends=ends)
    meta = {"seq_len": seq_len, "batch": batch, "weights": WEIGHTS, "windows": total}
    (data / "meta.json").write_text(json.dumps(meta))


def child(address: str, seconds: float, what: str, saved: Path) -> dict[str, float]:
    """Headrace's client in a process of its own: as `client_peers.run` measures the others."""
    import torch
    from client_peers import peak_mb, touch
    from headrace.client import Settings
    from headrace.client.torch import Loader

    settings = Settings(message_bytes=8 << 20, share="in messages" not in what)
    begun = time.perf_counter()
    with Loader(address, "r", settings=settings, takeover=True) as loader:
        state = json.loads(saved.read_text()) if saved.exists() else None
        if state is not None:
            loader.load_state_dict(state)

        def take() -> None:
            batch = next(loader)
            if what.startswith("labels"):
                touch(batch.input_ids)
                touch(batch.labels)
            elif what == "documents":
                for tensor in (batch.input_ids, batch.labels, batch.position_ids, batch.cu_seqlens):
                    touch(tensor)
            else:
                touch(batch.token_ids.view(torch.int32))

        take()
        first = time.perf_counter() - begun
        if state is not None:
            return {"resume_s": first}
        for _ in range(8):
            take()
        cpu, begun, taken = time.process_time(), time.perf_counter(), 0
        while time.perf_counter() - begun < seconds:
            take()
            taken += 1
        wall, used = time.perf_counter() - begun, time.process_time() - cpu
        saved.write_text(json.dumps(loader.state_dict()))
    tokens = taken * BATCH * SEQ_LEN
    return {
        "first_s": first,
        "tokens_s": tokens / wall,
        "tokens_cpu_s": tokens / used,
        "peak_mb": peak_mb(),
        "steps": taken,
    }


def ask(command: list[str]) -> dict[str, Any]:
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=os.environ | {"TQDM_DISABLE": "1"})
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    if done.returncode or not lines:
        return {"skip": f"failed: {(done.stderr.strip() or 'no answer').splitlines()[-1]}"}
    answer: dict[str, Any] = json.loads(lines[-1])
    return answer


def median(found: list[dict[str, float]]) -> dict[str, float]:
    return {key: statistics.median(one[key] for one in found) for key in found[0]}


def measure(folder: Path, peers: str | None, quick: bool) -> dict[str, dict[str, Any]]:
    from client_peers import TOOLS
    from rig import serving, write_run

    manifest, data = build(folder, quick), folder / "data"
    export(manifest, data)
    results: dict[str, dict[str, Any]] = {}
    commands: dict[str, list[str]] = {}
    script = str(HERE / "client_peers.py")
    for tool in TOOLS:
        answer = ask([peers, script, "convert", tool, str(data)]) if peers else {"skip": "no --peers interpreter"}
        if "skip" in answer:
            results[tool] = answer
        else:
            commands[tool] = [peers or "", script, "run", tool, str(data)]
    run = write_run(folder, manifest, seq_len=SEQ_LEN, batch=BATCH, steps=1_000_000)
    with serving(folder, [run]) as server:
        for what in ("ids", "labels", "documents", "ids in messages", "labels in messages"):
            commands[f"Headrace, {what}"] = [sys.executable, __file__, "--child", what, server.address]
        rounds: dict[str, list[dict[str, Any]]] = {name: [] for name in commands}
        for turn in range(1 if quick else 3):
            for name, command in commands.items():
                saved = folder / f"state-{turn}-{len(rounds[name])}-{abs(hash(name))}"
                seconds = "1" if quick else "3"
                first = ask([*command, seconds, str(saved)])
                again = {} if "skip" in first else ask([*command, "0", str(saved)])
                rounds[name].append(first | again)
        for name, found in rounds.items():
            bad = [one for one in found if "skip" in one]
            results[name] = bad[0] if bad else median(found)
    return results


def table(results: dict[str, dict[str, Any]]) -> list[str]:
    lines = [f"{'':29} M tokens/s   M tokens/CPU-s   first batch ms   after resume ms   peak MB"]
    shown = [item for item in results.items() if "skip" not in item[1]]
    for name, row in sorted(shown, key=lambda item: -item[1]["tokens_cpu_s"]):
        lines.append(
            f"{name:29} {row['tokens_s'] / 1e6:>10.0f} {row['tokens_cpu_s'] / 1e6:>16.0f} "
            f"{row['first_s'] * 1e3:>16.1f} {row['resume_s'] * 1e3:>17.1f} {row['peak_mb']:>9.0f}"
        )
    return lines + [f"{name:29} left out: {row['skip']}" for name, row in results.items() if "skip" in row]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peers", help="interpreter with the other loaders")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--child", nargs=4, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        what, address, seconds, saved = arguments.child
        print(json.dumps(child(address, float(seconds), what, Path(saved))))
        return
    with tempfile.TemporaryDirectory() as name:
        results = measure(Path(name), arguments.peers, arguments.quick)
    print(json.dumps(results, indent=2) if arguments.json else "\n".join(table(results)))


if __name__ == "__main__":
    main()
