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
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from headrace.client.cli.terminal import clean, fit, width_of
from headrace.client.cli.top_text import lines_of
from rig import HEADRACE, ServerProcess, headrace, serving
from worlds import World, make_world

TOKEN = "watcher-0123456789abcdef"


@dataclass(frozen=True)
class Rig:
    server: ServerProcess
    folder: Path

    @property
    def endpoint(self) -> list[str]:
        page = f"http://127.0.0.1:{self.server.metrics_port}"
        return ["--endpoint", page, "--token-file", str(self.folder / "token")]


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    folder = tmp_path_factory.mktemp("top")
    run = make_world(folder, World(domains=30, events=3))
    (folder / "token").write_text(TOKEN + "\n")
    (folder / "tokens.toml").write_text(f'[[token]]\nname = "w"\nscope = "read"\ntoken = "{TOKEN}"\n')
    with serving(folder, [run], extra='[auth]\ntokens = "tokens.toml"\n') as server:
        yield Rig(server, folder)


def test_server_and_store_say_the_same(rig: Rig) -> None:
    asked = headrace("top", "pretrain-7b", *rig.endpoint, "--json")
    opened = headrace("top", "--store", rig.server.store, "--json")
    assert (asked.returncode, opened.returncode) == (0, 0), asked.stderr + opened.stderr
    ours, theirs = json.loads(asked.stdout), json.loads(opened.stdout)
    assert ours["domains"] == theirs["domains"]
    assert ours["events"] == theirs["events"]
    assert ours["run"]["tokens"] == theirs["run"]["tokens"] > 0


def test_without_a_terminal_it_prints_once_and_plainly(rig: Rig) -> None:
    done = headrace("top", *rig.endpoint)
    assert done.returncode == 0, done.stderr
    assert "\x1b" not in done.stdout
    assert "pretrain-7b  step 14,000 of 20,000 (70.0 %)" in done.stdout
    assert len(re.findall(r"^\S+ +[\d.]+ % +[\d.]+ %", done.stdout, re.M)) == 30
    assert "licence of one source is under review" in done.stdout


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
def test_mistakes_are_told(rig: Rig, words: list[str], code: int, said: str, tmp_path: Path) -> None:
    given = rig.endpoint if "--endpoint" not in words else rig.endpoint[2:]
    done = headrace("top", *given, *words, cwd=tmp_path)
    assert (done.returncode, said in done.stderr) == (code, True), done.stderr


def test_a_token_is_asked_for(rig: Rig) -> None:
    done = headrace("top", *rig.endpoint[:2])
    assert done.returncode == 1
    assert "wants a bearer token" in done.stderr


def test_what_others_wrote_cannot_steer_the_terminal(rig: Rig) -> None:
    shown = json.loads(headrace("top", *rig.endpoint, "--json").stdout)
    shown["events"][0].update(author="\x1b]0;owned\x07", reason="\x1b[2Jgone\r\nnext 日本語")
    shown["notes"] = [{"level": "alarm", "text": "bad \x9b31m name", "domain": ""}]
    text = "\n".join(lines_of(shown, width=80, height=None))
    assert "gone next" in text
    assert not [char for char in text if not char.isprintable() and char != "\n"]


@pytest.mark.parametrize("width", [20, 40, 80, 200])
@pytest.mark.parametrize("height", [5, 24, 60])
def test_lines_fit_every_size(rig: Rig, width: int, height: int) -> None:
    shown = json.loads(headrace("top", "--store", rig.server.store, "--json").stdout)
    for first in (0, 12, 29):
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
        environment = {**os.environ, "TERM": "xterm-256color"}
        environment.pop("NO_COLOR", None)
        self.process = subprocess.Popen(
            [*HEADRACE, *words], stdin=slave, stdout=slave, stderr=slave, env=environment, start_new_session=True
        )
        os.close(slave)
        self.seen = ""

    def resize(self, columns: int, lines: int) -> None:
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def until(self, pattern: str, seconds: float = 20.0) -> None:
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


def test_on_a_terminal_it_scrolls_resizes_and_leaves_it_as_it_was(rig: Rig) -> None:
    terminal = Terminal("top", *rig.endpoint, "--every", "30")
    try:
        terminal.until("pretrain-7b")
        assert terminal.seen.startswith("\x1b[?1049h")
        assert "\x1b[1m" in terminal.seen
        first = re.search(r"\n(?:\x1b\[\d*m?)*((?:web|books|crawl)\S*) ", terminal.seen)
        terminal.press("\x1b[B")
        terminal.until("domain .*")
        assert first is None or f"\n{first[1]} " not in terminal.seen
        terminal.seen = ""
        terminal.resize(60, 20)
        os.kill(terminal.process.pid, signal.SIGWINCH)
        terminal.until("pretrain-7b")
        painted = re.sub(r"\x1b\[[\d;?]*[a-zA-Z]", "", terminal.seen)
        assert max(len(line.rstrip("\r")) for line in painted.split("\n")) <= 60
        terminal.press("q")
        terminal.until(r"\x1b\[\?1049l")
        assert terminal.process.wait(10) == 0
    finally:
        terminal.process.kill()
        terminal.process.wait()
        os.close(terminal.master)
