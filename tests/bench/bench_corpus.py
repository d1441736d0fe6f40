"""Building and reading a corpus: `python tests/bench/bench_corpus.py [--quick] [--json] [--peers PYTHON] [--data FILE]`

build   MB/s and tokens/s on 1 and 2 workers, the encoder alone as the limit, and the encoder's part of the time that a
        build of one file with one encoding thread takes, by the clock (reading and writing go on beside it, where there
        is a second core) and of all CPU time; with --peers, other tools on the same text with the same tokenizer
read    windows/s and GB/s of `concat` and `best_fit` at several lengths, in the order of a permutation, page cache warm
open    time and memory of opening 10^8 windows (shards of one unit, named again and again)

Text is generated (words by a Zipf law) unless --data names JSON Lines with a `text`. Wall times are the best of three;
CPU seconds tell the truth on a busy machine.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from headrace.server.corpus.build import build_corpus, plan_build
from headrace.server.corpus.manifest import Corpus
from headrace.server.corpus.spec import CorpusSpec
from headrace.server.corpus.unit import build_unit
from headrace.server.service.malloc import keep_freed_memory
from headrace.tokenizer.spec import TrainSpec
from headrace.tokenizer.tokenizer import Tokenizer
from headrace.tokenizer.train import train

HERE = Path(__file__).resolve().parent


def write_text(path: Path, size: int) -> None:
    """Documents of 5 to 400 words, the words by a Zipf law."""
    rng = random.Random(7)
    letters = "etaoinshrdlucmfwypvbgk"
    words = ["".join(rng.choices(letters, k=rng.randint(2, 9))) for _ in range(20_000)]
    weights = [1 / rank for rank in range(1, len(words) + 1)]
    written = 0
    with path.open("w", encoding="utf-8") as file:
        while written < size:
            line = json.dumps({"text": " ".join(rng.choices(words, weights, k=rng.randint(5, 400)))}) + "\n"
            file.write(line)
            written += len(line)


def spec_of(root: Path, files: str = "data*.jsonl", out: str = "out") -> CorpusSpec:
    toml = f'[corpus]\nout = "{out}"\n[[domain]]\nname = "d"\nfiles = ["{files}"]\n'
    return CorpusSpec.from_toml(toml, root=root)


def cpu() -> float:
    """CPU seconds of this process and its children that have ended."""
    both = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in both)


def best(times: int, work: Callable[[int], object]) -> tuple[float, float]:
    """Least wall and CPU seconds of several runs."""
    found = []
    for number in range(times):
        wall, used = time.perf_counter(), cpu()
        work(number)
        found.append((time.perf_counter() - wall, cpu() - used))
    return min(wall for wall, _ in found), min(used for _, used in found)


def bench_build(root: Path, times: int, peers: str | None) -> dict[str, Any]:
    data = root / "data0.jsonl"
    texts = [json.loads(line)["text"] for line in data.read_text(encoding="utf-8").splitlines()]
    tokenizer = Tokenizer.load(root / "tokenizer.json")
    tokens = len(tokenizer.encode_batch(texts)[0])
    size = data.stat().st_size
    encoder = best(times, lambda number: tokenizer.encode_batch(texts, threads=1))
    found = {"encoder": _rates(encoder, size, tokens)}
    task = plan_build(spec_of(root, data.name)).tasks[0]

    def one(number: int) -> None:
        build_unit(replace(task, store=str(root / f"one{number}")), lambda *done: None, threads=1)

    one(-1)  # loads the tokenizer, which a build does once
    built = best(times, one)
    shares = {
        f"encoder_share_of_{what}": round(alone / whole, 2)
        for what, alone, whole in zip(("wall", "cpu"), encoder, built, strict=True)
    }
    found["build, one file, one thread"] = {**_rates(built, size, tokens), **shares}
    files = sorted(root.glob("data*.jsonl"))
    whole = sum(each.stat().st_size for each in files)
    for workers in (1, 2):
        timed = best(1, partial(_build, root, workers))
        found[f"build, {len(files)} files, {workers} workers"] = _rates(
            timed, whole, Corpus.open(root / "out1").tokens("d")
        )
    for tool in ("megatron-style", "datasets.map", "datatrove"):
        for workers in (1, 2) if peers else ():
            found[f"{tool}, {workers} workers"] = _peer(str(peers), tool, files, root, whole, workers)
    if not peers:
        found["other tools"] = {"skipped": "no --peers: name a Python that has tokenizers, datasets and datatrove"}
    return found


def _build(root: Path, workers: int, number: int) -> None:
    build_corpus(spec_of(root, out=f"out{workers}"), workers=workers)


def _rates(timed: tuple[float, float], size: int, tokens: int) -> dict[str, Any]:
    wall, used = timed
    return {
        "wall_seconds": round(wall, 3),
        "cpu_seconds": round(used, 3),
        "mb_s": round(size / 1e6 / wall, 1),
        "mb_per_cpu_s": round(size / 1e6 / used, 1),
        "tokens_per_cpu_s": round(tokens / used),
    }


def _peer(python: str, tool: str, files: list[Path], root: Path, size: int, workers: int) -> dict[str, Any]:
    folder = Path(tempfile.mkdtemp(dir=root))
    environment = {**os.environ, "TOKENIZERS_PARALLELISM": "false", "RAYON_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    raw = folder / "raw"
    raw.mkdir()
    for file in files:
        (raw / file.name).hardlink_to(file)
    script = str(HERE / "corpus_peers.py")
    command = [python, script, tool, str(raw), str(root / "tokenizer.json"), str(folder), str(workers)]
    used = cpu()
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        return {"skipped": done.stderr.strip().splitlines()[-1] if done.stderr else "no message"}
    said = json.loads(done.stdout.strip().splitlines()[-1])
    return _rates((said["seconds"], cpu() - used), size, said["tokens"])


def bench_read(root: Path, times: int) -> dict[str, Any]:
    corpus = Corpus.open(root / "out1")
    shapes = [(packing, seq_len) for packing in ("concat", "best_fit") for seq_len in (1024, 4096, 32_768)]
    return {f"{packing} {seq_len}": _read(corpus, packing, seq_len, times) for packing, seq_len in shapes}


def _read(corpus: Corpus, packing: str, seq_len: int, times: int) -> dict[str, float]:
    count = corpus.view("d", seq_len, packing).windows
    rows = max(8, (1 << 21) // seq_len)
    rng = np.random.default_rng(3)
    picks = [rng.integers(0, count, rows).astype(np.uint64) for _ in range(8)]
    domains = np.zeros(rows, np.uint32)

    def read(number: int) -> None:
        for windows in picks:
            corpus.read(seq_len, packing, ["d"], domains, windows)

    read(0)
    wall, used = best(times, read)
    size = 8 * rows * (seq_len + 1) * corpus.id_bytes
    return {
        "gb_s": round(size / 1e9 / wall, 2),
        "gb_per_cpu_s": round(size / 1e9 / used, 2),
        "cpu_us_a_window": round(1e6 * used / 8 / rows, 1),
    }


def bench_open(root: Path, windows: int) -> dict[str, Any]:
    """A corpus of so many windows, whose sources are one file under many names; the store holds it once."""
    seq_len = 16
    tokens = Corpus.open(root / "out1").manifest.domains[0].generations[0][0].shard.tokens
    copies = -(-windows * seq_len // tokens)
    (root / "many").mkdir()
    for number in range(copies):
        (root / f"many/{number:06}.jsonl").hardlink_to(root / "data0.jsonl")
    build_corpus(spec_of(root, "many/*.jsonl", "many-out"), workers=1)
    program = (
        "import resource, sys, time; from headrace.server.corpus.manifest import Corpus; import numpy as np\n"
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss; began = time.perf_counter()\n"
        f"corpus = Corpus.open(sys.argv[1]); n = corpus.view('d', {seq_len}, 'concat').windows\n"
        f"corpus.read({seq_len}, 'concat', ['d'], np.zeros(1, np.uint32), np.array([n - 1], np.uint64))\n"
        "print(n, time.perf_counter() - began, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)"
    )
    command = [sys.executable, "-c", program, str(root / "many-out")]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    return {
        "shards": copies,
        "windows": int(said[0]),
        "seconds": round(float(said[1]), 3),
        "mib": round(int(said[2]) / 1024, 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="small sizes, one repetition")
    parser.add_argument("--json", action="store_true", help="one JSON document")
    parser.add_argument("--peers", metavar="PYTHON", help="interpreter with tokenizers, datasets and datatrove")
    parser.add_argument("--data", type=Path, help="JSON Lines with a `text`, instead of generated text")
    options = parser.parse_args()
    keep_freed_memory()  # as the command does
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        source = options.data or root / "text.jsonl"
        if not options.data:
            write_text(source, 4_000_000 if options.quick else 60_000_000)
        lines = source.read_bytes().splitlines(keepends=True)
        for number in range(4):
            (root / f"data{number}.jsonl").write_bytes(b"".join(lines[number::4]))
        sample = [json.loads(line)["text"] for line in (root / "data0.jsonl").open(encoding="utf-8")][:2000]
        train(TrainSpec(variant="classical", vocab_size=2048 if options.quick else 8192), {"d": sample})[0].save(
            root / "tokenizer.json"
        )
        times = 1 if options.quick else 3
        found = {
            "build": bench_build(root, times, options.peers),
            "read": bench_read(root, times),
            "open": bench_open(root, 10**6 if options.quick else 10**8),
        }
    if options.json:
        print(json.dumps(found, indent=1))
        return
    for name, rows in found.items():
        print(name)
        for row, values in rows.items():
            print(f"  {row:32} {values}")


if __name__ == "__main__":
    main()
