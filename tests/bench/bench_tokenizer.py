"""Training and encoding, side by side with other programs: `bench_tokenizer.py [--quick] [--json] [--peers PYTHON] ...`

    --peers PYTHON   an interpreter that has other tokenizers; those it lacks are skipped, with the reason
    --data FOLDER    FOLDER/train/LANG.txt, FOLDER/dev/LANG.txt (aligned lines), FOLDER/code.txt; generated text without
    --tools A,B      only these (see `tokenizer_peers.py`), beside this project's own
    --vocab N        size of the vocabularies (8192)
    --job encode|train|both, --mb N   megabytes of text of each set that is encoded

Every measurement is a process of its own; the tools take turns, five rounds (one with --quick), and the figure is the
median. MB are UTF-8. Seconds are CPU seconds on one thread, which neighbours on the machine disturb least, and wall
seconds on two; a ratio is this project's speed over the peer's. What two threads could give at best is measured beside
them: two processes that only count, against one. All encode with the same tokenizer.json (GPT-2's pattern) and must
give as many ids.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from headrace.tokenizer.spec import TrainSpec
from headrace.tokenizer.train import train
from tokenizer_peers import ENCODERS, TRAINERS

SCRIPT = Path(__file__).resolve().parent / "tokenizer_peers.py"
DOCUMENT = 4096
_ALPHABETS = {
    "eng": "etaoinshrdlu", "deu": "enisratdhuläöü", "ell": "αοιετσνηυρπκ", "rus": "оеаинтсрвлкм",
    "hin": "करतनमसहलपबािीे", "tha": "กรนมอาสวทยงดเแ", "zho": "的一是不了人我在有他这中大来上", "ara": "اليمونرتبةعدس",
}  # fmt: skip


def generate(folder: Path, size: int) -> None:
    """Text of several scripts, the words by a Zipf law; development lines of as many words in each."""
    for part in ("train", "dev"):
        (folder / part).mkdir(parents=True)
    for number, (name, letters) in enumerate(_ALPHABETS.items()):
        rng = random.Random(number)
        words = ["".join(rng.choices(letters, k=rng.randint(1, 9))) for _ in range(20_000)]
        weights = [1 / rank for rank in range(1, len(words) + 1)]
        lines = [" ".join(rng.choices(words, weights, k=30)) + ".\n" for _ in range(max(size // 1200, 60))]
        (folder / "train" / f"{name}.txt").write_text("".join(lines[50:]), encoding="utf-8")
        (folder / "dev" / f"{name}.txt").write_text("".join(lines[:50]), encoding="utf-8")
    code = "".join(path.read_text(encoding="utf-8") for path in sorted(SCRIPT.parent.glob("*.py")))
    (folder / "code.txt").write_text(code, encoding="utf-8")


def documents(texts: list[str], size: int) -> list[str]:
    """Documents of about 4 KB, as much from each text, shuffled."""
    found = []
    for text in texts:
        part = text.encode()[: size // len(texts)].decode(errors="ignore")
        lines, kept = part.split("\n"), []
        length = 0
        for line in lines:
            kept.append(line)
            length += len(line.encode()) + 1
            if length >= DOCUMENT:
                found.append("\n".join(kept))
                kept, length = [], 0
        found.append("\n".join(kept))
    random.Random(0).shuffle(found)
    return found


def sets(folder: Path, size: int) -> dict[str, list[str]]:
    """Texts to encode, by the name of the set."""

    def read(path: Path) -> str:
        return path.read_text(encoding="utf-8")

    languages = sorted((folder / "train").glob("*.txt"))
    english = folder / "train" / "eng.txt"
    short = [line for path in sorted((folder / "dev").glob("*.txt")) for line in read(path).splitlines()]
    random.Random(1).shuffle(short)
    return {
        "mix": documents([read(path) for path in languages], size),
        "english": documents([read(english if english.exists() else languages[0])], size),
        "code": documents([read(folder / "code.txt")], size),
        "short lines": short,
    }


def run(python: str, *arguments: str) -> dict[str, Any] | str:
    """What a tool said, or why it said nothing."""
    try:
        done = subprocess.run(
            [python, str(SCRIPT), *arguments], capture_output=True, text=True, check=False, timeout=1800
        )
    except subprocess.TimeoutExpired:
        return "took more than half an hour"
    if done.returncode:
        return done.stderr.strip().splitlines()[-1] if done.stderr.strip() else f"exit code {done.returncode}"
    found: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return found


def rounds(tools: list[str], peers: str | None, times: int, job: str, *arguments: str) -> dict[str, Any]:
    """Medians of each tool, the tools taking turns."""
    seen: dict[str, list[dict[str, Any]]] = {}
    skipped: dict[str, str] = {}
    for number in range(times):
        for tool in (tool for tool in tools if tool not in skipped):
            print(f"{job} round {number + 1} of {times}: {tool}", file=sys.stderr)
            python = sys.executable if tool.startswith("headrace") else peers
            found = run(python, job, tool, *arguments) if python else "no interpreter was given (--peers)"
            if isinstance(found, str):
                skipped[tool] = found
            else:
                seen.setdefault(tool, []).append(found)
    medians = {
        tool: {key: statistics.median(row[key] for row in rows) for key in rows[0]} for tool, rows in seen.items()
    }
    return {"medians": medians, "skipped": skipped}


def bench_encode(
    folder: Path, tools: list[str], peers: str | None, times: int, size: int, vocabulary: int
) -> dict[str, Any]:
    texts = {path.stem: [path] for path in sorted((folder / "train").glob("*.txt"))}
    spec = TrainSpec(vocab_size=vocabulary, variant="classical", pretokenizer="gpt2", allow_smaller=True)
    train(spec, texts)[0].save(folder / "bench.json")
    found: dict[str, Any] = {}
    for name, part in sets(folder, size).items():
        (folder / "texts.json").write_text(json.dumps(part), encoding="utf-8")
        megabytes = sum(len(text.encode()) for text in part) / 1e6
        for threads in (1, 2):
            timed = rounds(
                tools,
                peers,
                times,
                "encode",
                str(folder / "bench.json"),
                str(folder / "texts.json"),
                str(threads),
            )
            found[f"{name}, {threads} thread{'s' * (threads > 1)}"] = rates(timed, megabytes, threads)
            if threads > 1:
                found[f"{name}, {threads} threads"]["two processes that count"] = {"speed over one": two_over_one()}
    return found


def two_over_one() -> float:
    """How much faster two processes count than one does, at this moment."""
    command = [sys.executable, "-c", "sum(range(20_000_000))"]

    def seconds(processes: int) -> float:
        start = time.perf_counter()
        running = [subprocess.Popen(command) for _ in range(processes)]
        for process in running:
            process.wait()
        return time.perf_counter() - start

    return round(2 * min(seconds(1), seconds(1)) / min(seconds(2), seconds(2)), 2)


def rates(timed: dict[str, Any], megabytes: float, threads: int) -> dict[str, Any]:
    """MB a second and the ratios; a tool that gives another number of ids is named."""
    rows, ours = timed["medians"], timed["medians"]["headrace"]
    out: dict[str, Any] = {"megabytes": round(megabytes, 2), "skipped": timed["skipped"]}
    clock = "" if threads == 1 else "_wall"
    for tool, row in rows.items():
        out[tool] = {
            key: round(megabytes / row[key], 1) for key in ("cold", "warm", "cold_wall", "warm_wall") if row[key]
        }
        if tool != "headrace":
            keys = [key for key in ("cold", "warm") if ours[key + clock]]
            out[tool] |= {f"ratio_{key}": round(row[key + clock] / ours[key + clock], 2) for key in keys}
            if row["tokens"] not in (0, ours["tokens"]):
                out[tool]["other_ids"] = row["tokens"] - ours["tokens"]
    return out


def bench_train(folder: Path, tools: list[str], peers: str | None, times: int, vocabulary: int) -> dict[str, Any]:
    timed = rounds(tools, peers, times, "train", str(vocabulary), str(folder), "1")
    out: dict[str, Any] = {"skipped": timed["skipped"]}
    for tool, row in timed["medians"].items():
        rival = timed["medians"].get("headrace classical" if TRAINERS[tool][1] == "classical" else "headrace base")
        out[tool] = {
            "cpu_seconds": round(row["cold"], 2), "wall_seconds": round(row["cold_wall"], 2),
            "rss_mb": round(row["rss_mb"]), "ids": row["tokens"],
        }  # fmt: skip
        if rival and not tool.startswith("headrace"):
            out[tool]["ratio"] = round(row["cold"] / rival["cold"], 2)
    return out


def show(found: dict[str, Any]) -> None:
    for job, parts in found.items():
        for name, rows in (parts if job == "encode" else {"": parts}).items():
            print(f"{job} {name}".rstrip())
            for tool, row in rows.items():
                if isinstance(row, dict) and tool != "skipped":
                    print(f"  {tool:<34}" + "  ".join(f"{key} {value}" for key, value in row.items()))
            for tool, reason in rows["skipped"].items():
                print(f"  {tool:<34}skipped: {reason}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--peers")
    parser.add_argument("--data", type=Path)
    parser.add_argument("--vocab", type=int, default=8192)
    parser.add_argument("--job", choices=["encode", "train", "both"], default="both")
    parser.add_argument("--mb", type=float)
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--tools")
    options = parser.parse_args()
    times = options.rounds or (1 if options.quick else 5)
    size = int((options.mb or (0.8 if options.quick else 14)) * 1e6)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        if options.data:
            for path in options.data.iterdir():
                (folder / path.name).symlink_to(path.resolve())
        else:
            generate(folder, size // 4)
        wanted = options.tools.split(",") if options.tools else None
        encoders, trainers = (
            [tool for tool in tools if wanted is None or tool in wanted or tool.startswith("headrace")]
            for tools in (ENCODERS, TRAINERS)
        )
        found: dict[str, Any] = {}
        if options.job != "train":
            found["encode"] = bench_encode(folder, encoders, options.peers, times, size, options.vocab)
        if options.job != "encode":
            found["train"] = bench_train(folder, trainers, options.peers, times, options.vocab)
    print(json.dumps(found)) if options.json else show(found)


if __name__ == "__main__":
    main()
