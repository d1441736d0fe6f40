"""Training with what can go wrong: a swap of the weights, a crash of the server, a crash of the trainers.

Two ranks train; the weights are set while they do; the server is killed and started again under them; then both ranks
are killed, and four go on from their checkpoint. The trainers' records say what was received at every step.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from headrace.client.cli.demo.configs import BATCH, Addresses
from headrace.client.cli.demo.console import say
from headrace.client.cli.demo.processes import Child, Children, DemoError, free_port, wait_until_listening
from headrace.client.cli.demo.records import Record, read_records

RUN = "demo"
TRAINER = "headrace.client.cli.demo.trainer"
_STEPS_BETWEEN = 12
# Most of it is for the start of the ranks, which import torch at once: 40 s on a machine that is busy sevenfold.
_PATIENCE_S = 240.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Trainers:
    """The ranks of one attempt and the file that they record in."""

    ranks: list[Child]
    file: Path

    def steps(self) -> int:
        """Number of the last step recorded plus one; 0 before the first."""
        records = self.records()
        return records[-1].step + 1 if records else 0

    def records(self) -> list[Record]:
        return read_records(self.file)

    def wait_for_step(self, step: int) -> None:
        """Wait until `step` steps are recorded; DemoError when a rank ends before, or none comes for minutes."""
        seen, since = self.steps(), time.monotonic()
        while seen < step:
            for child in self.ranks:
                child.check_alive()
            time.sleep(0.02)
            now = self.steps()
            if now == seen and time.monotonic() - since > _PATIENCE_S:
                raise DemoError(
                    f"the trainers recorded no step for {_PATIENCE_S:.0f} s ({seen} so far in `{self.file}`); see "
                    f"`{self.ranks[0].log}` and the server's log beside it, and try again when the machine is idle"
                )
            if now != seen:
                seen, since = now, time.monotonic()

    def kill(self) -> None:
        """SIGKILL for all ranks."""
        for child in self.ranks:
            child.kill()

    def wait(self, timeout_s: float) -> None:
        """Wait until every rank has ended well."""
        for child in self.ranks:
            child.wait(timeout_s)


def start_server(children: Children, addresses: Addresses) -> Child:
    """Start `headrace serve` and wait until it answers."""
    (children.folder / "store").mkdir(exist_ok=True)
    server = children.start_headrace("server", "serve", "configs/SERVER.toml")
    wait_until_listening(server, addresses.server)
    wait_until_listening(server, addresses.metrics)
    return server


def start_trainers(children: Children, address: str, *, world: int, attempt: int) -> Trainers:
    """Start `world` ranks as torchrun would, with its variables."""
    for name in ("steps", "checkpoint"):
        (children.folder / name).mkdir(exist_ok=True)
    port = str(free_port())
    shared = {"WORLD_SIZE": str(world), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "OMP_NUM_THREADS": "1"}
    shared |= {"TORCHELASTIC_RUN_ID": "headrace-demo", "TORCHELASTIC_RESTART_COUNT": str(attempt)}
    argv = [sys.executable, "-m", TRAINER, address, RUN, str(children.folder)]
    ranks = [
        children.start(f"trainer-{attempt}-{rank}", argv, env={**shared, "RANK": str(rank), "LOCAL_RANK": str(rank)})
        for rank in range(world)
    ]
    say(f"attempt {attempt}: {world} ranks, {BATCH // world} of {BATCH} rows of each step a rank")
    return Trainers(ranks=ranks, file=children.folder / f"steps/attempt-{attempt}.jsonl")


def train_through_faults(
    children: Children, addresses: Addresses, server: Child, swap: Callable[[], int], *, steps: int
) -> tuple[list[list[Record]], int]:
    """The records of both attempts, and the step from which `swap` says that its weights hold."""
    first = start_trainers(children, addresses.server, world=2, attempt=0)
    first.wait_for_step(_STEPS_BETWEEN)
    swapped = swap()
    first.wait_for_step(swapped + _STEPS_BETWEEN)
    server.kill()
    say(f"server killed (SIGKILL) at step {first.steps()}; the trainers wait")
    time.sleep(1.0)
    start_server(children, addresses)
    first.wait_for_step(first.steps() + _STEPS_BETWEEN)
    first.kill()
    say(f"both trainers killed (SIGKILL) at step {first.steps()}")
    second = start_trainers(children, addresses.server, world=4, attempt=1)
    second.wait_for_step(1)
    second.wait(_PATIENCE_S * 2)
    attempts = [first.records(), second.records()]
    _say_losses(attempts)
    if second.steps() != steps:
        raise DemoError(f"the run has {steps} steps and the trainers ended after {second.steps()}")
    return attempts, swapped


def _say_losses(attempts: list[list[Record]]) -> None:
    before, after = attempts
    say(
        f"attempt 0: steps {before[0].step} to {before[-1].step}, loss {before[0].loss:.2f} to {before[-1].loss:.2f}; "
        f"attempt 1: steps {after[0].step} to {after[-1].step}, loss {after[0].loss:.2f} to {after[-1].loss:.2f}"
    )


def swapped_weights(weights: Mapping[str, float]) -> dict[str, float]:
    """Another mixture of the same domains: three times the part of English, twice that of code and docs."""
    factors = {"eng": 3.0, "code": 2.0, "docs": 2.0}
    parts = {name: weight * factors.get(name, 1.0) for name, weight in weights.items()}
    total = sum(parts.values())
    return {name: part / total for name, part in parts.items()}
