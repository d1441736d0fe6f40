"""A container with next to no /dev/shm: loaders put nothing there, so batches far larger than it arrive."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from corpora import build_small_corpus
from rig import serving, write_run

PROGRAM = """
import os, sys
from headrace.client.torch import Loader
space = os.statvfs("/dev/shm")
assert space.f_blocks * space.f_frsize <= 65536, "this test must run with a small /dev/shm"
with Loader(sys.argv[1], "r", rank=0, world=1, job="j", attempt=0) as loader:
    batches = [(batch.step, batch.input_ids.shape) for batch in loader]
assert [step for step, _ in batches] == list(range(6)), batches
assert set(shape for _, shape in batches) == {(256, 4096)}, batches
print("all came")
"""


def _why_not() -> str:
    if os.getuid() != 0 or shutil.which("unshare") is None:
        return "mounting a small /dev/shm needs root and unshare"
    tried = subprocess.run(["unshare", "--mount", "true"], capture_output=True, check=False)
    return "" if tried.returncode == 0 else "no mount namespace can be made here"


@pytest.mark.skipif(bool(_why_not()), reason=_why_not() or "-")
def test_batches_larger_than_shared_memory_arrive(tmp_path: Path) -> None:
    corpus = build_small_corpus(tmp_path, documents={"a": 300, "b": 300, "c": 100})
    with serving(tmp_path, [write_run(tmp_path, corpus, steps=6, seq_len=4096, batch=256)]) as server:
        small = 'mount -t tmpfs -o size=64k tmpfs /dev/shm && exec "$@"'
        command = ["unshare", "--mount", "sh", "-c", small, "sh", sys.executable, "-c", PROGRAM, server.address]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stdout) == (0, "all came\n"), done.stderr[-3000:]
