"""What the service tests stand on: a small real corpus, a server in its own process, and a client that is only gRPC."""

from __future__ import annotations

import contextlib
import io
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
from google.protobuf.message_factory import GetMessageClass
from grpc_health.v1 import health_pb2, health_pb2_grpc
from headrace.native import row_digests, step_digest
from headrace.proto.errors import HeadraceError, from_rpc
from headrace.proto.v1 import control_pb2, data_pb2, feedback_pb2
from ports import free_port

HEADRACE = [sys.executable, "-c", "from headrace.client.cli.main import run; run()"]
RUN_TOML = """
[run]
name = "{name}"
corpus = "{corpus}"
seed = {seed}
lead = {lead}
[[phase]]
name = "stable"
steps = {steps}
seq_len = {seq_len}
batch = {batch}
weights = {{ a = 0.5, b = 0.3, c = 0.2 }}
"""
_SERVICES = {
    **data_pb2.DESCRIPTOR.services_by_name,
    **control_pb2.DESCRIPTOR.services_by_name,
    **feedback_pb2.DESCRIPTOR.services_by_name,
}
_METHODS = {method.name: method for service in _SERVICES.values() for method in service.methods}


def write_run(folder: Path, corpus: Path, **changes: Any) -> Path:
    """A RUN.toml in a folder; defaults make a short run with an uneven mixture."""
    values = {"name": "r", "seed": 7, "lead": 8, "steps": 400, "seq_len": 32, "batch": 8, **changes}
    path = folder / f"{values['name']}.toml"
    path.write_text(RUN_TOML.format(corpus=corpus, **values))
    return path


class ServerProcess:
    """A server in its own process, on a free port that it keeps over restarts."""

    def __init__(
        self,
        folder: Path,
        runs: list[Path],
        *,
        extra: str = "",
        store: str | None = None,
        program: Sequence[str] = HEADRACE,
    ) -> None:
        self.folder = folder
        self._program = program
        self.store = store or f"sqlite:///{folder}/control.db"
        self.log = folder / "server.log"
        self._runs = runs
        self._extra = extra
        self.environment: dict[str, str] = {}
        self.port = free_port()
        self.metrics_port = free_port()
        self.process: subprocess.Popen[str] | None = None
        self.start()

    def start(self) -> None:
        config = self.folder / "SERVER.toml"
        names = ", ".join(f'"{path}"' for path in self._runs)
        config.write_text(
            f'[server]\nlisten = "127.0.0.1:{self.port}"\nmetrics = "127.0.0.1:{self.metrics_port}"\n'
            f'store = "{self.store}"\nruns = [{names}]\n{self._extra}\n'
        )
        with self.log.open("a") as log:
            command = [*self._program, "serve", str(config)]
            environment = {**os.environ, **self.environment}
            self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True, env=environment)
        assert self.process.stdout is not None
        lines = []
        for line in self.process.stdout:
            lines.append(line)
            if match := re.search(r"serves on .*:(\d+),", line):
                self.port = int(match[1])
            if match := re.search(r"metrics on https?://.*:(\d+)/metrics", line):
                self.metrics_port = int(match[1])
                return
        self._reap()
        raise AssertionError(f"the server did not start: {''.join(lines)}\n{self.log.read_text()[-3000:]}")

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def kill(self) -> None:
        """SIGKILL."""
        assert self.process is not None
        self.process.kill()
        self._reap()

    def stop(self) -> int:
        """SIGTERM; the exit code."""
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        return self._reap()

    def pause(self) -> None:
        """SIGSTOP."""
        assert self.process is not None
        os.kill(self.process.pid, signal.SIGSTOP)

    def go_on(self) -> None:
        """SIGCONT."""
        assert self.process is not None
        os.kill(self.process.pid, signal.SIGCONT)

    def _reap(self) -> int:
        assert self.process is not None
        assert self.process.stdout is not None
        with contextlib.suppress(ValueError):
            self.process.stdout.close()
        return self.process.wait(timeout=30)


