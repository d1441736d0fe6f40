"""Worker processes: every way to start them, with a loader in every state, works or is refused; none hangs."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from headrace.client import ForkError
from headrace.client.torch import Loader, StreamDataset
from headrace.client.torch.stage import CudaStage
from headrace.proto.errors import UsageError
from rig import serving, write_run
from torch.utils.data import DataLoader
from toy_server import ToyServer

PROGRAM = Path(__file__).with_name("workers_program.py")
SLOW = [pytest.mark.slow, pytest.mark.skipif(not os.environ.get("HEADRACE_SLOW"), reason="set HEADRACE_SLOW=1")]


def nine_ways(address: str, run: str) -> None:
    command = [sys.executable, "-W", "ignore::DeprecationWarning", str(PROGRAM), address, run]
    done = subprocess.run(command, capture_output=True, text=True, timeout=150, check=False)
    assert done.returncode == 0, done.stderr
    found = {(method, state): said for method, state, said in map(json.loads, done.stdout.splitlines())}
    assert len(found) == 9
    for (method, state), said in found.items():
        if state == "connected":
            assert "num_workers=0" in said, method
        else:
            assert said == 0, (method, state)


def test_nine_ways_into_a_child_process() -> None:
    with ToyServer() as server:
        nine_ways(server.address, "toy")


@pytest.mark.slow
@pytest.mark.skipif(not os.environ.get("HEADRACE_SLOW"), reason="set HEADRACE_SLOW=1")
def test_nine_ways_with_the_stream_and_the_memory_of_the_real_server(tmp_path: Path, corpus: Path) -> None:
    with serving(tmp_path, [write_run(tmp_path, corpus)]) as server, Loader(server.address, "r", job="j") as trainer:
        assert next(trainer).step == 0  # seals steps for observers
        nine_ways(server.address, "r")
        assert [next(trainer).step for _ in range(20)] == list(range(1, 21))


@pytest.mark.parametrize(
    ("context", "workers"),
    [("fork", 1), ("fork", 3), pytest.param("spawn", 1, marks=SLOW), pytest.param("forkserver", 2, marks=SLOW)],
)
@pytest.mark.parametrize("connected", [False, True])
def test_workers_of_a_data_loader_are_refused_before_the_first_batch(
    context: str, workers: int, connected: bool
) -> None:
    with warnings.catch_warnings(), ToyServer() as server:
        warnings.simplefilter("ignore")  # torch and Python warn of fork beside threads
        dataset = StreamDataset(server.address, "toy", mode="observe")
        if connected:
            assert next(dataset.loader).step == 0
        loader: DataLoader[Any] = DataLoader(
            dataset, batch_size=None, num_workers=workers, multiprocessing_context=context
        )
        with pytest.raises(UsageError, match="num_workers=0"):
            next(iter(loader))
        # The parent's own loader goes on.
        assert next(dataset.loader).step == int(connected)
        dataset.loader.close()


def test_a_loader_for_a_device_travels_before_it_connects() -> None:
    stage = pickle.loads(pickle.dumps(CudaStage(torch.device("cuda", 0))))
    assert stage.device == torch.device("cuda", 0)
    with ToyServer() as server:
        loader = Loader(server.address, "toy", mode="observe", device="cpu")
        with pickle.loads(pickle.dumps(loader)) as again:
            assert next(again).step == 0
            with pytest.raises(ForkError, match="num_workers=0"):
                pickle.dumps(again)
