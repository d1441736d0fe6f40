"""`headrace doctor`: is this machine, the way to the server, and the server fit to train with? And what to mend.

Each check says what it found; one that is not well says what to do. Checks of the server build on each other, so the
first that fails ends them.
"""

from __future__ import annotations

import importlib.metadata
import os
import platform
import resource
import socket
import statistics
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

import click
from headrace.client.cli.common import Target, access_options, json_option, print_json
from headrace.proto.errors import HeadraceError, UnavailableError

if TYPE_CHECKING:
    from headrace.client.endpoints import Endpoints
    from headrace.client.session import Opened
    from headrace.proto.v1 import data_pb2

# A process of a trainer holds a few connections only; data workers and checkpoints hold many files beside them.
_FILES_WANTED = 4096
_CLOCK_SECONDS = 2.0
_SHARED_BYTES, _SHARE_SECONDS = 4096, 3.0
_PROXIES = ("grpc_proxy", "https_proxy", "http_proxy")
_BYPASSES = ("no_grpc_proxy", "no_proxy")
_MARKS = {"ok": "ok  ", "warn": "warn", "fail": "FAIL"}
# Digest of one row of ids 1 2 3 4 in 2 bytes each, without edges, domain "doctor", loss weight 1.
_GOLDEN = "733fed6012eef5aed6ade4b995f2d13f"


@dataclass(frozen=True, kw_only=True, slots=True)
class Check:
    """One finding: `status` is ok, warn or fail; `remedy` says what to do about the last two."""

    name: str
    status: str
    found: str
    remedy: str = ""


def ok(name: str, found: str) -> Check:
    return Check(name=name, status="ok", found=found)


@click.command()
@click.argument("runs", nargs=-1, metavar="[RUN]...")
@access_options
@json_option
def doctor(runs: tuple[str, ...], target: Target, as_json: bool) -> None:
    """Check this machine and, with a server, the way to it and each RUN (all of its runs by default).

    Nothing is changed, confirmed or sealed. Exit code 1 when a check fails.
    """
    checks = []
    for check in _all_checks(runs, target):
        checks.append(check)
        if not as_json:
            _print(check)
    failed = [check.name for check in checks if check.status == "fail"]
    if as_json:
        print_json({"healthy": not failed, "checks": [asdict(check) for check in checks]})
    if failed:
        raise HeadraceError(f"{len(failed)} of {len(checks)} checks failed: {', '.join(failed)}")


def _print(check: Check) -> None:
    color = {"ok": "green", "warn": "yellow", "fail": "red"}[check.status]
    click.echo(f"{click.style(_MARKS[check.status], fg=color)}  {check.name:<10}  {check.found}")
    if check.remedy:
        click.echo(f"      {'':<10}  {check.remedy}")


def _all_checks(runs: tuple[str, ...], target: Target) -> Iterator[Check]:
    yield versions()
    yield native()
    yield fork()
    yield files()
    if not target.server:
        yield ok("server", "none named (--server, HEADRACE_SERVER or headrace.toml): only this machine was checked")
        return
    from headrace.client.endpoints import Endpoints

    yield proxy(target.server)
    endpoints = Endpoints([target.server], tls=target.tls(), token_file=target.token_file, start=0)
    try:
        yield from server_checks(endpoints, target.server, runs)
    finally:
        endpoints.close()


# ---- this machine ----


def versions() -> Check:
    found = [f"{name} {_version(name)}" for name in ("headrace", "grpcio", "protobuf", "numpy", "torch")]
    return ok("versions", f"Python {platform.python_version()}, {', '.join(found)}")