class Raw:
    """Calls by name, one try each, errors as the client library would raise them.

    An address of several (`ipv4:A:1,A:2`) is gone round, as gRPC does with a DNS name that leads to all of them.
    """

    def __init__(self, address: str, *, credentials: grpc.ChannelCredentials | None = None, token: str = "") -> None:
        options = (
            ("grpc.max_receive_message_length", 64 << 20),
            ("grpc.initial_reconnect_backoff_ms", 100),  # gRPC takes no less: a server starts again more slowly
            ("grpc.max_reconnect_backoff_ms", 100),
            ("grpc.use_local_subchannel_pool", 1),  # a new one dials at once, whatever older ones have met
            ("grpc.service_config", '{"loadBalancingConfig": [{"round_robin": {}}]}'),
        )
        if credentials is None:
            self._channel = grpc.insecure_channel(address, options=options)
        else:
            self._channel = grpc.secure_channel(address, credentials, options=options)
        self._address = address
        self._metadata = (("authorization", f"Bearer {token}"),) if token else ()

    def __enter__(self) -> Raw:
        return self

    def __exit__(self, *exc: object) -> None:
        self._channel.close()

    def __call__(self, method: str, *, timeout: float = 20.0, **fields: Any) -> Any:
        described = _METHODS[method]
        if described.server_streaming:
            return list(self.stream(method, timeout=timeout, **fields))
        request: Any = GetMessageClass(described.input_type)
        answer: Any = GetMessageClass(described.output_type)
        call = self._channel.unary_unary(
            f"/{described.containing_service.full_name}/{method}",
            request_serializer=request.SerializeToString,
            response_deserializer=answer.FromString,
        )
        try:
            return call(request(**fields), timeout=timeout, metadata=self._metadata)
        except grpc.RpcError as error:
            raise from_rpc(error, doing=method, endpoint=self._address) from None

    def stream(self, method: str, *, timeout: float = 20.0, **fields: Any) -> Iterator[Any]:
        """The answers of a streaming call as they come."""
        described = _METHODS[method]
        request: Any = GetMessageClass(described.input_type)
        answer: Any = GetMessageClass(described.output_type)
        call = self._channel.unary_stream(
            f"/{described.containing_service.full_name}/{method}",
            request_serializer=request.SerializeToString,
            response_deserializer=answer.FromString,
        )
        try:
            yield from call(request(**fields), timeout=timeout, metadata=self._metadata)
        except grpc.RpcError as error:
            raise from_rpc(error, doing=method, endpoint=self._address) from None


class Fleet:
    """Several servers as a client with several endpoints sees them: a call that fails goes to the next."""

    def __init__(self, servers: Sequence[ServerProcess], *, first: int = 0) -> None:
        self._raws = [Raw(server.address) for server in servers]
        self._at = first

    def __enter__(self) -> Fleet:
        return self

    def __exit__(self, *exc: object) -> None:
        for raw in self._raws:
            raw.__exit__()

    def __call__(self, method: str, *, timeout: float = 3.0, **fields: Any) -> Any:
        for left in reversed(range(len(self._raws))):
            try:
                return self._raws[self._at % len(self._raws)](method, timeout=timeout, **fields)
            except HeadraceError as error:
                if error.exit_code != 75 or not left:
                    raise
                self._at += 1
        raise AssertionError("no server in the fleet")


