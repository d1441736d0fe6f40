"""A loader carried into another process works or says why not, and never hangs."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
import textwrap
import threading
import time
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest
from headrace.client import ForkError, Loader, Settings
from toy_server import Toy, ToyServer

HERE = Path(__file__).parent

PROGRAM = """
import os, sys, threading
from headrace.client import ForkError, Loader, Settings

def say(text):
    os.write(1, text.encode() + b"\\n")  # one write, so that lines of several processes do not mix

loader = Loader(sys.argv[1], "toy", mode="observe", settings=Settings(open_timeout=10, stall_timeout=15))
if {connect}:
    say(f"parent {{next(loader).step}}")
children = []
for number in range(3):
    pid = os.fork()
    if pid == 0:
        try:
            mine = Loader(sys.argv[1], "toy", mode="observe", settings=Settings(open_timeout=10)) if {own} else loader
            say(f"child {{next(mine).step}}")
        except ForkError as error:
            say(f"refused {{'num_workers=0' in str(error)}}")
        os._exit(0)
    children.append(pid)
for pid in children:
    assert os.waitpid(pid, 0)[1] == 0
say(f"parent {{next(loader).step}}")
loader.close()
"""


@pytest.fixture(params=[False, True], ids=["calls", "stream"])
def server(request: pytest.FixtureRequest) -> Iterator[ToyServer]:
    with ToyServer(Toy(streams=request.param)) as running:
        yield running


def run(server: ToyServer, *, connect: bool, own: bool, **environ: str) -> list[str]:
    program = textwrap.dedent(PROGRAM.format(connect=connect, own=own))
    command = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", program, server.address]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, env=os.environ | environ)
    assert done.returncode == 0, done.stderr
    return sorted(done.stdout.splitlines())


def test_a_connected_loader_is_refused_in_a_fork(server: ToyServer) -> None:
    assert run(server, connect=True, own=False) == ["parent 0", "parent 1", *["refused True"] * 3]


def test_a_loader_not_connected_yet_works_in_each_fork(server: ToyServer) -> None:
    assert run(server, connect=False, own=False) == [*["child 0"] * 3, "parent 0"]


def test_a_fork_of_a_connected_parent_may_make_its_own(server: ToyServer) -> None:
    assert run(server, connect=True, own=True) == [*["child 0"] * 3, "parent 0", "parent 1"]


@pytest.mark.parametrize(("said", "found"), [({}, "True"), ({"GRPC_ENABLE_FORK_SUPPORT": "0"}, "False")])
def test_fork_handlers_are_on_also_where_grpc_was_imported_first(said: dict[str, str], found: str) -> None:
    """As a program does that imports TensorBoard or Ray before the client."""
    asks = "import grpc, headrace.client.fork; print(grpc._cython.cygrpc.is_fork_support_enabled())"
    environ = {name: value for name, value in os.environ.items() if name != "GRPC_ENABLE_FORK_SUPPORT"}
    done = subprocess.run([sys.executable, "-c", asks], capture_output=True, text=True, check=True, env=environ | said)
    assert done.stdout.strip() == found


def test_without_fork_handlers_a_child_is_refused_rather_than_left_to_hang(server: ToyServer) -> None:
    lines = run(server, connect=True, own=True, GRPC_ENABLE_FORK_SUPPORT="0")
    assert lines.count("refused False") == 3


def test_a_fork_does_not_wait_for_a_call_that_never_answers(server: ToyServer) -> None:
    with Loader(server.address, "toy", settings=Settings(call_timeout=20)) as loader:
        assert next(loader).step == 0
        server.faults.hang = 1 if server.service.toy.streams else 4  # all that the loader has under way
        loader.load_state_dict(loader.state_dict())
        waiting = threading.Thread(target=lambda: next(loader))
        waiting.start()
        while server.faults.hang:
            time.sleep(0.01)
        begin = time.monotonic()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            child = os.fork()
        if child == 0:
            os._exit(0)
        assert time.monotonic() - begin < 5
        assert os.waitpid(child, 0)[1] == 0
        waiting.join(15)
        assert not waiting.is_alive(), "the cancelled calls were not made again"
        assert loader.next_step == 2


def test_fork_handlers_are_on_unless_the_user_says_otherwise() -> None:
    program = "from headrace.client import Loader; import grpc._cython.cygrpc as c; print(c._GRPC_ENABLE_FORK_SUPPORT)"
    for given, expected in ((None, "True"), ("0", "False")):
        environ = {key: value for key, value in os.environ.items() if key != "GRPC_ENABLE_FORK_SUPPORT"}
        environ |= {"GRPC_ENABLE_FORK_SUPPORT": given} if given else {}
        done = subprocess.run([sys.executable, "-c", program], env=environ, capture_output=True, text=True, check=True)
        assert done.stdout.strip() == expected


def test_a_loader_is_sent_to_another_process_only_before_it_connects() -> None:
    with ToyServer() as server:
        loader = Loader(server.address, "toy")
        again = pickle.loads(pickle.dumps(loader))
        with again:
            assert next(again).step == 0
            assert json.dumps(again.state_dict())
            with pytest.raises(ForkError, match="num_workers=0"):
                pickle.dumps(again)
