"""Runs a training program under torchrun, kills its processes, and checks what it has trained on."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from toy_server import Toy, ToyServer, step_digests


@dataclass
class Training:
    """One torchrun of a module."""

    process: subprocess.Popen[str]
    trace: Path
    log: Path

    def lines(self) -> list[dict[str, Any]]:
        text = self.trace.read_text(encoding="utf-8") if self.trace.exists() else ""
        return [json.loads(line) for line in text.splitlines() if line.endswith("}")]

    def wait_for_step(self, step: int, *, seconds: float = 120) -> None:
        until = time.monotonic() + seconds
        while not any(line["step"] >= step for line in self.lines()):
            assert self.process.poll() is None, self.log.read_text()
            assert time.monotonic() < until, self.log.read_text()
            time.sleep(0.02)

    def kill_a_rank(self) -> None:
        os.kill(self.lines()[-1]["pid"], signal.SIGKILL)

    def kill_all(self) -> None:
        for pid in {line["pid"] for line in self.lines()}:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        self.process.kill()
        self.process.wait()

    def finish(self, *, seconds: float = 120) -> str:
        assert self.process.wait(seconds) == 0, self.log.read_text()
        return self.log.read_text()


def start(
    module: str, server: ToyServer, folder: Path, *, ranks: int, restarts: int = 0, steps: int | None = None
) -> Training:
    """torchrun with a run id of its own."""
    folder.mkdir(parents=True, exist_ok=True)
    trace, log = folder / "trace.jsonl", folder / f"log-{time.monotonic_ns()}.txt"
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks)]
    launcher += ["--max-restarts", str(restarts), "--monitor-interval", "0.1"]
    steps = server.service.toy.end if steps is None else steps
    arguments = [server.address, "toy", "--steps", str(steps)]
    arguments += ["--folder", str(folder / "checkpoints"), "--trace", str(trace)]
    environ = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore", "TOKENIZERS_PARALLELISM": "false"}
    with log.open("w") as output:
        process = subprocess.Popen(
            [sys.executable, *launcher, "-m", module, *arguments],
            stdout=output,
            stderr=subprocess.STDOUT,
            text=True,
            env=environ,
            cwd=folder,
        )
    return Training(process=process, trace=trace, log=log)


def assert_trained_as_planned(training: Training, toy: Toy) -> None:
    """Every step was trained on whole; whatever was trained on twice was the same both times."""
    seen: dict[int, dict[int, str]] = {step: {} for step in range(toy.end)}
    for line in training.lines():
        expected = step_digests(toy, line["step"]).hex()
        begin = 32 * line["slot"]
        assert line["rows"] == expected[begin : begin + len(line["rows"])], f"step {line['step']}"
        for row in range(len(line["rows"]) // 32):
            seen[line["step"]][line["slot"] + row] = line["rows"][32 * row : 32 * row + 32]
    for step, rows in seen.items():
        assert sorted(rows) == list(range(toy.shape(step)[0])), f"step {step} was not trained on whole"
