"""What the loader does when servers fail: it retries what is worth it, names what is not, and never hangs."""

from __future__ import annotations

import gc
import json
import logging
import pickle
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from headrace.client import ClosedError, Loader, Settings, StallError
from headrace.proto.errors import DataLossError, FencedError, UnavailableError, UsageError
from toy_server import Toy, ToyServer, step_digests

TOY = Path(__file__).with_name("toy_server.py")
QUICK = Settings(stall_timeout=20, open_timeout=5, call_timeout=5, backoff=0.01)


@pytest.fixture(params=[False, True], ids=["calls", "stream"])
def server(request: pytest.FixtureRequest) -> Iterator[ToyServer]:
    with ToyServer(Toy(streams=request.param)) as running:
        yield running


def collect(loader: Loader) -> list[bytes]:
    return [batch.row_digests.tobytes() for batch in loader]


def plan(toy: Toy) -> list[bytes]:
    return [step_digests(toy, step) for step in range(toy.end)]


@pytest.mark.parametrize("fault", ["unavailable", "above_seal"])
def test_tries_again_and_loses_nothing(server: ToyServer, fault: str) -> None:
    setattr(server.faults, fault, 7)
    with Loader(server.address, "toy", settings=QUICK) as loader:
        assert collect(loader) == plan(server.service.toy)
        assert loader.stats.retries == 7
    assert server.service.confirmed == server.service.toy.end
    # Digests of failed calls were sent again: the server knows every step.
    assert {step for step, _ in server.seen.digests} == set(range(server.service.toy.end))


def test_many_refusals_at_once_are_one_reason_to_pause() -> None:
    """Each with a pause of its own would keep a trainer waiting long after a server, or its store, is back."""
    with ToyServer(Toy(streams=True, lead=32)) as server:
        server.faults.above_seal = 32
        settings = Settings(stall_timeout=60, backoff=0.6, backoff_max=0.6)
        begun = time.monotonic()
        with Loader(server.address, "toy", settings=settings) as loader:
            assert collect(loader) == plan(server.service.toy)
            assert loader.stats.retries == 32
        assert time.monotonic() - begun < 4


def test_a_call_that_never_answers_ends_with_its_deadline(server: ToyServer) -> None:
    server.faults.hang = 2
    settings = Settings(stall_timeout=20, call_timeout=0.3, backoff=0.01)
    with Loader(server.address, "toy", settings=settings) as loader:
        assert collect(loader) == plan(server.service.toy)
        assert loader.stats.retries == 2


def test_moves_to_another_endpoint_when_one_is_away() -> None:
    with ToyServer() as one, ToyServer() as two:
        one.faults.refuse_all = True
        with Loader([one.address, two.address], "toy", settings=QUICK) as loader:
            assert collect(loader) == plan(two.service.toy)
        assert two.seen.calls["GetBatch"] >= two.service.toy.end


def test_goes_on_after_the_server_was_killed_and_started_again() -> None:
    toy = Toy(shapes=((60, 4, 16),))
    options = {"shapes": toy.shapes}
    process, address = spawn(options)
    seen = []
    try:
        with Loader(address, "toy", settings=QUICK, job="j") as loader:
            for batch in loader:
                seen.append(batch.row_digests.tobytes())
                if batch.step == 20:
                    process.kill()
                    process.wait()
                    process, _ = spawn(options | {"port": int(address.rpartition(":")[2]), "lead": 8})
    finally:
        process.kill()
        process.wait()
    assert seen == plan(toy)


def test_a_paused_server_is_left_for_another_and_its_late_answer_does_no_harm() -> None:
    toy = Toy(shapes=((40, 4, 16),))
    with ToyServer(toy) as replica:
        process, address = spawn({"shapes": toy.shapes})
        try:
            settings = Settings(stall_timeout=30, call_timeout=0.5, backoff=0.01)
            with Loader([address, replica.address], "toy", settings=settings) as loader:
                seen = [next(loader).row_digests.tobytes() for _ in range(10)]
                process.send_signal(signal.SIGSTOP)
                seen += [next(loader).row_digests.tobytes() for _ in range(15)]
                process.send_signal(signal.SIGCONT)
                seen += collect(loader)
                assert loader.stats.longest_wait < 10
        finally:
            process.kill()
            process.wait()
    assert seen == plan(toy)
    assert replica.service.confirmed == toy.end


def test_many_clients_come_back_by_themselves_after_restarts() -> None:
    toy = Toy(shapes=((45, 8, 16),), lead=8)
    options: dict[str, object] = {"shapes": toy.shapes}
    process, address = spawn(options)
    found: dict[int, list[bytes]] = {rank: [] for rank in range(8)}

    def train(rank: int) -> None:
        with Loader(address, "toy", rank=rank, world=8, job="j", settings=QUICK) as loader:
            for batch in loader:
                found[rank].append(batch.row_digests.tobytes())
                time.sleep(0.01)

    ranks = [threading.Thread(target=train, args=(rank,)) for rank in found]
    try:
        for thread in ranks:
            thread.start()
        for reached in (10, 20, 30):
            while min(map(len, found.values())) < reached:
                time.sleep(0.01)
            process.kill()
            process.wait()
            process, _ = spawn(options | {"port": int(address.rpartition(":")[2])})
        for thread in ranks:
            thread.join(60)
    finally:
        process.kill()
        process.wait()
    assert [b"".join(parts) for parts in zip(*found.values(), strict=True)] == plan(toy)


