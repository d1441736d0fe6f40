"""Children of the demo end with it, however it ends, and a child that fails is reported with its log."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from headrace.client.cli.demo.processes import Children, DemoError, wait_until_listening

SLEEPER = [sys.executable, "-c", "import time; time.sleep(600)"]
STUBBORN = [
    sys.executable,
    "-c",
    "import signal, time; signal.signal(15, signal.SIG_IGN); print(1, flush=True); time.sleep(600)",
]
PARENT = """
import sys, time
from pathlib import Path
from headrace.client.cli.demo.processes import Children
with Children(Path(sys.argv[1])) as children:
    print(children.start("sleeper", [sys.executable, "-c", "import time; time.sleep(600)"]).process.pid, flush=True)
    time.sleep(600)
"""
INTERRUPTED = """
import os, signal, sys, threading, time
from pathlib import Path
from headrace.client.cli.demo.processes import Children
SLEEPER = [sys.executable, "-c", "import time; time.sleep(600)"]
threading.Thread(target=time.sleep, args=(600,), daemon=True).start()
taker = threading.enumerate()[-1 if {other} else 0].ident
os.register_at_fork(before=lambda: (signal.pthread_kill(taker, signal.SIGINT), time.sleep(0.1)))
try:
    with Children(Path(sys.argv[1])) as children:
        {call}
        print("went on")
except KeyboardInterrupt:
    print("heard")
"""


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    # A zombie whose new parent has not reaped it yet is dead for our purpose.
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"


def wait_until_gone(pid: int) -> None:
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        try:
            if not alive(pid):
                return
        except FileNotFoundError:
            return
        time.sleep(0.02)
    pytest.fail(f"process {pid} outlived the demo")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL, signal.SIGHUP])
def test_children_end_when_the_demo_is_killed(tmp_path: Path, number: signal.Signals) -> None:
    parent = subprocess.Popen([sys.executable, "-c", PARENT, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    child = int(parent.stdout.readline())
    assert alive(child)
    parent.send_signal(number)
    parent.wait(10)
    parent.stdout.close()
    wait_until_gone(child)


@pytest.mark.parametrize("other", [False, True], ids=["this-thread", "another"])
@pytest.mark.parametrize("call", ["children.start('sleeper', SLEEPER)", "children.headrace('--help')"])
def test_a_signal_amid_the_fork_of_a_child_is_heard(tmp_path: Path, call: str, other: bool) -> None:
    """Whichever thread the kernel gives it to."""
    command = [sys.executable, "-c", INTERRUPTED.format(call=call, other=other), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.stdout.splitlines()[-1], done.stderr) == ("heard", "")


def test_children_end_with_the_block_even_when_they_ignore_sigterm(tmp_path: Path) -> None:
    with Children(tmp_path) as children:
        stubborn = children.start("stubborn", STUBBORN)
        sleeper = children.start("sleeper", SLEEPER)
        while not stubborn.log.read_bytes():
            time.sleep(0.01)
    assert stubborn.process.returncode == -signal.SIGKILL
    assert sleeper.process.returncode == -signal.SIGTERM


def test_a_child_that_fails_is_reported_with_the_end_of_its_log(tmp_path: Path) -> None:
    with Children(tmp_path) as children:
        child = children.start("faulty", [sys.executable, "-c", "print('the reason'); raise SystemExit(3)"])
        with pytest.raises(DemoError, match=r"faulty failed with exit code 3(.|\n)*the reason"):
            child.wait(30)
        with pytest.raises(DemoError, match="faulty ended early"):
            wait_until_listening(child, "127.0.0.1:1")
        hung = children.start("hung", SLEEPER)
        with pytest.raises(DemoError, match="hung did not end within 0 s"):
            hung.wait(0.05)


def test_a_command_that_fails_is_reported_with_its_message(tmp_path: Path) -> None:
    with Children(tmp_path) as children:
        with pytest.raises(
            DemoError,
            match=r"headrace no-such-command. in .* ended with exit code 2(.|\n)*no command `no-such-command`",
        ):
            children.headrace("no-such-command")
        assert "streaming data server" in children.headrace("--help")
