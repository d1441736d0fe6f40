"""Time to the first batch of a trainer that resumes far into a run: the client beside the loaders of its peers.

    python tests/bench/bench_client_resume.py --peers PYTHON [--steps 100000] [--folder DIR] [--quick] [--json]

PYTHON is as for `bench_client_peers.py`. Every tool really takes all the steps and saves its own state; then fresh
processes, with everything imported, make the loader, give it that state and take one batch. Steps have 2 rows of 128
ids, so that each tool is soon there: what one does for each row or window that it passes is as much less. Tools take
turns; figures are medians. With `--folder` data and states are kept: reaching the step takes minutes, and a second call
with the same folder goes straight to the timing.

Headrace's time has in it a connection, the lease taken in the server's store on disk, and a stream; the others open
files on this machine. `observe` is the same without a lease: what an evaluation pays, and what the network alone costs.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
from bench_client_peers import ask, build, export  # noqa: E402
from client_peers import TOOLS as PEERS  # noqa: E402

SEQ_LEN, BATCH = 128, 2
OURS = ("Headrace", "Headrace, observe")
TOOLS = [tool for tool in PEERS if "documents" not in tool]  # that resumes as torchdata's other row does


def reach(address: str, steps: int, saved: Path) -> dict[str, float]:
    """Headrace's client takes so many steps, in a process of its own."""
    from headrace.client.torch import Loader

    begun = time.perf_counter()
    with Loader(address, "r", takeover=True) as loader:
        for _ in range(steps):
            next(loader)
        state = json.dumps(loader.state_dict())
    saved.write_text(state)
    return {"reached_s": time.perf_counter() - begun, "state_bytes": len(state)}


def resume(address: str, mode: str, saved: Path) -> dict[str, float]:
    """Seconds until the first batch, in a process of its own."""
    from client_peers import touch
    from headrace.client.torch import Loader

    state = json.loads(saved.read_text())
    begun = time.perf_counter()
    loader = Loader(address, "r", takeover=mode == "train", mode=mode)
    loader.load_state_dict(state)
    batch = next(loader)
    touch(batch.input_ids)
    taken = time.perf_counter() - begun
    assert batch.step == state["next_step"]
    loader.close()
    return {"resume_s": taken}


def prepare(folder: Path, peers: str | None) -> Path:
    """Data in every tool's format; what is there already is kept."""
    manifest, data = folder / "corpus" / "manifest.json", folder / "data"
    if not (data / "meta.json").exists():
        manifest = build(folder, quick=True)
        export(manifest, data, SEQ_LEN, BATCH)
        (folder / "manifest.txt").write_text(str(manifest))
    for tool in TOOLS:
        mark = folder / f"converted-{tool}"
        if peers and not mark.exists():
            answer = ask([peers, str(HERE / "client_peers.py"), "convert", tool, str(data)])
            if "skip" not in answer:
                mark.touch()
    return Path((folder / "manifest.txt").read_text())


def measure(folder: Path, peers: str | None, steps: int, quick: bool) -> dict[str, dict[str, Any]]:
    from rig import serving, write_run

    manifest = prepare(folder, peers)
    script, data = str(HERE / "client_peers.py"), str(folder / "data")
    results: dict[str, dict[str, Any]] = {}
    commands: dict[str, list[str]] = {}
    run = write_run(folder, manifest, seq_len=SEQ_LEN, batch=BATCH, steps=max(1_000_000, 2 * steps))
    with serving(folder, [run]) as server:
        for tool in TOOLS:
            saved = folder / f"state-{tool}-{steps}"
            results[tool] = reached(saved, [peers or "", script, "reach", tool, data, str(steps), str(saved)], peers)
            commands[tool] = [peers or "", script, "run", tool, data, "0", str(saved)]
        saved = folder / f"state-headrace-{steps}"
        command = [sys.executable, __file__, "--child", server.address]
        state = reached(saved, [*command, "reach", str(steps), str(saved)], sys.executable)
        for name, mode in zip(OURS, ("train", "observe"), strict=True):
            results[name], commands[name] = dict(state), [*command, "resume", mode, str(saved)]
        times: dict[str, list[float]] = {name: [] for name, found in results.items() if "skip" not in found}
        for _ in range(1 if quick else 7):
            for name in list(times):
                answer = ask(commands[name])
                if "skip" in answer:
                    results[name] = answer
                    del times[name]
                else:
                    times[name].append(answer["resume_s"])
    for name, several in times.items():
        results[name] |= {"resume_s": statistics.median(several), "slowest_s": max(several)}
    return results


def reached(saved: Path, command: list[str], interpreter: str | None) -> dict[str, Any]:
    """What was measured on the way to the step, now or when the folder was made."""
    kept = saved.with_name(saved.name + ".json")
    if not interpreter:
        return {"skip": "no --peers interpreter"}
    if not kept.exists():
        answer = ask(command)
        if "skip" in answer:
            return answer
        kept.write_text(json.dumps(answer))
    found: dict[str, Any] = json.loads(kept.read_text())
    return found


def table(results: dict[str, dict[str, Any]], steps: int) -> list[str]:
    lines = [f"{f'at step {steps:,}':22} first batch ms   slowest ms   state bytes   s to get there"]
    shown = [item for item in results.items() if "skip" not in item[1]]
    for name, row in sorted(shown, key=lambda item: item[1]["resume_s"]):
        lines.append(
            f"{name:22} {row['resume_s'] * 1e3:>14.1f} {row['slowest_s'] * 1e3:>12.1f} {row['state_bytes']:>13,} "
            f"{row['reached_s']:>16.0f}"
        )
    return lines + [f"{name:22} left out: {row['skip']}" for name, row in results.items() if "skip" in row]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peers", help="interpreter with the other loaders")
    parser.add_argument("--steps", type=int, help="default 100,000, with --quick 500")
    parser.add_argument("--folder", type=Path, help="keeps data and states")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--child", nargs=4, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        address, action, what, saved = arguments.child
        found = reach(address, int(what), Path(saved)) if action == "reach" else resume(address, what, Path(saved))
        print(json.dumps(found))
        return
    steps = arguments.steps or (500 if arguments.quick else 100_000)
    with tempfile.TemporaryDirectory() as name:
        folder = arguments.folder or Path(name)
        folder.mkdir(parents=True, exist_ok=True)
        results = measure(folder, arguments.peers, steps, arguments.quick)
    print(json.dumps(results, indent=2) if arguments.json else "\n".join(table(results, steps)))


if __name__ == "__main__":
    main()
