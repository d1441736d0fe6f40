"""The address of people and scrapers: the live page, its figures, `/metrics` and `/healthz`, on the server's own loop.

Uvicorn serves it, with no signal handlers, log or reload of its own. With [tls] it is served over HTTPS with the same
certificate as gRPC, which is read again when its file changes; with `client_ca` every caller but a health probe must
show a certificate of that authority. What figures cost is paid in a thread (see `headrace.server.watch.feed`).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import ssl
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import uvicorn
from headrace.proto.errors import ConfigError
from headrace.server.service.auth import Authenticator
from headrace.server.service.config import ServerConfig, TlsConfig, is_loopback
from headrace.server.service.registry import Registry
from headrace.server.watch.access import Access
from headrace.server.watch.feed import Drift, Feeds
from headrace.server.watch.guard import LOOPBACK_HOSTS, Guard
from headrace.server.watch.routes import Routes
from prometheus_client import CollectorRegistry
from starlette.routing import Router
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

logger = logging.getLogger("headrace.server")

MOST_REQUESTS = 512
_BACKLOG = 128
_IDLE_SECONDS = 30
_CERTIFICATE_EVERY = 10.0
_STOP_SECONDS = 3


class HttpServer:
    """The page of one server; `port` is the real one. `closed` says why gRPC takes no calls, or nothing."""

    def __init__(
        self,
        config: ServerConfig,
        registry: Registry,
        metrics: CollectorRegistry,
        authenticator: Authenticator,
        *,
        version: str,
        drift: Drift,
        closed: Callable[[], str],
    ) -> None:
        assert config.metrics is not None
        self._address = config.metrics
        self._place = config.place
        self._tls = config.tls
        self._feeds = Feeds(registry, drift)
        access = Access(authenticator, needs_certificate=config.tls is not None and config.tls.client_ca is not None)
        self._routes = Routes(
            self._feeds, access, metrics, open_metrics=config.open_metrics, version=version, closed=closed
        )
        hosts = LOOPBACK_HOSTS if is_loopback(config.metrics) else None
        self._app = Guard(Router(routes=self._routes.routes()), hosts)
        self._tasks: list[asyncio.Task[None]] = []
        self.port = 0

    async def start(self) -> None:
        """Binds and begins to answer; raises ConfigError when the address cannot be had."""
        logging.getLogger("uvicorn.error").setLevel(logging.WARNING)  # that it starts and stops, our own log says
        bound = _bind(self._address, self._place)
        self.port = bound.getsockname()[1]
        context = None if self._tls is None else tls_context(self._tls)
        self._server = _Uvicorn(_config(self._app, context))
        self._tasks.append(asyncio.create_task(self._server.serve(sockets=[bound]), name="page"))
        if context is not None and self._tls is not None:
            self._tasks.append(asyncio.create_task(_keep_certificate(context, self._tls), name="page certificate"))
        while not self._server.started and not self._tasks[0].done():
            await asyncio.sleep(0.005)

    def drain(self) -> None:
        """The health says that the server stops, and streams end."""
        self._routes.streams.stopping.set()

    async def stop(self) -> None:
        """Ends every answer, within a few seconds."""
        self.drain()
        self._server.should_exit = True
        for task in self._tasks[1:]:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._feeds.close()


class _Uvicorn(uvicorn.Server):
    """Signals belong to the server that this one is a part of."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class _Protocol(H11Protocol):
    """Tells the application which certificate a caller has shown; ASGI has no word for it."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        names = certificate_names(transport.get_extra_info("peercert"))
        self.app = partial(_with_names, self.app, names)


async def _with_names(app: ASGIApp, names: tuple[str, ...] | None, scope: Scope, receive: Receive, send: Send) -> None:
    scope["certificate_names"] = names
    await app(scope, receive, send)


def certificate_names(shown: Any) -> tuple[str, ...] | None:
    """Subject alternative names of a verified certificate, then its common names; None when none was shown."""
    if not shown:
        return None
    alternative = [str(value) for _, value in shown.get("subjectAltName", ())]
    common = [str(value) for part in shown.get("subject", ()) for key, value in part if key == "commonName"]
    return (*alternative, *common)


def _config(app: Any, context: ssl.SSLContext | None) -> uvicorn.Config:
    factory: Callable[..., ssl.SSLContext] | None = None if context is None else (lambda config, default: context)
    return uvicorn.Config(
        app,
        http=_Protocol,
        ws="none",
        lifespan="off",
        interface="asgi3",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        limit_concurrency=MOST_REQUESTS,
        timeout_keep_alive=_IDLE_SECONDS,
        timeout_graceful_shutdown=_STOP_SECONDS,
        ssl_context_factory=factory,
    )


def tls_context(tls: TlsConfig) -> ssl.SSLContext:
    """Certificate and key of the files; a client certificate is asked for where there is an authority for it."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(tls.certificate, tls.key)
        if tls.client_ca is not None:
            context.load_verify_locations(tls.client_ca)
            context.verify_mode = ssl.CERT_OPTIONAL  # who shows none is refused with a message that can be read
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(f"cannot use {tls.certificate} and {tls.key} for the page: {error}; check [tls]") from None
    return context


async def _keep_certificate(context: ssl.SSLContext, tls: TlsConfig) -> None:
    """Reads the files again when they have changed; connections from then on get the new ones."""
    seen = tls.certificate.stat().st_mtime_ns
    while True:
        await asyncio.sleep(_CERTIFICATE_EVERY)
        try:
            moment = tls.certificate.stat().st_mtime_ns
            if moment != seen:
                await asyncio.to_thread(context.load_cert_chain, tls.certificate, tls.key)
                seen = moment
        except (OSError, ssl.SSLError) as error:
            logger.error("the certificate of the page stays as it was: %s", error)


def _bind(address: str, place: str) -> socket.socket:
    host, _, port = address.rpartition(":")
    try:
        found = socket.getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, kind, protocol, _, where = found[0]
        bound = socket.socket(family, kind, protocol)
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(where)
        bound.listen(_BACKLOG)
    except OSError as error:
        raise ConfigError(
            f"{place}: cannot serve metrics and the page on {address}: {error.strerror}; is another server running "
            f"there?"
        ) from None
    bound.setblocking(False)
    return bound
