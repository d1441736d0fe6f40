"""Lines of the log: one an event, fields for machines, nothing that a name or a reason could break."""

from __future__ import annotations

import json
import logging
import os
import re
import shutil
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from certificates import make_authority, make_certificate
from headrace.proto.errors import ConflictError, HeadraceError, UnavailableError, UsageError
from headrace.server.service.logs import Json, Logfmt, Text, remedy_of, told
from rig import Raw, ServerProcess, Trainer, headrace, serving, write_run


def record(message: str, *args: object, **extra: Any) -> logging.LogRecord:
    return logging.getLogger("headrace.test").makeRecord(
        "headrace.test", logging.WARNING, "file", 1, message, args, None, extra=told("seal-stopped", **extra)
    )


def test_formats() -> None:
    made = record("run %s: it stops", 'evil" \n2026 INFO fake', run="r", step=0, remedy="mend it")
    found = json.loads(Json().format(made))
    assert found["event"] == "seal-stopped"
    assert (found["run"], found["step"], found["remedy"], found["level"]) == ("r", 0, "mend it", "warning")
    assert found["message"] == 'run evil" \n2026 INFO fake: it stops'
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", found["time"])
    for formatter in (Json(), Logfmt(), Text()):
        assert "\n" not in formatter.format(made)
    assert 'event=seal-stopped run=r step=0 remedy="mend it" message=' in Logfmt().format(made)
    assert "domain" not in told("x", domain="")


def test_remedy_is_what_the_message_says_to_do() -> None:
    assert remedy_of(UsageError("a is wrong; say b; then c")) == "then c"
    assert remedy_of(UsageError("a is wrong")) == ""


def test_defects_keep_their_traceback_in_one_line() -> None:
    try:
        raise RuntimeError("two\nlines")
    except RuntimeError as error:
        made = record("it failed")
        made.exc_info = (RuntimeError, error, error.__traceback__)
    line = Json().format(made)
    assert "\n" not in line
    assert "Traceback" in json.loads(line)["exception"]


def lines(server: ServerProcess) -> list[dict[str, Any]]:
    return [json.loads(line) for line in server.log.read_text().splitlines()]


def events(server: ServerProcess, name: str) -> list[dict[str, Any]]:
    return [line for line in lines(server) if line.get("event") == name]


_LOGGING = """
import sys
from headrace.client.cli.main import run
sys.argv[2:2] = ["--log-format", "json"]
run()
"""
PROGRAM = [sys.executable, "-c", _LOGGING]


def test_what_happens_to_a_run_is_one_line_each(tmp_path: Path, corpus: Path) -> None:
    with serving(tmp_path, [write_run(tmp_path, corpus)], program=PROGRAM) as server:
        with Raw(server.address) as raw:
            raw("OpenRun", run="r", mode="OPEN_MODE_OBSERVE")
            trainer = Trainer(raw).open().take(5)
            raw("SetWeights", run="r", weights={"a": 0.4, "b": 0.3, "c": 0.3}, author="ann", reason="try\nthis")
            with pytest.raises(HeadraceError):
                raw("SetWeights", run="r", weights={"a": 1.0, "nowhere": 1.0}, author="bob")
            with pytest.raises(ConflictError):
                Trainer(raw, job="late").open()
            trainer.take(3)
            secret = trainer.opened.lease
        server.stop()
        everything = server.log.read_text()
        (opened,) = events(server, "opened")
        assert (opened["run"], opened["step"], opened["job"], opened["world"]) == ("r", 0, "job", 1)
        (observed,) = events(server, "observed")
        assert "run r: looked at by job -" in observed["message"]
        (changed,) = events(server, "changed")
        assert (changed["who"], changed["kind"], changed["run"]) == ("ann", "weights", "r")
        assert changed["step"] >= 5
        refused = events(server, "refused")
        assert [(line["run"], line["method"], line["who"]) for line in refused] == [
            ("r", "SetWeights", "bob"),
            ("r", "OpenRun", "test:late"),
        ]
        assert all(line["remedy"] for line in refused)
        assert events(server, "stopping")
        (stopped,) = events(server, "stopped")
        assert (stopped["run"], stopped["step"]) == ("r", 7)
        assert stopped["message"].startswith("run r: stopped with 7 steps confirmed, sealed to 1")
        assert secret not in everything


def test_handshakes_that_fail_leave_no_other_text_in_it(
    tmp_path: Path, corpus: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if shutil.which("openssl") is None:
        pytest.skip("the openssl command is not on this machine")
    monkeypatch.delenv("GRPC_VERBOSITY", raising=False)
    certificate, key = make_certificate(tmp_path, make_authority(tmp_path, "authority"), "server", "IP:127.0.0.1")
    extra = f'[tls]\ncertificate = "{certificate}"\nkey = "{key}"\n'
    with serving(tmp_path, [write_run(tmp_path, corpus)], extra=extra, program=PROGRAM) as server:
        with Raw(server.address) as raw, pytest.raises(UnavailableError):
            raw("GetRun", run="r", timeout=3)
        server.stop()
        assert events(server, "created")  # every line is JSON


@pytest.mark.slow
@pytest.mark.skipif(os.environ.get("HEADRACE_SLOW") != "1", reason="waits 10 s for SQLite; run with HEADRACE_SLOW=1")
def test_a_store_that_goes_is_told_once_and_its_return_too(tmp_path: Path, corpus: Path) -> None:
    with serving(tmp_path, [write_run(tmp_path, corpus)], program=PROGRAM) as server, Raw(server.address) as raw:
        trainer = Trainer(raw).open().take(3)
        with _Holder(tmp_path / "control.db"):
            lease = {"run_id": trainer.opened.run_id, "lease": trainer.opened.lease}
            for _ in range(2):
                trainer.fetch(trainer.next_step, patience=1.0)
                raw("Confirm", **lease, confirmation={"next_step": trainer.next_step})
            _wait(lambda: events(server, "store-away"))
            time.sleep(1.5)
        _wait(lambda: events(server, "store-back"))
        (away,) = events(server, "store-away")
        assert away["run"] == "r"
        assert 8 <= away["step"] <= 11
        assert away["remedy"] == "try again"


class _Holder:
    """Holds the write lock of an SQLite store, so that the server's writes fail."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __enter__(self) -> None:
        import sqlite3

        self._connection = sqlite3.connect(self._path, isolation_level=None)
        self._connection.execute("BEGIN IMMEDIATE")

    def __exit__(self, *exc: object) -> None:
        self._connection.execute("ROLLBACK")
        self._connection.close()


def _wait(ready: Any) -> None:
    until = time.monotonic() + 40
    while not ready():
        assert time.monotonic() < until
        time.sleep(0.1)


def test_the_command_knows_its_formats(tmp_path: Path) -> None:
    done = headrace("serve", "--log-format", "xml", str(tmp_path / "SERVER.toml"))
    assert done.returncode == 2
    assert "'xml' is not one of 'text', 'json', 'logfmt'" in done.stderr