@dataclass
class Trainer:
    """All ranks of a job in one place: fetches steps in world parts, confirms each, and keeps the step digests."""

    raw: Raw | Fleet
    run: str = "r"
    world: int = 1
    job: str = "job"
    attempt: int = 0
    rank: str = "0"
    digests: dict[int, bytes] = field(default_factory=dict)
    opened: Any = None
    next_step: int = 0
    plan_hash: bytes = b""
    segments: dict[int, int] = field(default_factory=dict)

    def open(self, state: Mapping[str, Any] | None = None, **changes: Any) -> Trainer:
        fields: dict[str, Any] = {"run": self.run, "mode": "OPEN_MODE_TRAIN", **changes}
        fields["job"] = {
            "id": self.job,
            "attempt": self.attempt,
            "world": self.world,
            "rank": self.rank,
            "holder": f"test:{self.job}",
        }
        if state is not None:
            fields["state"] = data_pb2.State(**state)
        self.opened = self.raw("OpenRun", **fields)
        self.next_step = self.opened.next_step
        self.plan_hash = self.opened.plan_hash
        return self

    def state(self) -> dict[str, Any]:
        return {
            "schema": 1,
            "run_id": self.opened.run_id,
            "spec_digest": self.opened.spec_digest,
            "plan_hash": self.plan_hash,
            "next_step": self.next_step,
        }

    def fetch(self, step: int, *, patience: float = 20.0) -> list[Any]:
        """The parts of a step as each rank would ask for them; asks again while the answer is "try again"."""
        shape = next(s for s in reversed(self.opened.shapes) if s.from_step <= step)
        rows = shape.batch // self.world
        return [self._part(step, rank * rows, rows, patience) for rank in range(self.world)]

    def _part(self, step: int, first_slot: int, rows: int, patience: float) -> Any:
        until = time.monotonic() + patience
        while True:
            try:
                return self.raw(
                    "GetBatch",
                    run_id=self.opened.run_id,
                    lease=self.opened.lease,
                    step=step,
                    first_slot=first_slot,
                    rows=rows,
                    confirmation={"next_step": self.next_step},
                )
            except HeadraceError as error:
                if error.exit_code != 75 or time.monotonic() > until:
                    raise
                time.sleep(0.02)

    def take(self, steps: int) -> Trainer:
        """Takes this many steps, or fewer at the end of the run."""
        for _ in range(steps):
            answers = self.fetch(self.next_step)
            if answers[0].HasField("end"):
                return self
            self.check(answers)
            self.plan_hash = answers[-1].batch.next_plan_hash
            self.next_step += 1
        return self

    def settle(self) -> int:
        """Confirms what was taken and waits until the seal has followed; the seal."""
        lease = {"run_id": self.opened.run_id, "lease": self.opened.lease}
        until = time.monotonic() + 10
        while time.monotonic() < until:
            answer = self.raw("Confirm", **lease, confirmation={"next_step": self.next_step})
            if answer.seal == self.next_step + self.opened.lead:
                return int(answer.seal)
            time.sleep(0.01)
        raise AssertionError(f"the seal did not follow: {answer}")

    def check(self, answers: list[Any]) -> None:
        """Makes the digests of the rows received anew, compares them with those sent, and keeps the step's."""
        step = answers[0].batch.step
        received = b"".join(digest_rows(answer.batch, self.opened) for answer in answers)
        assert received == b"".join(answer.batch.row_digests for answer in answers)
        digest = step_digest(received)
        assert self.digests.setdefault(step, digest) == digest, f"step {step} came back with other content"
        segments = {answer.batch.segment for answer in answers}
        assert len(segments) == 1
        assert self.segments.setdefault(step, segments.pop()) == answers[0].batch.segment

    def close(self) -> None:
        self.raw(
            "CloseRun",
            run_id=self.opened.run_id,
            lease=self.opened.lease,
            confirmation={"next_step": self.next_step},
        )


def digest_rows(batch: Any, opened: Any) -> bytes:
    """Row digests of a batch as received."""
    import numpy as np

    weights = batch.loss_weights or np.ones(batch.rows, "<f4").tobytes()
    return row_digests(
        batch.token_ids,
        (batch.seq_len + 1) * opened.id_bytes,
        np.frombuffer(batch.edge_ends, "<u4"),
        np.frombuffer(batch.edges, "<u4"),
        list(batch.domain_names or opened.domains),
        np.frombuffer(batch.domains, "<u4"),
        np.frombuffer(weights, "<f4"),
        np.frombuffer(batch.mask_ends, "<u4"),
        np.frombuffer(batch.masks, "<u4"),
    )


def health_of(server: ServerProcess, name: str) -> str:
    """What the health service says of a name."""
    with grpc.insecure_channel(server.address) as channel:
        request: Any = health_pb2.HealthCheckRequest(service=name)
        answer: Any = health_pb2_grpc.HealthStub(channel).Check(request, timeout=5)
    return str(health_pb2.HealthCheckResponse.ServingStatus.Name(answer.status))


@dataclass(frozen=True)
class Done:
    """What a command left behind."""

    returncode: int
    stdout: str
    stderr: str


def headrace(*words: str, cwd: Path | None = None) -> Done:
    """The command's own entry point, in this process: a process of its own would spend a second on imports."""
    from headrace.client.cli.main import run

    out, err = io.StringIO(), io.StringIO()
    folder, argv, code = Path.cwd(), sys.argv, 0
    try:
        os.chdir(cwd or folder)
        sys.argv = ["headrace", *words]
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            run()
    except SystemExit as left:
        code = left.code if isinstance(left.code, int) else int(left.code is not None)
    finally:
        sys.argv = argv
        os.chdir(folder)
    return Done(returncode=code, stdout=out.getvalue(), stderr=err.getvalue())


def planned_digests(store: str, run: str, steps: str) -> dict[int, bytes]:
    """Step digests from the pure functions, without a server."""
    done = headrace("run", "digest", run, "--steps", steps, "--store", store)
    assert done.returncode == 0, done.stderr
    return {int(line.split()[0]): bytes.fromhex(line.split()[1]) for line in done.stdout.splitlines()}


@contextlib.contextmanager
def serving(folder: Path, runs: list[Path], **options: Any) -> Iterator[ServerProcess]:
    """A server for the length of a block."""
    server = ServerProcess(folder, runs, **options)
    try:
        yield server
    finally:
        if server.process is not None and server.process.poll() is None:
            server.kill()
