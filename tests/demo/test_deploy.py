"""deploy/README.md is true: its files and commands work in their order, with two servers on a real PostgreSQL."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import shutil
import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from headrace.client import Loader
from postgres import PostgresServer
from test_readme import HEADRACE, README, ROOT, free_port, shell, smaller, wait_until_listening, write_text

PAGE = (ROOT / "deploy/README.md").read_text(encoding="utf-8")


def blocks(language: str, page: str = PAGE) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", page, re.DOTALL)


@pytest.fixture
def ports() -> dict[str, str]:
    return {f":{port}": f":{free_port()}" for port in (7750, 7751, 7760, 7761)}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A built corpus and its RUN.toml, made as the first page says."""
    write_text(tmp_path)
    for text in blocks("toml", README)[:2]:
        (tmp_path / text.splitlines()[0].removeprefix("# ")).write_text(smaller(text, {}))
    train, _, build, *_ = re.split(r"^(?=headrace )", smaller(blocks("sh", README)[1], {}), flags=re.MULTILINE)[1:]
    shell(train.replace("--vocab-size 300", "--vocab-size 280") + build, tmp_path, {**os.environ})
    return tmp_path


@contextlib.contextmanager
def started(script: str, folder: Path) -> Iterator[None]:
    """Runs a block whose lines that end in `&` are servers, each to its end with the block."""
    servers = []
    try:
        for line in re.sub(r" *#.*", "", script).splitlines():
            if not line.endswith("&"):
                shell(line, folder, {**os.environ})
                continue
            config = line.split()[2]
            command = [*shlex.split(HEADRACE), "serve", config]
            servers.append(subprocess.Popen(command, cwd=folder, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL))
            port = re.search(r'listen = ".*(:\d+)"', (folder / config).read_text())
            assert port
            wait_until_listening(f"127.0.0.1{port[1]}", servers[-1])
        yield
    finally:
        for server in servers:
            server.terminate()
        assert [server.wait(30) for server in servers] == [0] * len(servers)


@pytest.mark.timeout(600)  # certificates, a PostgreSQL, two servers and every command of the page
def test_from_nothing_to_two_replicas_that_know_their_clients(
    folder: Path, ports: dict[str, str], postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    server, client = blocks("toml")
    store = {"postgresql://headrace@127.0.0.1:5432/headrace": postgres.new_database()}
    (folder / "SERVER.toml").write_text(smaller(server, {**ports, **store}))
    (folder / "headrace.toml").write_text(smaller(client, ports))
    authority, tokens, replicas, asking = (smaller(text, ports) for text in blocks("sh"))
    shell(authority + tokens, folder, {**os.environ})
    with started(replicas, folder):
        told = shell(asking, folder, {**os.environ})
        assert told.count("event 1 holds from step 0") == 2
        assert "takes down" in told
        assert "admin" not in told
        monkeypatch.chdir(folder)
        names: dict[str, Loader] = {}
        exec(smaller(blocks("python")[0], ports), names)
        _scrapes(folder, ports)


def _scrapes(folder: Path, ports: dict[str, str]) -> None:
    """Prometheus takes the page's lines, and what they name opens the metrics of both servers."""
    config = folder / "prometheus.yml"
    config.write_text(smaller(blocks("yaml")[0], ports))
    if promtool := shutil.which("promtool"):
        done = subprocess.run([promtool, "check", "config", config], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
    import ssl

    context = ssl.create_default_context(cafile=str(folder / "tls/ca.pem"))
    context.load_cert_chain(folder / "tls/trainer.pem", folder / "tls/trainer.key")
    bearer = {"Authorization": f"Bearer {(folder / 'prometheus.token').read_text().strip()}"}
    for port in (ports[":7751"], ports[":7761"]):
        asked = urllib.request.Request(f"https://localhost{port}/metrics", headers=bearer)
        with urllib.request.urlopen(asked, context=context, timeout=10) as answer:
            assert b'headrace_seal_step{run="pretrain-1"}' in answer.read()


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not on this machine")
def test_the_unit_is_one(tmp_path: Path) -> None:
    text = (ROOT / "deploy/systemd/headrace.service").read_text()
    unit = tmp_path / "headrace.service"
    unit.write_text(text.replace("/opt/headrace/bin/headrace", "/bin/true"))
    done = subprocess.run(["systemd-analyze", "verify", unit], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "headrace.service" not in done.stderr