def test_a_script_that_forgets_to_close_gives_its_lease_back(server: ToyServer) -> None:
    script = (
        "import sys; from headrace.client import Loader; loader = Loader(sys.argv[1], 'toy'); "
        "[next(loader) for _ in range(3)]; sys.exit(int(sys.argv[2]))"
    )
    for code in (0, 3):
        done = subprocess.run([sys.executable, "-c", script, server.address, str(code)], timeout=60, check=False)
        assert done.returncode == code
        assert server.service.job is None
    assert server.service.confirmed == 3
    assert server.seen.calls["CloseRun"] == 2


def spawn(options: dict[str, object]) -> tuple[subprocess.Popen[str], str]:
    process = subprocess.Popen([sys.executable, str(TOY), json.dumps(options)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    address = process.stdout.readline().strip()
    process.stdout.close()
    return process, address


def test_a_stall_is_logged_then_raised_with_step_rank_endpoint_and_cause(
    server: ToyServer, caplog: pytest.LogCaptureFixture
) -> None:
    settings = Settings(stall_log=0.2, stall_timeout=0.7, backoff=0.01, backoff_max=0.05)
    with Loader(server.address, "toy", rank=1, world=2, job="j", settings=settings) as loader:
        assert [next(loader).step for _ in range(3)] == [0, 1, 2]
        server.faults.refuse_all = True
        begin = time.monotonic()
        with caplog.at_level(logging.WARNING, "headrace.client"), pytest.raises(StallError) as caught:
            list(loader)
        assert time.monotonic() - begin < 5
        for part in ("rank 1 of 2", "for step ", server.address, "the toy is away"):
            assert part in str(caught.value)
            assert part in caplog.text
        server.faults.refuse_all = False
        assert loader.stats.stalls == 1
        # The stream is not broken: whoever catches the error goes on where it was.
        assert [batch.step for batch in loader][-1] == server.service.toy.end - 1


def test_no_server_at_all_is_a_clear_error_within_open_timeout() -> None:
    with ToyServer() as gone:
        address = gone.address
    with (
        Loader(address, "toy", settings=Settings(open_timeout=0.5)) as loader,
        pytest.raises(UnavailableError) as caught,
    ):
        next(loader)
    assert address in str(caught.value)


def test_changed_bytes_never_reach_the_trainer(server: ToyServer) -> None:
    server.faults.corrupt = 2
    with Loader(server.address, "toy", settings=QUICK) as loader:
        assert collect(loader) == plan(server.service.toy)
        assert loader.stats.digest_errors == 2
    server.faults.corrupt = 1000
    with Loader(server.address, "toy", settings=QUICK) as loader, pytest.raises(DataLossError, match="differ from"):
        next(loader)


def test_data_loss_is_raised_at_its_step_and_stays(server: ToyServer) -> None:
    server.faults.data_loss_at = 4
    with Loader(server.address, "toy", settings=QUICK) as loader:
        assert [next(loader).step for _ in range(4)] == [0, 1, 2, 3]
        for _ in range(2):
            with pytest.raises(DataLossError, match="shard 7 of step 4"):
                next(loader)
        assert loader.next_step == 4


def test_memory_is_bounded_by_buffer_bytes() -> None:
    toy = Toy(shapes=((30, 8, 64),), lead=16)
    with ToyServer(toy) as server:
        settings = Settings(buffer_bytes=3 * 8 * 65 * 2)
        with Loader(server.address, "toy", settings=settings) as loader:
            next(loader)
            time.sleep(0.3)
            assert server.seen.highest_step == 3
            assert len(list(loader)) == toy.end - 1


def test_several_calls_are_in_flight_and_never_more_than_allowed() -> None:
    with ToyServer() as server:
        server.faults.delay = 0.03
        with Loader(server.address, "toy", settings=Settings(in_flight=3)) as loader:
            list(loader)
        assert server.seen.most_in_flight == 3


def test_a_server_that_names_a_stream_and_has_none_is_asked_by_calls() -> None:
    with ToyServer(Toy(streams=True)) as server:
        server.faults.no_stream = True
        with Loader(server.address, "toy", settings=QUICK) as loader:
            assert collect(loader) == plan(server.service.toy)
        assert server.seen.calls["StreamBatches"] == 1


def test_a_stream_can_be_declined() -> None:
    with ToyServer(Toy(streams=True)) as server:
        with Loader(server.address, "toy", settings=Settings(stream=False)) as loader:
            list(loader)
        assert server.seen.calls["StreamBatches"] == 0


def test_requests_stay_small_with_many_rows() -> None:
    toy = Toy(shapes=((4, 7_000, 1),), lead=4)
    with ToyServer(toy) as server:
        server.faults.delay = 0.05
        with Loader(server.address, "toy", settings=Settings(in_flight=1)) as loader:
            assert collect(loader) == plan(toy)
        received = {key: len(value) for key, value in server.seen.digests.items()}
        assert sum(received.values()) == 16 * 7_000 * toy.end
        assert server.seen.largest_request < 256 * 1024


def test_a_paused_trainer_keeps_its_lease_alive_and_hears_of_its_end(server: ToyServer) -> None:
    settings = Settings(heartbeat=0.1)
    with Loader(server.address, "toy", job="a", settings=settings) as loader:
        next(loader)
        wait_for_confirms(server, 2)
        server.service.job = ("a", 1)
        wait_for_confirms(server, server.seen.calls["Confirm"] + 2)
        with pytest.raises(FencedError):
            next(loader)


def wait_for_confirms(server: ToyServer, count: int) -> None:
    until = time.monotonic() + 20
    while server.seen.calls["Confirm"] < count:
        assert time.monotonic() < until
        time.sleep(0.02)


def test_close_while_a_server_is_away_is_quick(server: ToyServer) -> None:
    loader = Loader(server.address, "toy", settings=QUICK)
    next(loader)
    server.stop()
    begin = time.monotonic()
    loader.close()
    assert time.monotonic() - begin < 4


def test_threads_end_with_the_loader(server: ToyServer) -> None:
    before = set(threading.enumerate())
    for _ in range(5):
        with Loader(server.address, "toy") as loader:
            next(loader)
    left = [thread.name for thread in set(threading.enumerate()) - before if thread.name.startswith("headrace")]
    assert not left


def test_a_forgotten_loader_gives_its_lease_back(server: ToyServer) -> None:
    loader = Loader(server.address, "toy")
    next(loader)
    del loader
    assert server.service.job is None
    assert server.service.confirmed == 1


def test_a_loader_in_a_cycle_is_closed_by_the_collector_without_a_deadlock(server: ToyServer) -> None:
    class Trainer:
        def __init__(self, job: str) -> None:
            self.me = self
            self.loader = Loader(server.address, "toy", job=job, settings=QUICK)

    before = gc.get_threshold()
    gc.set_threshold(1)  # the collector runs wherever an object is made, in the loader's own threads too
    try:
        for number in range(6):
            trainer = Trainer(f"job-{number}")
            for _ in range(4):
                next(trainer.loader)
            del trainer
            until = time.monotonic() + 10
            while server.service.job is not None:
                assert time.monotonic() < until, "the lease was not given back"
                gc.collect()
    finally:
        gc.set_threshold(*before)


def test_two_loaders_interleave_in_one_process(server: ToyServer) -> None:
    toy = server.service.toy
    with Loader(server.address, "toy") as one, Loader(server.address, "toy", mode="observe") as two:
        for step in range(toy.end):
            assert np.array_equal(next(one).token_ids, next(two).token_ids), step


@pytest.mark.parametrize("address", ["", "http://host:1", "host :1", "127.0.0.1", "host:99999", "::1:7750"])
def test_odd_addresses_are_refused(address: str) -> None:
    with pytest.raises(UsageError, match="endpoint"):
        Loader(address, "toy")


def test_a_token_is_not_sent_in_the_clear(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="only over TLS"):
        Loader("10.1.2.3:7750", "toy", token_file=tmp_path / "token")


def close_soon(loader: Loader) -> threading.Timer:
    closing = threading.Timer(1.0, loader.close)
    closing.start()
    return closing


def test_a_loader_that_another_thread_closes_ends_a_wait_at_once(server: ToyServer) -> None:
    loader = Loader(server.address, "toy", settings=Settings(stall_timeout=60, call_timeout=2))
    next(loader)
    server.faults.hang = 1 << 20
    closing = close_soon(loader)
    begun = time.monotonic()
    with pytest.raises(ClosedError, match="loader of run `toy` is closed"):
        collect(loader)
    assert time.monotonic() - begun < 10
    closing.join()
    assert not [thread.name for thread in threading.enumerate() if thread.name.startswith("headrace")]


def test_a_loader_that_is_closed_while_it_opens_stays_closed() -> None:
    """Nobody answers yet: it would go on for `open_timeout`, and hold the lease of a loader that nobody uses."""
    with socket.socket() as place:
        place.bind(("127.0.0.1", 0))
        loader = Loader(f"127.0.0.1:{place.getsockname()[1]}", "toy", settings=Settings(open_timeout=60))
        closing = close_soon(loader)
        begun = time.monotonic()
        with pytest.raises(ClosedError):
            next(loader)
        assert time.monotonic() - begun < 10
        closing.join()
    assert pickle.loads(pickle.dumps(loader))._live is None
    with pytest.raises(ClosedError):
        next(pickle.loads(pickle.dumps(loader)))
