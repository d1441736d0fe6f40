"""A server whose corpus is not built builds it first: nobody is served before, and everybody is told why."""

from __future__ import annotations

import fcntl
import random
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import grpc
import pytest
from corpora import write_small_corpus
from grpc_health.v1 import health_pb2, health_pb2_grpc
from headrace.proto.errors import UnavailableError
from headrace.server.corpus.build import build_corpus
from headrace.server.corpus.records import Manifest
from headrace.server.corpus.spec import CorpusSpec
from ports import free_port
from rig import HEADRACE, Raw, write_run


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with all that a corpus is made of, and the CORPUS.toml."""
    write_small_corpus(tmp_path)
    return tmp_path


class Starting:
    """A server that has been started and may not be ready."""

    def __init__(self, home: Path, run: Path) -> None:
        home.mkdir(exist_ok=True)
        self.port, self.log, self.greeting = free_port(), home / "log", home / "greeting"
        config = home / "SERVER.toml"
        config.write_text(f'[server]\nlisten = "127.0.0.1:{self.port}"\nstore = "sqlite:///c.db"\nruns = ["{run}"]\n')
        with self.log.open("a") as log, self.greeting.open("w") as greeting:
            self.process = subprocess.Popen([*HEADRACE, "serve", str(config)], stdout=greeting, stderr=log)

    def health(self) -> str:
        with grpc.insecure_channel(f"127.0.0.1:{self.port}") as channel:
            try:
                answer = health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(), timeout=5)
            except grpc.RpcError:
                return "no answer"
        return str(health_pb2.HealthCheckResponse.ServingStatus.Name(answer.status))

    def open(self) -> str:
        """What OpenRun says: the name of the run, or why not."""
        with Raw(f"127.0.0.1:{self.port}") as raw:
            try:
                return str(raw("OpenRun", run="r", mode="OPEN_MODE_OBSERVE").run_id and "open")
            except UnavailableError as error:
                return str(error)


def until(holds: Callable[[], bool], seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, "it did not come about"
        time.sleep(0.05)


@contextmanager
def starting(home: Path, run: Path) -> Iterator[Starting]:
    server = Starting(home, run)
    try:
        yield server
    finally:
        server.process.kill()
        server.process.wait()


@contextmanager
def somebody_builds(folder: Path) -> Iterator[None]:
    (folder / "corpus").mkdir()
    with (folder / "corpus/.building").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def test_of_two_servers_one_builds_and_nobody_is_served_before(folder: Path) -> None:
    homes = [(folder / "one", Path("corpus/manifest.json")), (folder / "two", Path("CORPUS.toml"))]
    with somebody_builds(folder):
        servers = []
        for home, corpus in homes:
            home.mkdir()
            run = write_run(home, corpus)
            servers.append(Starting(home, run.rename(folder / f"{home.name}.toml")))
        for server in servers:
            until(lambda server=server: "waiting for another process that builds" in server.open())  # type: ignore[misc]
            assert str(folder) in server.open()
            assert server.health() == "NOT_SERVING"
            assert not server.greeting.read_text()
    for server in servers:
        until(lambda server=server: server.health() == "SERVING")  # type: ignore[misc]
        assert server.open() == "open"
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(timeout=30) == 0
    assert sum("MB/s" in server.log.read_text() for server in servers) == 1


def test_one_that_is_told_to_stop_while_it_waits_stops(folder: Path) -> None:
    run = write_run(folder, Path("corpus/manifest.json"))
    with somebody_builds(folder):
        server = Starting(folder, run)
        until(lambda: server.health() == "NOT_SERVING")
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(timeout=30) == 0
    assert not (folder / "corpus/manifest.json").exists()


def test_killed_while_it_builds_it_goes_on_and_makes_the_same(folder: Path) -> None:
    rng = random.Random(3)
    line = '{"text": "' + "".join(rng.choices("abc de fgh", k=4000)) + '%d"}\n'
    for number in range(8):
        (folder / f"a-{number}.jsonl").write_text("".join(line % (number * 1000 + each) for each in range(500)))
    (folder / "CORPUS.toml").write_text((folder / "CORPUS.toml").read_text().replace('"a.jsonl"', '"a*.jsonl"'))
    run = write_run(folder, Path("corpus/manifest.json"))
    with starting(folder, run) as server:
        until(lambda: "building the corpus" in server.open() or server.health() == "SERVING")
        time.sleep(0.2)
    with starting(folder, run) as server:
        until(lambda: server.health() == "SERVING")
        assert server.open() == "open"
    spec = CorpusSpec.from_toml((folder / "CORPUS.toml").read_text().replace('"corpus"', '"other"'), root=folder)
    assert build_corpus(spec, workers=1).digest == Manifest.load(folder / "corpus/manifest.json").digest


def test_a_corpus_that_cannot_be_built_ends_the_server_with_the_cause(folder: Path) -> None:
    run = write_run(folder, Path("corpus/manifest.json"))
    (folder / "b.jsonl").write_text('{"body": "x"}\n')
    with starting(folder, run) as server:
        assert server.process.wait(timeout=60) not in (0, 75)
        said = server.log.read_text()
        assert "b.jsonl" in said
        assert "fields seen: body" in said
        assert "Traceback" not in said
