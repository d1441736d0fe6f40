"""`headrace top`: the figures of the page in a terminal, from a server or a store."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from headrace.client.cli.terminal import clean, fit, width_of
from headrace.client.cli.top_text import lines_of
from rig import HEADRACE, ServerProcess, headrace
from tokens import SECRETS, Guarded


@pytest.fixture
def endpoint(watched: ServerProcess) -> list[str]:
    return ["--endpoint", f"http://127.0.0.1:{watched.metrics_port}"]


@pytest.fixture
def shown(watched: ServerProcess) -> dict[str, Any]:
    """A snapshot as `--json` prints it."""
    done = headrace("top", "--store", watched.store, "--json")
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))


def test_server_and_store_say_the_same(endpoint: list[str], shown: dict[str, Any]) -> None:
    asked = headrace("top", "pretrain-7b", *endpoint, "--json")
    assert asked.returncode == 0, asked.stderr
    ours = json.loads(asked.stdout)
    assert ours["domains"] == shown["domains"]
    assert ours["events"] == shown["events"]
    assert ours["run"]["tokens"] == shown["run"]["tokens"] > 0


def test_without_a_terminal_it_prints_once_and_plainly(endpoint: list[str]) -> None:
    done = headrace("top", *endpoint)
    assert done.returncode == 0, done.stderr
    assert "\x1b" not in done.stdout
    assert "pretrain-7b  step 14,000 of 20,000 (70.0 %)" in done.stdout
    assert len(re.findall(r"^\S+ +[\d.]+ % +[\d.]+ %", done.stdout, re.M)) == 60
    assert "mixer: krls pretrain" in done.stdout


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["nobody"], 1, "there is no run `nobody`; there are pretrain-7b"),
        (["--endpoint", "http://127.0.0.1:9"], 75, "is a server with `metrics`"),
        (["--endpoint", "ftp://x"], 2, "is no address of a page"),
        (["--endpoint", "127.0.0.1"], 2, "is no address of a page"),
        (["--endpoint", "http://node7:7751"], 2, "a token is sent only over https"),
        (["--store", "sqlite:///none.db"], 2, "exclude each other"),
    ],
)
def test_mistakes_are_told(endpoint: list[str], words: list[str], code: int, said: str, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("x" * 20)
    given = [*(endpoint if "--endpoint" not in words else []), "--token-file", "token"]
    done = headrace("top", *given, *words, cwd=tmp_path)
    assert (done.returncode, said in done.stderr) == (code, True), done.stderr


def test_the_port_of_grpc_is_told_from_that_of_the_page(watched: ServerProcess) -> None:
    done = headrace("top", "--endpoint", f"http://{watched.address}")
    assert done.returncode == 2
    assert "does not speak HTTP" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_token_is_asked_for_and_sent(guarded: Guarded, tmp_path: Path) -> None:
    endpoint = ["--endpoint", f"http://127.0.0.1:{guarded.server.metrics_port}"]
    without = headrace("top", *endpoint)
    assert (without.returncode, "wants a bearer token" in without.stderr) == (1, True)
    (tmp_path / "token").write_text(SECRETS["read"] + "\n")
    assert headrace("top", *endpoint, "--token-file", str(tmp_path / "token")).returncode == 0


def test_what_others_wrote_cannot_steer_the_terminal(shown: dict[str, Any]) -> None:
    shown["events"][0].update(author="\x1b]0;owned\x07", reason="\x1b[2Jgone\r\nnext 日本語")
    shown["notes"] = [{"level": "alarm", "text": "bad \x9b31m name", "domain": ""}]
    text = "\n".join(lines_of(shown, width=80, height=None))
    assert "gone next" in text
    assert not [char for char in text if not char.isprintable() and char != "\n"]


@pytest.mark.parametrize("height", [5, 24, 60])
def test_lines_fit_every_size(shown: dict[str, Any], height: int) -> None:
    for width in (20, 40, 80, 200):
        for first in (0, 12, 59):
            lines = lines_of(shown, width=width, height=height, first=first, said="as last seen: no answer")
            assert len(lines) <= height
            assert {width_of(line) for line in lines} <= {0, width}


def test_cutting_counts_columns() -> None:
    assert fit("日本語", 5) == "日本…"
    assert fit("日本語", 4) == "日… "
    assert (fit("abc", 5), fit("abc", 2), fit("abc", 0)) == ("abc  ", "a…", "")
    assert clean("a\tb\nc\x1b") == "a b c\ufffd"


class Terminal:
    """A pseudo-terminal with the command in it."""

    def __init__(self, *words: str, columns: int = 100, lines: int = 30) -> None:
        self.master, slave = pty.openpty()
        self.resize(columns, lines)
        environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "80"}
        environment.pop("NO_COLOR", None)
        self.process = subprocess.Popen(
            [*HEADRACE, *words], stdin=slave, stdout=slave, stderr=slave, env=environment, start_new_session=True
        )
        os.close(slave)
        self.seen = ""

    def resize(self, columns: int, lines: int) -> None:
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def until(self, pattern: str, seconds: float = 60.0) -> None:
        """Reads until it was painted."""
        end = time.monotonic() + seconds
        while not re.search(pattern, self.seen):
            ready, _, _ = select.select([self.master], [], [], 0.2)
            if ready:
                self.seen += os.read(self.master, 65536).decode(errors="replace")
            assert time.monotonic() < end, self.seen[-2000:]

    def press(self, keys: str) -> None:
        self.seen = ""
        os.write(self.master, keys.encode())

    def frame(self, good: Callable[[list[str]], bool], seconds: float = 60.0) -> list[str]:
        """The first painting that is good, as lines of text."""
        end = time.monotonic() + seconds
        while True:
            for painted in self.seen.split("\x1b[H")[1:]:
                whole = painted.partition("\x1b[J")
                lines = re.sub(r"\x1b\[[\d;?]*[a-zA-Z]", "", whole[0]).split("\r\n")
                if whole[1] and good(lines):
                    return lines
            assert time.monotonic() < end, self.seen[-2000:]
            ready, _, _ = select.select([self.master], [], [], 0.2)
            if ready:
                self.seen += os.read(self.master, 65536).decode(errors="replace")


def first_domain(lines: list[str]) -> str:
    """The first row below the head of the table."""
    at = next((place for place, line in enumerate(lines) if line.startswith("domain ")), len(lines))
    return lines[at + 1].split()[0] if at + 1 < len(lines) else ""


def test_on_a_terminal_it_scrolls_resizes_and_leaves_it_as_it_was(endpoint: list[str]) -> None:
    terminal = Terminal("top", *endpoint, "--every", "30")
    try:
        first = first_domain(terminal.frame(lambda lines: bool(first_domain(lines))))
        assert "\x1b[?1049h" in terminal.seen
        assert "\x1b[1m" in terminal.seen
        terminal.press("\x1b[B")
        terminal.frame(lambda lines: first_domain(lines) not in ("", first))
        terminal.resize(60, 20)
        os.kill(terminal.process.pid, signal.SIGWINCH)
        lines = terminal.frame(lambda lines: max(map(width_of, lines)) <= 60)
        assert len(lines) <= 20
        terminal.press("q")
        terminal.until(r"\x1b\[\?1049l")
        assert terminal.process.wait(10) == 0
    finally:
        terminal.process.kill()
        terminal.process.wait()
        os.close(terminal.master)
