"""Clients that read slowly, not at all, or give up: the others and the server do not feel it."""

from __future__ import annotations

import json
import os
import signal
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from corpora import build_small_corpus
from headrace.client import Loader, Settings
from headrace.client.endpoints import Endpoints
from headrace.proto.errors import UnavailableError
from headrace.proto.v1 import data_pb2
from rig import Raw, ServerProcess, serving, write_run
from toy_server import ToyServer

SLOW = os.environ.get("HEADRACE_SLOW") == "1"
PAUSE, SECONDS = (1.0, 600.0) if SLOW else (0.1, 1.0)

# Asks for 400 replies of 1 MiB at once and reads none: it is stopped as soon as it has asked.
GREEDY = """
import sys, grpc
from headrace.proto.v1 import data_pb2 as pb
channel = grpc.insecure_channel(sys.argv[1], options=[("grpc.max_receive_message_length", 64 << 20)])
get = channel.unary_unary("/headrace.v1.DataService/GetBatch", pb.GetBatchRequest.SerializeToString)
request = pb.GetBatchRequest(run_id=sys.argv[2], step=0, first_slot=0, rows=128)
calls = [get.future(request) for _ in range(400)]
print("asked", flush=True)
for call in calls:
    call.result()
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    folder = tmp_path_factory.mktemp("slow")
    corpus = build_small_corpus(folder, documents={"a": 1_500, "b": 700, "c": 300})
    runs = [
        write_run(folder, corpus, name="wide", seq_len=4096, batch=128, steps=2_000, lead=16),
        write_run(folder, corpus, name="small", steps=100_000, lead=64),
        write_run(folder, corpus, name="deep", seq_len=4096, batch=256, steps=2_000, lead=64),
    ]
    with serving(folder, runs) as started:
        yield started


def resident(server: ServerProcess) -> float:
    """MiB."""
    assert server.process is not None
    pages = int(Path(f"/proc/{server.process.pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def median_wait(loader: Loader, steps: int) -> float:
    waits = []
    for _ in range(steps):
        begun = time.perf_counter()
        next(loader)
        waits.append(time.perf_counter() - begun)
    return statistics.median(waits)


def test_one_that_never_reads_costs_memory_to_a_bound_and_the_others_nothing(server: ServerProcess) -> None:
    with Loader(server.address, "wide", job="w") as wide, Loader(server.address, "small", job="s") as small:
        next(wide)  # seals steps, so that others may read them
        median_wait(small, 100)
        alone = median_wait(small, 200)
        before = resident(server)
        command = [sys.executable, "-c", GREEDY, server.address, wide.open().run_id]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as greedy:
            assert greedy.stdout is not None
            try:
                assert greedy.stdout.readline() == "asked\n"
                greedy.send_signal(signal.SIGSTOP)
                time.sleep(1.0)
                beside = median_wait(small, 200)
                grown = resident(server) - before
            finally:
                greedy.kill()
        assert next(wide).step == 1
    print(f"{alone * 1e6:.0f} us a step alone, {beside * 1e6:.0f} us beside it; the server grew by {grown:.0f} MiB")
    assert grown < 64
    assert beside < 4 * alone + 0.005


def test_sixteen_slow_ranks_hold_no_more_than_their_buffers_and_slow_nobody(server: ServerProcess) -> None:
    """Each sleeps after every batch and one takes none; without the bound the lead would let each hold 8 MiB.

    The server holds 256 MiB of steps that are built, which is reached before it is measured.
    """
    with Loader(server.address, "deep", job="warm") as warm:
        median_wait(warm, 70)
    with Loader(server.address, "small", job="beside", takeover=True) as small:
        median_wait(small, 100)
        alone, before = median_wait(small, 200), resident(server)
        words = [server.address, str(PAUSE), str(SECONDS), str(1 << 20)]
        program = [sys.executable, str(Path(__file__).parent / "slow_program.py"), *words]
        with subprocess.Popen(program, stdout=subprocess.PIPE, text=True) as slow:
            assert slow.stdout is not None
            assert slow.stdout.readline() == "started\n"
            beside = median_wait(small, 200)
            told = json.loads(slow.stdout.readline())
            grown = resident(server) - before
        assert slow.returncode == 0
    print(
        f"{alone * 1e6:.0f} us a step alone, {beside * 1e6:.0f} us beside them; they grew by {told['grown']:.0f} MiB, "
        f"the server by {grown:.0f}; steps {min(told['taken'][:-1])} to {max(told['taken'])}"
    )
    assert min(told["taken"][:-1]) >= SECONDS / PAUSE / 4
    assert told["taken"][-1] == 0
    assert told["grown"] < 16 * (1 + 5 / 4) + 56  # buffers, memory shared with the server, and the process itself
    assert grown < 96
    assert beside < 4 * alone + 0.005


def test_a_slow_rank_holds_up_only_itself_and_only_past_the_lead(server: ServerProcess) -> None:
    """One rank sleeps; the other goes on until the lead's end, and the slow one's memory is its prefetch."""
    with Raw(server.address) as raw:
        opened = raw("OpenRun", run="small", mode="OPEN_MODE_OBSERVE")
    settings = Settings(stall_timeout=30)
    fast = Loader(server.address, "small", rank=0, world=2, job="ranks", settings=settings, takeover=True)
    slow = Loader(server.address, "small", rank=1, world=2, job="ranks", settings=settings, takeover=True)
    with fast, slow:
        assert next(fast).step == next(slow).step == opened.next_step
        begun = time.monotonic()
        taken = [next(fast).step for _ in range(opened.lead)]
        assert time.monotonic() - begun < 10
        assert taken[-1] == opened.next_step + opened.lead
        # Confirmed is the most that any rank has said: the slow one is behind, and gets every step all the same.
        assert [next(slow).step for _ in range(opened.lead)] == taken


@pytest.mark.parametrize("calls", [1_000])
def test_deadlines_of_a_millisecond_leave_nothing_behind(calls: int) -> None:
    with ToyServer() as server:
        server.faults.delay = 0.005
        endpoints = Endpoints([server.address], tls=None, token_file=None, start=0)
        request = data_pb2.GetBatchRequest(run_id="toy-1", step=0, first_slot=0, rows=8)
        threads, files = threading.active_count(), len(os.listdir("/proc/self/fd"))
        missed = 0
        for _ in range(calls):
            try:
                endpoints.call("GetBatch", request, timeout=0.001, doing="ask")
            except UnavailableError:
                missed += 1
        assert missed > calls // 2
        assert threading.active_count() <= threads + 40, "threads are left"
        assert len(os.listdir("/proc/self/fd")) <= files + 10, "files are left"
        # What was given up does not come back as the answer of another call, and the connection still works.
        server.faults.delay = 0
        assert endpoints.call("GetBatch", request, timeout=10, doing="ask")
        until = time.monotonic() + 5
        while server.seen.in_flight:
            assert time.monotonic() < until, "the server works on calls that were given up"
            time.sleep(0.01)
        endpoints.close()


def test_calls_that_are_cancelled_in_the_middle_end_at_once() -> None:
    with ToyServer() as server:
        server.faults.delay = 0.2
        endpoints = Endpoints([server.address], tls=None, token_file=None, start=0)
        request = data_pb2.GetBatchRequest(run_id="toy-1", step=0, first_slot=0, rows=8)
        ended: list[float] = []

        def ask() -> None:
            with pytest.raises(UnavailableError):
                endpoints.call("GetBatch", request, timeout=20, doing="ask")
            ended.append(time.monotonic())

        for _ in range(10):
            threads = [threading.Thread(target=ask) for _ in range(8)]
            for thread in threads:
                thread.start()
            time.sleep(0.05)
            begun = time.monotonic()
            endpoints.cancel()
            for thread in threads:
                thread.join(5)
            assert max(ended) - begun < 0.15 + 1.0  # a busy machine is late
        assert len(ended) == 80
        endpoints.close()
