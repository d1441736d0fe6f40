"""The mixer's service on a real server: pushes, proposals, conflicts, crashes of either side."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.request import urlopen

import grpc
import pytest
from click.testing import CliRunner
from headrace.client import Loader
from headrace.client.cli.mixer import mixer
from headrace.client.cli.weights import weights as weights_command
from headrace.client.feedback import DomainLoss
from headrace.mixer.config import read_config
from headrace.mixer.exposition import exposed
from headrace.mixer.journal import Journal
from headrace.mixer.remote import Remote
from headrace.mixer.result import load
from headrace.mixer.serve import Service
from headrace.proto.errors import ConflictError, LimitError, UnavailableError, UsageError
from headrace.proto.v1 import control_pb2, control_pb2_grpc
from mixer_rig import DOCUMENTS, Server

SPEEDS = {"noise": 0.0, "other": 1.0, "plain": 4.0, "small": 1.0, "twin": 1.0}


class Trainer:
    """A trainer that takes steps through the real loader and reports losses that fall at known speeds."""

    def __init__(self, server: Server, run: str) -> None:
        self.loader = Loader(server.address, run, rank=0, world=1)
        self.server, self.run, self.step = server, run, 0

    def take(self, steps: int, *, silent: str = "") -> None:
        for _, batch in zip(range(steps), self.loader, strict=False):
            counts = {name: batch.names.count(name) * batch.seq_len for name in set(batch.names)}
            self.loader.report(
                batch.step,
                batch.segment,
                {
                    name: DomainLoss(loss_sum=tokens * (5 - 0.002 * SPEEDS[name] * batch.step), tokens=tokens)
                    for name, tokens in counts.items()
                    if name != silent
                },
            )
            self.step = batch.step + 1
            if self.step % 32 == 0:
                self.wait()

    def wait(self) -> None:
        """Reports are news, and the oldest give way: a loop without a model in it must not outrun them."""
        deadline = time.monotonic() + 60
        with Remote(self.server.address, self.run) as remote:
            while len(remote.losses(0, self.step)) < self.step:
                assert time.monotonic() < deadline, "the losses never came"
                time.sleep(0.02)

    def close(self) -> None:
        self.loader.close()


@pytest.fixture
def trainer(server: Server, make_run: Callable[..., str]) -> Iterator[Trainer]:
    opened = Trainer(server, make_run(steps=2000))
    yield opened
    opened.close()


def write(folder: Path, server: Server, run: str, mode: str = "auto") -> Path:
    path = folder / "MIXER.toml"
    path.write_text(
        f'[mixer]\nrun = "{run}"\nserver = "{server.address}"\nmode = "{mode}"\npoll = 0.05\n'
        '[method]\nrule = "velocity"\neta = 20.0\n[guardrails]\nlargest_change = 0.05\nfloor = 0.01\n'
    )
    return path


def settle(server: Server, run: str, steps: int) -> None:
    """Wait until the store knows that `steps` were taken and reported."""
    deadline = time.monotonic() + 60
    with Remote(server.address, run) as remote:
        while time.monotonic() < deadline:
            if remote.facts().settled >= steps and len(remote.losses(0, steps)) >= steps:
                return
            time.sleep(0.05)
    raise AssertionError("the losses never settled")


def tick(path: Path) -> int:
    config = read_config(path)
    with Remote(config.server, config.run) as remote, Journal(config.folder / "journal.jsonl") as journal:
        return Service(config, remote, journal).tick()


def entries(path: Path, kind: str) -> list[Any]:
    lines = (path.parent / "mixer" / "journal.jsonl").read_text().splitlines()
    return [entry for entry in map(json.loads, lines) if entry["kind"] == kind]


def weights(server: Server, run: str) -> dict[str, float]:
    with Remote(server.address, run) as remote:
        return remote.facts().weights


def test_it_pushes_within_the_guardrails_and_replays(server: Server, trainer: Any, tmp_path: Path) -> None:
    path = write(tmp_path, server, trainer.run)
    assert tick(path) == 0
    trainer.take(110)
    settle(server, trainer.run, 100)
    assert tick(path) == 1  # the first window has nothing to compare with
    trainer.take(100)
    settle(server, trainer.run, 200)
    assert tick(path) == 1
    (outcome,) = entries(path, "outcome")
    found = weights(server, trainer.run)
    assert found["plain"] == pytest.approx(0.25)  # the fastest fall, by the largest step allowed
    assert outcome["from_step"] >= 210
    assert outcome["from_step"] - 200 <= 30  # window end to effect: at most the lead and what was under way
    before = entries(path, "decision")
    assert tick(path) == 0  # started anew: the journal is replayed and decides nothing twice
    assert entries(path, "decision") == before


def test_a_lost_answer_is_asked_for_again_and_changes_nothing_twice(
    server: Server, trainer: Any, tmp_path: Path
) -> None:
    path = write(tmp_path, server, trainer.run)
    tick(path)
    trainer.take(210)
    settle(server, trainer.run, 200)
    tick(path)
    journal = tmp_path / "mixer" / "journal.jsonl"
    lines = journal.read_text().splitlines()
    (lost,) = entries(path, "outcome")
    journal.write_text("".join(f"{line}\n" for line in lines[:-1]))  # killed between the push and its answer
    tick(path)
    assert entries(path, "outcome") == [lost]
    with grpc.insecure_channel(server.address) as channel:
        stub = control_pb2_grpc.ControlServiceStub(channel)
        events = stub.ListEvents(control_pb2.ListEventsRequest(run=trainer.run)).events
    assert len(events) == 1
    assert events[0].author == "mixer"


def test_a_server_that_limits_pushes_is_asked_again(server: Server, trainer: Any, tmp_path: Path) -> None:
    path = write(tmp_path, server, trainer.run)
    tick(path)
    for _ in range(2):
        trainer.take(105)
        settle(server, trainer.run, trainer.step - 10)
        config = read_config(path)

        class Limited(Remote):
            def push(self, mixture: Any, **details: Any) -> Any:
                raise LimitError("too many changes; try again in 1 s")

        with Limited(config.server, config.run) as remote, Journal(config.folder / "journal.jsonl") as journal:
            service = Service(config, remote, journal)
            with pytest.raises(LimitError) if trainer.step > 200 else contextlib.nullcontext():
                service.tick()
    assert entries(path, "outcome") == []
    assert weights(server, trainer.run)["plain"] == pytest.approx(0.2)
    tick(path)
    (outcome,) = entries(path, "outcome")
    assert outcome["from_step"] > 200
    assert weights(server, trainer.run)["plain"] == pytest.approx(0.25)


def test_two_ranks_report_what_one_would(server: Server, make_run: Callable[..., str], tmp_path: Path) -> None:
    """The same losses from one rank, and from two that each report half of their tokens: the same window."""
    reports = []
    for world in (1, 2):
        run, folder = make_run(steps=400), tmp_path / str(world)
        folder.mkdir()
        path = write(folder, server, run)
        tick(path)
        loaders = [Loader(server.address, run, rank=rank, world=world, job="j", attempt=0) for rank in range(world)]
        threads = [threading.Thread(target=report_falling, args=(loader, server, run, world)) for loader in loaders]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        settle(server, run, 100)
        for loader in loaders:
            loader.close()
        tick(path)
        reports.append(entries(path, "window")[0]["window"]["report"]["domains"])
    for name in DOCUMENTS:
        assert reports[0][name][1] == reports[1][name][1] == 64_000
        assert reports[1][name][0] == pytest.approx(reports[0][name][0], rel=1e-12)


def report_falling(loader: Loader, server: Server, run: str, world: int) -> None:
    """110 steps; each rank reports its part of the same tokens of every domain."""
    with Remote(server.address, run) as remote:
        for _, batch in zip(range(110), loader, strict=False):
            losses = {name: 5 - 0.002 * SPEEDS[name] * batch.step for name in DOCUMENTS}
            part = {n: DomainLoss(loss_sum=640 // world * loss, tokens=640 // world) for n, loss in losses.items()}
            loader.report(batch.step, batch.segment, part)
            deadline = time.monotonic() + 60
            while batch.step % 16 == 15 and time.monotonic() < deadline:  # as `Trainer.wait`
                found = remote.losses(batch.step, batch.step + 1)
                if found and found[0].domains["noise"].tokens == 640:
                    break
                time.sleep(0.02)


def test_someone_elses_change_makes_a_push_void(server: Server, trainer: Any, tmp_path: Path) -> None:
    path = write(tmp_path, server, trainer.run)
    tick(path)
    trainer.take(110)
    settle(server, trainer.run, 100)
    tick(path)
    trainer.take(100)
    settle(server, trainer.run, 200)
    config = read_config(path)

    class Raced(Remote):
        def push(self, mixture: Any, **details: Any) -> Any:
            result = tmp_path / "mine.json"
            CliRunner().invoke(mixer, ["compute", "uniform", *domains(), "--out", str(result)])
            apply(server, trainer.run, result)
            return super().push(mixture, **details)

    with Raced(config.server, config.run) as remote, Journal(config.folder / "journal.jsonl") as journal:
        assert Service(config, remote, journal).tick() == 1
    (outcome,) = entries(path, "outcome")
    assert "void" in outcome
    assert weights(server, trainer.run) == pytest.approx(dict.fromkeys(DOCUMENTS, 0.2))


def domains() -> list[str]:
    return [word for name in DOCUMENTS for word in ("--domain", name)]


def apply(server: Server, run: str, result: Path, *more: str) -> str:
    done = CliRunner().invoke(
        weights_command, ["set", run, "--proposal", str(result), "--server", server.address, *more]
    )
    assert done.exit_code == 0, done.output
    return done.output


def test_a_proposal_waits_for_a_human(server: Server, trainer: Any, tmp_path: Path) -> None:
    path = write(tmp_path, server, trainer.run, mode="propose")
    tick(path)
    for _ in range(2):
        trainer.take(105)
        settle(server, trainer.run, trainer.step - 10)
        tick(path)
    proposal = tmp_path / "mixer" / "proposal-200.json"
    assert weights(server, trainer.run)["plain"] == pytest.approx(0.2)
    assert "would hold" in apply(server, trainer.run, proposal, "--dry-run")
    assert weights(server, trainer.run)["plain"] == pytest.approx(0.2)
    first, second = (apply(server, trainer.run, proposal, "--json") for _ in range(2))
    assert json.loads(first)["event"] == json.loads(second)["event"]
    assert weights(server, trainer.run) == pytest.approx(load(proposal).weights, abs=1e-6)


def test_a_domain_that_falls_silent_freezes_the_weights(server: Server, trainer: Any, tmp_path: Path) -> None:
    path = write(tmp_path, server, trainer.run)
    tick(path)
    trainer.take(100)
    trainer.take(110, silent="other")
    settle(server, trainer.run, 200)
    tick(path)
    assert [entry["decision"] for entry in entries(path, "decision")] == ["hold", "freeze"]
    assert "`other`" in entries(path, "decision")[1]["reason"]
    assert weights(server, trainer.run)["plain"] == pytest.approx(0.2)


def test_a_changed_configuration_does_not_continue_an_old_journal(server: Server, trainer: Any, tmp_path: Path) -> None:
    path = write(tmp_path, server, trainer.run)
    tick(path)
    for _ in range(2):
        trainer.take(105)
        settle(server, trainer.run, trainer.step - 10)
        tick(path)
    path.write_text(path.read_text().replace("largest_change = 0.05", "largest_change = 0.01"))
    with pytest.raises(ConflictError, match="decides otherwise"):
        tick(path)


def test_what_was_served_counts_towards_the_caps(server: Server, trainer: Any, tmp_path: Path) -> None:
    """`small` alone is held by its cap: what the server says it has served is spent, sizes come from the server too."""
    path = write(tmp_path, server, trainer.run)
    budget = 2000 * 10 * 64
    path.write_text(path.read_text().replace("[guardrails]", f"[guardrails]\nmax_epochs = 60.0\nbudget = {budget}"))
    tick(path)
    for _ in range(2):
        trainer.take(105)
        settle(server, trainer.run, trainer.step - 10)
        tick(path)
    with Remote(server.address, trainer.run) as remote:
        facts = remote.facts()
    window = entries(path, "window")[-1]["window"]
    assert 0 < window["served"]["small"] <= facts.served["small"]
    cap = (60 * facts.sizes["small"] - window["served"]["small"]) / (budget - sum(window["served"].values()))
    decision = entries(path, "decision")[-1]
    assert decision["weights"]["small"] == pytest.approx(cap)
    assert cap < 60 * facts.sizes["small"] / budget < 0.2  # stricter than a cap that forgets the past


def test_its_figures_say_that_it_lives_and_when_it_pushed(server: Server, trainer: Any, tmp_path: Path) -> None:
    config = read_config(write(tmp_path, server, trainer.run))
    with Remote(config.server, config.run) as remote, Journal(config.folder / "journal.jsonl") as journal:
        service = Service(config, remote, journal)
        with exposed("127.0.0.1:0", service.figures) as address:
            assert scrape(address)["last_look_timestamp_seconds"] == 0
            began = time.time()
            service.tick()
            assert began <= scrape(address)["last_look_timestamp_seconds"] <= time.time()
            for _ in range(2):
                trainer.take(105)
                settle(server, trainer.run, trainer.step - 10)
                service.tick()
            found = scrape(address)
            assert began < found["last_push_timestamp_seconds"] <= found["last_look_timestamp_seconds"]
            assert (found["decisions_total/push"], found["decisions_total/hold"], found["next_step"]) == (1, 1, 200)
            assert found["pushes_total/accepted"] == 1
            with pytest.raises(HTTPError, match="404"):
                urlopen(f"http://{address}/", timeout=10)
            with pytest.raises(UsageError, match="cannot listen"), exposed(address, service.figures):
                pass
        with pytest.raises(URLError):  # a mixer that is gone is a target that is down
            urlopen(f"http://{address}/metrics", timeout=10)


def scrape(address: str) -> dict[str, float]:
    """Figures by name, and by name/label for counters."""
    found = {}
    for line in urlopen(f"http://{address}/metrics", timeout=10).read().decode().splitlines():
        if not line.startswith("#"):
            match = re.fullmatch(r'headrace_mixer_(\w+)\{run="[^"]+"(?:,\w+="(\w+)")?\} (\S+)', line)
            assert match, line
            found["/".join(filter(None, match.groups()[:2]))] = float(match[3])
    return found


def test_killed_mixers_and_servers_change_nothing(server: Server, trainer: Any, tmp_path: Path) -> None:
    path = write(tmp_path, server, trainer.run)
    code = "from headrace.client.cli.main import run; run()"
    process = subprocess.Popen(
        [sys.executable, "-c", code, "mixer", "serve", str(path)], stderr=subprocess.PIPE, text=True
    )
    assert process.stderr is not None
    assert "watching run" in process.stderr.readline()
    trainer.take(110)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    process.stderr.close()
    trainer.take(100)  # the stream goes on without a mixer
    settle(server, trainer.run, 200)
    assert weights(server, trainer.run)["plain"] == pytest.approx(0.2)
    config = read_config(path)
    with Remote(config.server, config.run) as remote, Journal(config.folder / "journal.jsonl") as journal:
        service = Service(config, remote, journal)
        server.kill()
        with pytest.raises(UnavailableError):
            service.tick()
        stop = threading.Event()
        thread = threading.Thread(target=service.run, args=(stop,))
        thread.start()
        server.start()
        deadline = time.monotonic() + 60
        while not entries(path, "outcome") and time.monotonic() < deadline:
            time.sleep(0.1)
        stop.set()
        thread.join()
    assert weights(server, trainer.run)["plain"] == pytest.approx(0.25)
