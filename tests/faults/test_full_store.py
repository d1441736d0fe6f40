"""A control store whose disk is full: nothing new is written, trainers wait, and go on when there is room."""

from __future__ import annotations

import resource
import threading
import time
from pathlib import Path

import pytest
from headrace.client import Loader, Settings
from headrace.proto.errors import UnavailableError
from history import History, check
from rig import Raw, ServerProcess, Trainer, serving, write_run

STEPS = 60


def make_full(server: ServerProcess, *, full: bool) -> None:
    """Lets the server write no file beyond its first bytes, or any again."""
    assert server.process is not None
    size = 64 if full else resource.RLIM_INFINITY
    resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))


def test_trainers_wait_for_room(tmp_path: Path, corpus: Path) -> None:
    with serving(tmp_path, [write_run(tmp_path, corpus, steps=STEPS)]) as server:
        with Loader(server.address, "r", job="j", settings=Settings(stall_timeout=60)) as loader:
            for _ in range(20):
                next(loader)
            make_full(server, full=True)
            with Raw(server.address) as raw, pytest.raises(UnavailableError, match="make room and try again"):
                raw("SetWeights", run="r", weights={"a": 0.2, "b": 0.3, "c": 0.5}, author="t")
            threading.Timer(3, make_full, (server,), {"full": False}).start()
            begun = time.monotonic()
            assert [batch.step for batch in loader] == list(range(20, STEPS))
            assert time.monotonic() - begun > 2
        with Raw(server.address) as raw:
            assert raw("BranchRun", parent="r", name="twin", at=10, author="t").created
            trainer = Trainer(raw, job="j", attempt=1).open().take(STEPS)
        check(trainer, History(), server.store, steps=STEPS)
