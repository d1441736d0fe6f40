"""Runs a training program on several ranks, kills them, starts them again, and checks what they have trained on."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from headrace.native import step_digest

QUIET = {"OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore", "TOKENIZERS_PARALLELISM": "false"}


@dataclass
class Training:
    """Processes of one launch (its ranks, or one torchrun), and the trace that all launches in a folder write."""

    folder: Path
    processes: list[subprocess.Popen[str]] = field(default_factory=list)

    @property
    def trace(self) -> Path:
        return self.folder / "trace.jsonl"

    def lines(self) -> list[dict[str, Any]]:
        text = self.trace.read_text(encoding="utf-8") if self.trace.exists() else ""
        return [json.loads(line) for line in text.splitlines() if line.endswith("}")]

    def logs(self) -> str:
        return "\n".join(path.read_text() for path in sorted(self.folder.glob("log-*.txt")))

    def spawn(self, command: list[str], environ: dict[str, str]) -> None:
        number = len(list(self.folder.glob("log-*.txt")))
        with (self.folder / f"log-{number:03}.txt").open("w") as log:
            process = subprocess.Popen(
                [sys.executable, *command],
                stdout=log,
                stderr=subprocess.STDOUT,
                text=True,
                env=os.environ | QUIET | environ,
                cwd=self.folder,
            )
        self.processes.append(process)

    def wait_for_step(self, step: int, *, seconds: float = 800) -> None:
        until = time.monotonic() + seconds
        while not any(line["step"] >= step for line in self.lines()):
            assert all(process.poll() is None for process in self.processes), self.logs()
            assert time.monotonic() < until, self.logs()
            time.sleep(0.02)

    def kill_a_rank(self) -> None:
        os.kill(self.lines()[-1]["pid"], signal.SIGKILL)

    def kill(self) -> None:
        """SIGKILL to everything."""
        for process in self.processes:
            process.kill()
            process.wait()

    def finish(self, *, seconds: float = 800) -> None:
        for process in self.processes:
            assert process.wait(seconds) == 0, self.logs()

    def __enter__(self) -> Training:
        return self

    def __exit__(self, *exc: object) -> None:
        self.kill()


def _program(module: str, address: str, folder: Path, steps: int) -> list[str]:
    arguments = [address, "r", "--steps", str(steps), "--folder", str(folder / "checkpoints")]
    program = [module] if module.endswith(".py") else ["-m", module]
    return [*program, *arguments, "--trace", str(folder / "trace.jsonl")]


def ranks_environ(ranks: int, *, attempt: int) -> list[dict[str, str]]:
    """The variables that torchrun sets for each rank."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    same = {
        "WORLD_SIZE": ranks,
        "LOCAL_WORLD_SIZE": ranks,
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": port,
        "TORCHELASTIC_RUN_ID": "training",
        "TORCHELASTIC_RESTART_COUNT": attempt,
    }
    own = ({"RANK": rank, "LOCAL_RANK": rank} for rank in range(ranks))
    return [{key: str(value) for key, value in (same | mine).items()} for mine in own]


def start(module: str, address: str, folder: Path, *, ranks: int, steps: int, attempt: int = 0) -> Training:
    """The ranks of one attempt, with the variables that torchrun sets."""
    training = Training(folder)
    for environ in ranks_environ(ranks, attempt=attempt):
        training.spawn(_program(module, address, folder, steps), environ)
    return training


def torchrun(module: str, address: str, folder: Path, *, ranks: int, steps: int, restarts: int) -> Training:
    """The same under a real torchrun, which starts ranks again when one dies."""
    training = Training(folder)
    options = ["--standalone", "--nproc-per-node", str(ranks), "--max-restarts", str(restarts)]
    command = ["-m", "torch.distributed.run", *options, "--monitor-interval", "0.1"]
    # torch's agent keeps one store over restarts, and gloo then finds the addresses of the attempt before in it.
    environ = {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
    training.spawn([*command, *_program(module, address, folder, steps)], environ)
    return training


def assert_trained_as_planned(training: Training, planned: Mapping[int, bytes]) -> None:
    """Every step was trained on whole and as planned; whatever was trained on twice was the same both times."""
    seen: dict[int, dict[int, str]] = {step: {} for step in planned}
    for line in training.lines():
        for row in range(len(line["rows"]) // 32):
            digest, slot = line["rows"][32 * row : 32 * row + 32], line["slot"] + row
            assert seen[line["step"]].setdefault(slot, digest) == digest, f"step {line['step']} slot {slot}"
    for step, rows in seen.items():
        assert sorted(rows) == list(range(len(rows))), f"step {step} was not trained on whole"
        whole = bytes.fromhex("".join(rows[slot] for slot in sorted(rows)))
        assert step_digest(whole) == planned[step], f"step {step} is not what was planned"


def first_steps(training: Training, attempt_pids: set[int]) -> set[int]:
    """The step at which each of these processes began."""
    steps: dict[int, int] = {}
    for line in training.lines():
        if line["pid"] in attempt_pids:
            steps.setdefault(line["pid"], line["step"])
    return set(steps.values())
