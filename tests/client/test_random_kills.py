"""Four ranks and the real server, each killed at random moments: what was received equals what was planned."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest
from corpora import build_small_corpus
from headrace.native import step_digest
from rig import ServerProcess, planned_digests, serving, write_run

WORLD = 4
PROGRAM = Path(__file__).with_name("rank_program.py")
SLOW = [pytest.mark.slow, pytest.mark.skipif(not os.environ.get("HEADRACE_SLOW"), reason="set HEADRACE_SLOW=1")]


class Ranks:
    """The processes of a job's ranks; one that was killed is started again."""

    def __init__(self, server: ServerProcess, folder: Path) -> None:
        self._server, self._folder = server, folder
        self._processes = [self._start(rank) for rank in range(WORLD)]

    def _start(self, rank: int) -> subprocess.Popen[bytes]:
        command = [sys.executable, str(PROGRAM), self._server.address, "r", str(rank), str(WORLD), str(self._folder)]
        with (self._folder / f"log-{rank}.txt").open("a") as log:
            return subprocess.Popen(command, stdout=log, stderr=log)

    def kill(self, rank: int) -> None:
        self._processes[rank].kill()
        self._processes[rank].wait()
        self._processes[rank] = self._start(rank)

    def steps(self) -> int:
        """The step that every rank has reached."""
        return min(max(self.received(rank), default=-1) for rank in range(WORLD))

    def received(self, rank: int) -> dict[int, str]:
        """Digests by step; a step received again has to be the same again."""
        found: dict[int, str] = {}
        path = self._folder / f"trace-{rank}.jsonl"
        for line in path.read_text().splitlines() if path.exists() else []:
            if line.endswith("}"):
                item = json.loads(line)
                assert found.setdefault(item["step"], item["rows"]) == item["rows"], f"rank {rank} step {item['step']}"
        return found

    def finish(self) -> None:
        for rank, process in enumerate(self._processes):
            assert process.wait(400) == 0, (self._folder / f"log-{rank}.txt").read_text()[-3000:]

    def stop(self) -> None:
        for process in self._processes:
            process.kill()
            process.wait()


@pytest.mark.timeout(2400)
@pytest.mark.parametrize("kills", [5, pytest.param(50, marks=SLOW)])
def test_killed_at_random(tmp_path: Path, kills: int) -> None:
    seed = random.randrange(2**32)
    chance = random.Random(seed)
    steps = 60 + 40 * kills
    corpus = build_small_corpus(tmp_path)
    with serving(tmp_path, [write_run(tmp_path, corpus=corpus, steps=steps)]) as server:
        ranks = Ranks(server, tmp_path)
        try:
            for kill in range(kills):
                wait_until(ranks, 20 + 40 * kill)
                time.sleep(chance.uniform(0, 0.2))
                victim = chance.randrange(WORLD + 2)
                if victim < WORLD:
                    ranks.kill(victim)
                else:
                    server.kill()
                    time.sleep(chance.uniform(0, 0.3))
                    server.start()
            ranks.finish()
        finally:
            ranks.stop()
        received = [ranks.received(rank) for rank in range(WORLD)]
        planned = planned_digests(server.store, "r", f"0:{steps}")
    for step in range(steps):
        whole = step_digest(bytes.fromhex("".join(rows[step] for rows in received)))
        assert whole == planned[step], f"step {step} differs (seed {seed})"


def wait_until(ranks: Ranks, step: int) -> None:
    until = time.monotonic() + 300
    while ranks.steps() < step:
        assert time.monotonic() < until, f"step {step} was not reached: {ranks.steps()}"
        time.sleep(0.02)
