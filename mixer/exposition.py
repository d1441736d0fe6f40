"""What the mixer tells Prometheus about itself: that it lives, what it decided, when it pushed last.

    headrace_mixer_last_look_timestamp_seconds{run}     the server answered and its settled windows are decided
    headrace_mixer_last_window_timestamp_seconds{run}   a window was decided
    headrace_mixer_last_push_timestamp_seconds{run}     the server took a change of weights
    headrace_mixer_next_step{run}                       first step of the next window
    headrace_mixer_decisions_total{run,decision}        push, propose, hold, freeze
    headrace_mixer_pushes_total{run,result}             accepted, void (someone else changed the run), refused

A timestamp is 0 until the thing has happened since this process began. A mixer is stale when the first stops moving or
the page is gone. What was given up: the client library of Prometheus; the text format is a dozen lines.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from headrace.proto.errors import UsageError

_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_DECISIONS = ("push", "propose", "hold", "freeze")
_RESULTS = ("accepted", "void", "refused")


@dataclass(slots=True)
class Figures:
    """Figures of one run's mixer; written by its thread, read by scrapes (whole numbers and floats, no lock needed)."""

    run: str
    looked: float = 0.0
    windowed: float = 0.0
    pushed: float = 0.0
    next_step: int = 0
    decisions: Counter[str] = field(default_factory=Counter)
    pushes: Counter[str] = field(default_factory=Counter)

    def look(self, next_step: int) -> None:
        """The server answered, and every settled window is decided."""
        self.looked, self.next_step = time.time(), next_step

    def decide(self, kind: str) -> None:
        """A window was decided."""
        self.windowed = time.time()
        self.decisions[kind] += 1

    def push(self, result: str) -> None:
        """A push was answered."""
        self.pushes[result] += 1
        if result == "accepted":
            self.pushed = time.time()

    def text(self) -> str:
        """The page that a scrape reads."""
        label = f'run="{_escaped(self.run)}"'
        times = (("look", self.looked), ("window", self.windowed), ("push", self.pushed))
        lines = [line for name, value in times for line in _gauge(f"last_{name}_timestamp_seconds", label, value)]
        lines += _gauge("next_step", label, self.next_step)
        lines += _counter("decisions", label, "decision", {name: self.decisions[name] for name in _DECISIONS})
        lines += _counter("pushes", label, "result", {name: self.pushes[name] for name in _RESULTS})
        return "\n".join(lines) + "\n"


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _gauge(name: str, label: str, value: float) -> list[str]:
    return [f"# TYPE headrace_mixer_{name} gauge", f"headrace_mixer_{name}{{{label}}} {value!r}"]


def _counter(name: str, label: str, by: str, values: dict[str, int]) -> list[str]:
    full = f"headrace_mixer_{name}_total"
    return [f"# TYPE {full} counter", *(f'{full}{{{label},{by}="{key}"}} {value}' for key, value in values.items())]


@contextmanager
def exposed(address: str, figures: Figures) -> Iterator[str]:
    """Serve the page at `/metrics` for the length of a block; the address it listens on (port 0 takes a free one)."""
    host, _, port = address.rpartition(":")
    try:
        server = ThreadingHTTPServer((host.strip("[]"), int(port)), _handler(figures))
    except OSError as error:
        raise UsageError(f"metrics: cannot listen on `{address}`: {error.strerror or error}; name another") from error
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.1,), name="mixer-metrics", daemon=True)
    thread.start()
    try:
        yield f"{host}:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _handler(figures: Figures) -> type[BaseHTTPRequestHandler]:
    class Page(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            found = self.path.split("?")[0] == "/metrics"
            body = (figures.text() if found else "the page is /metrics\n").encode()
            self.send_response(200 if found else 404)
            self.send_header("Content-Type", _TYPE)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Scrapes are no news."""

    return Page