def _version(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


def native() -> Check:
    import numpy as np
    from headrace.native import row_digests

    none, one = np.zeros(1, np.uint32), np.ones(1, np.float32)
    digest = row_digests(bytes([1, 0, 2, 0, 3, 0, 4, 0]), 8, none, none[:0], ["doctor"], none, one).hex()
    if digest == _GOLDEN:
        return ok("native", "the compiled core makes the digests it should")
    return Check(
        name="native",
        status="fail",
        found=f"the compiled core makes digest {digest}, {_GOLDEN} is right",
        remedy="install headrace again: its wheel is damaged, or built for another machine",
    )


def fork() -> Check:
    value = os.environ.get("GRPC_ENABLE_FORK_SUPPORT", "")
    if value.lower() not in ("0", "false", "no", "off"):
        return ok("fork", "gRPC's fork handlers are on")
    return Check(
        name="fork",
        status="warn",
        found=f"GRPC_ENABLE_FORK_SUPPORT={value} switches gRPC's fork handlers off: a forked process cannot connect",
        remedy='unset it, or start processes with the "forkserver" or "spawn" method',
    )


def files() -> Check:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft >= _FILES_WANTED:
        return ok("files", f"{soft} files may be open at once")
    return Check(
        name="files",
        status="warn",
        found=f"only {soft} files may be open at once (at most {hard})",
        remedy=f"raise it where the trainer starts: ulimit -n {_FILES_WANTED}",
    )


def proxy(address: str) -> Check:
    used = [name for name in _PROXIES if os.environ.get(name)]
    host = address.rpartition(":")[0]
    bypass = next((os.environ[name] for name in _BYPASSES if os.environ.get(name)), "")
    if not used or any(host.endswith(suffix.strip()) for suffix in bypass.split(",") if suffix.strip()):
        return ok("proxy", "connections are direct")
    return Check(
        name="proxy",
        status="warn",
        found=f"{used[0]} is set, and gRPC sends `{host}` through that proxy",
        remedy=f"unless that is meant, set no_grpc_proxy={host}",
    )


# ---- the server ----


def server_checks(endpoints: Endpoints, address: str, runs: tuple[str, ...]) -> Iterator[Check]:
    """Each step needs the one before it."""
    steps: list[tuple[str, str, Callable[[], str]]] = [
        ("address", "check the host and port, and that the server listens on them", lambda: _reach(address)),
        (
            "service",
            "see the server's log: it answers once its runs are open; with [tls] it wants --ca, with client_ca --cert "
            "and --key too",
            lambda: _health(endpoints),
        ),
    ]
    for name, remedy, step in steps:
        check = _attempt(name, remedy, step)
        yield check
        if check.status == "fail":
            return
    try:
        known = _runs(endpoints)
    except HeadraceError as error:
        yield Check(name="runs", status="fail", found=str(error), remedy="use a token that may read, or TLS with --ca")
        return
    yield ok("runs", ", ".join(known) or "the server has none")
    served = [run for run, refused in known.items() if not refused]
    if served:
        yield _attempt_check("version", lambda: version(_look(endpoints, served[0]).server_version))
        yield _attempt_check("clock", lambda: clock(endpoints, served[0]))
        yield _attempt("memory", "see the server's log", lambda: _memory(endpoints, served[0]))
    for run in runs or tuple(known):
        remedy = f"known runs: {', '.join(known)}" if run not in known else "see the server's log"
        yield _attempt(f"run {run}", remedy, lambda run=run: _run(endpoints, run))  # type: ignore[misc]


def _attempt(name: str, remedy: str, step: Callable[[], str]) -> Check:
    try:
        return ok(name, step())
    except HeadraceError as error:
        return Check(name=name, status="fail", found=str(error), remedy=remedy)


def _reach(address: str) -> str:
    """Resolves and connects with plain sockets, so that a failure is told from one of TLS or gRPC."""
    plain = address
    for scheme in ("dns:///", "dns:", "ipv4:", "ipv6:"):
        plain = plain.removeprefix(scheme)
    if plain.startswith("unix:"):
        return "a socket of this machine"
    host, _, port = plain.rpartition(":")
    try:
        begin = time.perf_counter()
        places = sorted({str(info[4][0]) for info in socket.getaddrinfo(host.strip("[]"), int(port))})
        with socket.create_connection((host.strip("[]"), int(port)), timeout=5):
            return f"{', '.join(places)} answers in {1e3 * (time.perf_counter() - begin):.1f} ms"
    except OSError as error:
        raise UnavailableError(f"cannot connect to `{address}`: {error}") from None


def _health(endpoints: Endpoints) -> str:
    """The standard health check, read by hand (field 1, a varint): its package is not in the base install."""
    begin = time.perf_counter()
    reply = endpoints.call("/grpc.health.v1.Health/Check", b"", timeout=5, doing="check the health")
    if reply[:2] != b"\x08\x01":
        raise UnavailableError(f"`{endpoints.current}` says that it is not serving")
    return f"serving, answered in {1e3 * (time.perf_counter() - begin):.1f} ms"


def _runs(endpoints: Endpoints) -> dict[str, bool]:
    """Name of each run, and whether the server refuses it."""
    from headrace.proto.v1 import control_pb2

    answer = endpoints.call(
        "/headrace.v1.ControlService/ListRuns",
        control_pb2.ListRunsRequest(),
        timeout=10,
        doing="list the runs",
        read=control_pb2.ListRunsResponse.FromString,
    )
    names = sorted({run.name for run in answer.runs} | set(answer.refused))
    return {name: name in answer.refused for name in names}


def _look(endpoints: Endpoints, run: str) -> Opened:
    from headrace.client.launch import Rank
    from headrace.client.session import Opening, open_run

    rank = Rank(rank=0, world=1)
    opening = Opening(run=run, mode="observe", launch=None, rank=rank, takeover=False, state=None)
    return open_run(endpoints, opening, timeout=10)


def _attempt_check(name: str, step: Callable[[], Check]) -> Check:
    try:
        return step()
    except HeadraceError as error:
        return Check(name=name, status="fail", found=str(error), remedy="see the server's log")


def version(told: str) -> Check:
    """The server's version against this one."""
    ours = _version("headrace")
    if told == ours:
        return ok("version", f"the server is {told} too")
    return Check(
        name="version",
        status="warn",
        found=f"the server is {told}, this client {ours}: what only one of them knows is refused or not used",
        remedy=f"install headrace {told} here, or {ours} there",
    )


def clock(endpoints: Endpoints, run: str) -> Check:
    """The server's clock against this one. Nothing depends on it but logs that are to be laid side by side."""
    begin = time.time()
    told = _look(endpoints, run).server_time_us / 1e6
    end = time.time()
    if not told:
        return ok("clock", "the server is older and does not tell its time")
    apart = max(begin - told, told - end, 0.0)
    if apart <= _CLOCK_SECONDS:
        return ok("clock", f"{apart:.1f} s from the server's")
    return Check(
        name="clock",
        status="warn",
        found=f"{apart:.1f} s from the server's: times in the logs of the two cannot be compared",
        remedy="set both by NTP",
    )


def _memory(endpoints: Endpoints, run: str) -> str:
    """Whether ids would come through memory shared with the server; nothing is wrong where they do not."""
    from headrace.client.endpoints import is_local
    from headrace.client.launch import Rank
    from headrace.client.session import Session
    from headrace.client.settings import Settings
    from headrace.client.share import fetch
    from headrace.client.wire import read_share

    if not is_local(endpoints.current):
        return "the server is on another host: ids come in messages"
    opened, done = _look(endpoints, run), threading.Event()
    session = Session(endpoints, opened, rank=Rank(rank=0, world=1), settings=Settings())

    def requests() -> Iterator[data_pb2.StreamBatchesRequest]:
        request = session.first_request()
        request.share_bytes = _SHARED_BYTES
        yield request
        done.wait(_SHARE_SECONDS)  # an older server says nothing

    answers = session.stream(requests()) if opened.streams else iter(())
    said = next(answers, ())
    share = read_share(said[0]) if said else None
    try:
        if share is None or share.refused:
            return f"ids come in messages: {share.refused if share else 'the server is older'}"
        fetch(share, _SHARED_BYTES).close()
    except (OSError, ValueError) as error:
        return f"ids come in messages: {error}"
    finally:
        done.set()
    return "ids come through memory shared with the server"


def _run(endpoints: Endpoints, run: str) -> str:
    """Opens the run as an observer and reads one row of a sealed step, if there is one."""
    from headrace.client.launch import Rank
    from headrace.client.session import Session
    from headrace.client.settings import Settings

    rank = Rank(rank=0, world=1)
    opened = _look(endpoints, run)
    shape = opened.shapes[0] if opened.shapes else None
    told = f"server {opened.server_version}, {len(opened.domains)} domains, lead {opened.lead}, seal {opened.seal}"
    if shape is None:
        return told
    told += f", {shape.batch} x {shape.seq_len} tokens a step, up to {opened.max_rows} rows a call"
    if not opened.seal:
        return f"{told}; nothing is sealed yet, so no row was read"
    session = Session(endpoints, opened, rank=rank, settings=Settings())
    times = []
    for slot in range(min(5, shape.batch)):
        begin = time.perf_counter()
        session.get(0, slot, 1, None)
        times.append(1e3 * (time.perf_counter() - begin))
    return f"{told}; rows arrive whole, one in {statistics.median(times):.1f} ms"
