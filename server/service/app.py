"""The server: one process, one event loop, one gRPC port, one store.

Starts in this order: store (and its lock), services, port, corpora that are not built yet, runs of the configuration,
health SERVING; until then every call is refused as UNAVAILABLE in words that say what goes on. Stops in the reverse:
health NOT_SERVING first, so that clients and balancers go elsewhere, then calls under way end, then what ranks
have said is written.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import resource
import signal
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection
from headrace.native import __version__
from headrace.proto.errors import ConfigError
from headrace.proto.v1 import control_pb2, data_pb2, feedback_pb2
from headrace.server.control.aio import AsyncStore
from headrace.server.control.store import Store
from headrace.server.service.audit import Audit
from headrace.server.service.auth import Authenticator, TokenFile, parse_scope
from headrace.server.service.building import StoppedError
from headrace.server.service.check import check_ports
from headrace.server.service.config import ServerConfig
from headrace.server.service.configured import Configured
from headrace.server.service.control import ControlService
from headrace.server.service.data import DataService
from headrace.server.service.exposition import certificate_end, watched
from headrace.server.service.feedback import FeedbackService
from headrace.server.service.handle import RunHandle
from headrace.server.service.interceptors import Around, Authorized, Errors, Measured
from headrace.server.service.limiter import Limiter
from headrace.server.service.logs import tell, told
from headrace.server.service.malloc import keep_freed_memory
from headrace.server.service.metrics import Metrics
from headrace.server.service.registry import Registry
from headrace.server.service.run_metrics import RunCollector
from headrace.server.service.shares import Shares
from headrace.server.service.spans import Traced, exporting, wanted
from headrace.server.service.tls import server_credentials
from headrace.server.service.wire import handlers, service_of
from headrace.server.watch.drift_figures import DriftFigure
from headrace.server.watch.drift_watch import DriftTask
from headrace.server.watch.http import HttpServer

logger = logging.getLogger("headrace.server")

DATA = service_of(data_pb2.DESCRIPTOR, "DataService")
CONTROL = service_of(control_pb2.DESCRIPTOR, "ControlService")
FEEDBACK = service_of(feedback_pb2.DESCRIPTOR, "FeedbackService")

_SERVING = health_pb2.HealthCheckResponse.SERVING
_NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING
_HEALTH_SECONDS = 0.5
REQUEST_BYTES = 256 << 10
_FILES_WANTED = 20_000
# What a call waits for at most, several times, while a thread writes a change or gathers rows; 5 ms if not set.
_SWITCH_SECONDS = 0.0005
# Most of them wait for disks; they are made when they are needed.
_THREADS = 128
OPTIONS: tuple[tuple[str, int], ...] = (
    ("grpc.keepalive_time_ms", 60_000),
    ("grpc.keepalive_timeout_ms", 20_000),
    ("grpc.keepalive_permit_without_calls", 1),
    # Without it a client that is idle may ask whether the server lives once in five minutes, and is hung up on.
    ("grpc.http2.min_ping_interval_without_data_ms", 250),
    ("grpc.max_receive_message_length", REQUEST_BYTES),
    # What bounds a message is `message_bytes`, which counts ids; edges come on top, and one row is always sent.
    ("grpc.max_send_message_length", 256 << 20),
    # What one connection may have under way; more waits in its client. It bounds what is held for one that never reads.
    ("grpc.max_concurrent_streams", 24),
    ("grpc.so_reuseport", 0),
    ("grpc.max_connection_age_ms", 30 * 60_000),
    ("grpc.max_connection_age_grace_ms", 60_000),
)


class Server:
    """A running server; `port` and `metrics_port` are the real ones (a configuration may say 0)."""

    def __init__(
        self, config: ServerConfig, registry: Registry, metrics: Metrics, audit: Audit, around: Sequence[Around] = ()
    ) -> None:
        self.config = config
        self.registry = registry
        self.metrics = metrics
        registry.on_built = metrics.built
        self._runs = Configured(config.runs, registry)
        self._audit = audit
        self.port = 0
        self.metrics_port = 0
        self.drift: DriftTask | None = None
        self._page: HttpServer | None = None
        self._told_health: dict[str, int] = {}
        self._tasks: list[asyncio.Task[None]] = []
        self._authenticator = _authenticator(config)
        self._health = health.aio.HealthServicer()
        self._errors = Errors()
        self._shares = Shares(config.share_bytes, metrics.share)
        inner = (self._errors, Authorized(self._authenticator, audit, metrics), Measured(metrics))
        self._grpc = grpc.aio.server(
            interceptors=(*around, *inner),
            options=OPTIONS,
            maximum_concurrent_rpcs=config.concurrent_calls,
        )

    async def start(self) -> None:
        """Adds the services and binds the ports; calls are refused until `open_runs`."""
        self._errors.closed = "this server is starting; try again in a moment"
        self._shares.listen()
        data = DataService(self.registry, self.metrics, shares=self._shares, message_bytes=self.config.message_bytes)
        control = ControlService(self.registry, self.metrics, self._audit, Limiter(self.config.changes_per_second))
        feedback = FeedbackService(self.registry, self.metrics)
        self._grpc.add_generic_rpc_handlers(
            (
                handlers(DATA, data, raw={"GetBatch", "StreamBatches"}),
                handlers(CONTROL, control),
                handlers(FEEDBACK, feedback),
            )
        )
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._grpc)
        if self.config.reflection:
            reflection.enable_server_reflection((*service_names(), reflection.SERVICE_NAME), self._grpc)
        self.port = _bind(self._grpc, self.config)
        if self.config.drift is not None:
            self.drift = DriftTask(lambda: self.registry.handles, self.config.drift)
        await self._start_page()
        await self._set_health(health_pb2.HealthCheckResponse.NOT_SERVING)
        await self._grpc.start()
        self.registry.listen()
        self._tasks.append(asyncio.create_task(self._keep_run_health(), name="health of runs"))

    async def _keep_run_health(self) -> None:
        while True:
            await self._tell_run_health()
            await asyncio.sleep(_HEALTH_SECONDS)

    async def _tell_run_health(self) -> None:
        """`run/NAME` is NOT_SERVING while this server cannot serve every step of the run that is to come."""
        can = {handle.view.run.name: handle.can_go_on for handle in self.registry.handles}
        for run, goes_on in {**dict.fromkeys(self.registry.refused, False), **can}.items():
            name = f"run/{run}"
            status = _SERVING if goes_on else _NOT_SERVING
            if self._told_health.get(name) != status:
                self._told_health[name] = status
                await self._health.set(name, status)

    async def open_runs(self, stopped: Callable[[], bool]) -> None:
        """Builds what is not built, makes and opens the runs of the configuration, gets ready, and reports SERVING."""
        await self._runs.open(self._refuse, stopped)
        await self.registry.rehearse()
        gc.freeze()  # modules and logs stay for good: to look through them again holds all calls up for 50 ms and more
        self._tasks.append(asyncio.create_task(self._runs.keep_looking(), name="runs that are refused"))
        self._refuse("")
        await self._tell_run_health()
        await self._set_health(health_pb2.HealthCheckResponse.SERVING)

    def _refuse(self, words: str) -> None:
        self._errors.closed = words

    async def _start_page(self) -> None:
        certificate = self.config.tls.certificate if self.config.tls else None
        runs = RunCollector(
            lambda: watched(self.registry.handles, self.drift, self.metrics.losses),
            certificate_end(certificate),
            lambda: self.registry.refused,
        )
        self.metrics.registry.register(runs)
        if self.config.metrics is None:
            return
        self._page = HttpServer(
            self.config,
            self.registry,
            self.metrics.registry,
            self._authenticator,
            version=__version__,
            drift=self._drift,
            closed=lambda: self._errors.closed,
        )
        await self._page.start()
        self.metrics_port = self._page.port

    def _drift(self, handle: RunHandle) -> Sequence[DriftFigure]:
        return () if self.drift is None else self.drift.of(handle).figures()

    async def stop(self) -> None:
        """Refuses new calls, lets those under way end within the grace, and writes what is unwritten."""
        await self._stop_tasks()
        await self._set_health(health_pb2.HealthCheckResponse.NOT_SERVING)
        if self._page is not None:
            self._page.drain()
        await self._errors.drain(self.config.grace_seconds)
        await self._grpc.stop(1)
        await self._shares.close()
        if self._page is not None:
            await self._page.stop()
        if self.drift is not None:
            await self.drift.close()
        await self.registry.close()

    async def _stop_tasks(self) -> None:
        for task in self._tasks:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
        for handle in self.registry.handles:
            await self._health.set(f"run/{handle.view.run.name}", _NOT_SERVING)

    async def _set_health(self, status: int) -> None:
        for name in ("", *service_names()):
            await self._health.set(name, status)


def service_names() -> tuple[str, ...]:
    """Full names of our services and of the health service."""
    return (DATA.full_name, CONTROL.full_name, FEEDBACK.full_name, str(health.SERVICE_NAME))


def _authenticator(config: ServerConfig) -> Authenticator:
    named = (config.identities or {}).items()
    identities = {name: parse_scope(scope, f"{config.place}: identity `{name}`") for name, scope in named}
    return Authenticator(TokenFile(config.tokens) if config.tokens else None, identities)


def _bind(server: grpc.aio.Server, config: ServerConfig) -> int:
    address = config.listen
    try:
        if config.tls is None:
            port = server.add_insecure_port(address)
        else:
            port = server.add_secure_port(address, server_credentials(config.tls))
    except RuntimeError:
        port = 0
    if port == 0:
        raise ConfigError(
            f"cannot listen on {address}: the address is in use, or is not this machine's; choose another"
        )
    return port


@contextlib.asynccontextmanager
async def running(config: ServerConfig, stopped: Callable[[], bool] = lambda: False) -> AsyncIterator[Server]:
    """A ready server, until its graceful stop; raises StoppedError if `stopped` turns true before it is ready."""
    keep_freed_memory()
    sys.setswitchinterval(_SWITCH_SECONDS)
    _raise_file_limit()
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(_THREADS, "headrace"))
    check_ports(config)
    spans = exporting() if wanted() else None
    around = (Traced(spans),) if spans else ()
    store = AsyncStore(await asyncio.to_thread(Store, config.store, writable=True))
    audit = Audit(store)
    server = Server(config, Registry(store, bad_blocks=config.bad_blocks), Metrics(__version__), audit, around)
    try:
        await server.start()
        try:
            await server.open_runs(stopped)
            yield server
        finally:
            await server.stop()
    finally:
        await audit.close()
        await asyncio.to_thread(store.close)
        if spans is not None:
            await asyncio.to_thread(spans.shutdown)


def _raise_file_limit() -> None:
    """Each connection is a file: takes what the system allows and says so when it is little."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _FILES_WANTED if hard == resource.RLIM_INFINITY else min(_FILES_WANTED, hard)
    if soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    if wanted < _FILES_WANTED:
        logger.warning("this process may open %d files, about as many clients; raise `ulimit -n` for more", wanted)


