"""The demo itself: the whole path in real processes, from raw text to the proof. It is the acceptance test."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from headrace.client.cli.demo.folder import MARKER, OWN
from headrace.client.cli.demo.path import STEPS

HEADRACE = [sys.executable, "-m", "headrace.client.cli"]
STAGES = ("text", "tokenizers", "corpus", "weights", "training", "proof", "report")


def processes_in(folder: Path) -> list[str]:
    """Command lines of the processes that work in the folder."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and (entry / "cwd").resolve() == folder:
                found.append((entry / "cmdline").read_bytes().replace(b"\0", b" ").decode())
        except OSError:
            continue  # it ended while we looked, or is not ours
    return found


@pytest.mark.timeout(900)
def test_the_demo_runs_and_proves_its_stream(tmp_path: Path) -> None:
    folder = tmp_path / "out"
    done = subprocess.run(
        [*HEADRACE, "demo", "--out", folder], capture_output=True, text=True, timeout=880, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""
    assert processes_in(folder) == []
    for number, stage in enumerate(STAGES, start=1):
        assert f"[{number}/{len(STAGES)}] {stage}: " in done.stdout
    assert f"all {STEPS} step digests are equal" in done.stdout
    swapped = re.search(r"a swap at exactly step (\d+)", done.stdout)
    assert swapped
    assert f"the new weights hold from step {swapped[1]} on" in done.stdout
    assert {path.name for path in folder.iterdir()} == OWN
    _check_table(done.stdout)
    _check_records(folder)


def _check_table(printed: str) -> None:
    """16 domains with shares that sum to 1, and tokens of all steps."""
    header = "domain  target share  realized share  epochs"
    rows = [line.split() for line in printed[printed.index(header) :].splitlines()[2:18]]
    assert len({row[0] for row in rows}) == 16
    assert sum(float(row[1]) for row in rows) == pytest.approx(1, abs=0.002)
    assert all(float(row[1]) == pytest.approx(float(row[2]), abs=0.002) for row in rows)
    total = sum(int(row[4].replace(",", "")) for row in rows)
    assert 0.95 * STEPS * 16 * 128 < total <= STEPS * 16 * 128


def _check_records(folder: Path) -> None:
    """Two attempts, the second from where the checkpoint of the first stood; the loss fell over both."""
    attempts = [
        [json.loads(line) for line in (folder / f"steps/attempt-{n}.jsonl").read_text().splitlines()] for n in (0, 1)
    ]
    first, second = ([record["step"] for record in records] for records in attempts)
    assert first == list(range(len(first)))
    assert second == list(range(second[0], STEPS))
    assert second[0] in (len(first) - 1, len(first))  # recorded before the checkpoint, so one step may come again
    assert attempts[1][-1]["loss"] < attempts[0][0]["loss"] - 1


@pytest.mark.timeout(300)
def test_an_interrupted_demo_leaves_no_process(tmp_path: Path) -> None:
    folder = tmp_path / "out"
    demo = subprocess.Popen(
        [*HEADRACE, "demo", "--out", folder], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    deadline = time.monotonic() + 200
    while not (folder / "logs/server.log").exists():
        assert demo.poll() is None, demo.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.05)
    demo.send_signal(signal.SIGINT)
    demo.communicate(timeout=60)
    assert demo.returncode not in (0, None)
    assert processes_in(folder) == []
    assert (folder / MARKER).exists()


def test_a_folder_of_somebody_else_is_wrong_use(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("years of work")
    done = subprocess.run([*HEADRACE, "demo", "--out", tmp_path], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "thesis.tex" in done.stderr
    assert "Traceback" not in done.stderr
    assert os.listdir(tmp_path) == ["thesis.tex"]