async def serve(config: ServerConfig) -> None:
    """Runs a server until SIGTERM or SIGINT; raises HeadraceError when it cannot start."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    try:
        async with running(config, stop.is_set) as server:
            for line in _greeting(server):
                print(line, flush=True)
            await stop.wait()
            seconds = config.grace_seconds
            logger.info("stopping: no new calls, those under way have %d s", seconds, extra=told("stopping"))
        for run in (handle.view.run for handle in server.registry.handles):
            what = f"stopped with {run.confirmed} steps confirmed, sealed to {run.seal}"
            tell(logging.INFO, "stopped", run.name, what, step=run.confirmed)
    except StoppedError as reason:
        logger.info("%s", reason)


def _greeting(server: Server) -> list[str]:
    config = server.config
    host = config.listen.rpartition(":")[0]
    lines = [f"headrace {__version__} serves on {host}:{server.port}, store {server.registry.store.store.name}"]
    if config.metrics is not None:
        scheme = "http" if config.tls is None else "https"
        where = f"{scheme}://{config.metrics.rpartition(':')[0]}:{server.metrics_port}"
        lines.append(f"live page on {where}/, metrics on {where}/metrics")
    runs = [handle.view.run for handle in server.registry.handles]
    lines += [f"run {run.name}: confirmed {run.confirmed}, seal {run.seal}" for run in runs]
    return lines + [f"run {name} is NOT SERVED: {error}" for name, error in server.registry.refused.items()]
