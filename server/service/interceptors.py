"""What happens around every call, in this order: errors become statuses, who may call is checked, calls are measured.

Three interceptors only; each wraps a handler once, when a method is first looked up by the call. An error that is not
the project's own is a bug of ours: its traceback goes to the log under a number that the client is given.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, TypeAlias

import grpc
from headrace.proto.errors import AuthError, ElsewhereError, HeadraceError, UnauthenticatedError, trailing_metadata
from headrace.server.service.audit import Audit
from headrace.server.service.auth import Authenticator, Scope, enter, require, scope_of
from headrace.server.service.certificate import not_after
from headrace.server.service.logs import remedy_of, told
from headrace.server.service.metrics import Metrics

logger = logging.getLogger("headrace.server")

CHECK_AGAIN_SECONDS = 1.0
"""How often it is looked at again whether somebody whose stream goes on may still read it."""
Handler: TypeAlias = "grpc.RpcMethodHandler[Any, Any] | None"
Context = grpc.aio.ServicerContext[Any, Any]
Unary = Callable[[Any, Context], Awaitable[Any]]
Stream = Callable[[Any, Context], AsyncIterator[Any]]


class Around(grpc.aio.ServerInterceptor):
    """An interceptor that wraps unary and streaming handlers, each method's once."""

    def __init__(self) -> None:
        self._wrapped: dict[str, Handler] = {}

    def unary(self, method: str, call: Unary) -> Unary:
        """The call to make instead."""
        raise TypeError(f"{type(self).__name__} does not wrap unary calls of {method}")

    def stream(self, method: str, call: Stream) -> Stream:
        """The call to make instead."""
        return call

    async def intercept_service(
        self, continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Handler]], details: grpc.HandlerCallDetails
    ) -> Handler:
        method = details.method
        if method not in self._wrapped:
            handler: Any = await continuation(details)
            if handler is None:  # no such method: never kept, for anybody may ask for anything
                return None
            self._wrapped[method] = self._wrap(method, handler)
        return self._wrapped[method]

    def _wrap(self, method: str, handler: Any) -> Handler:
        kinds = {
            "request_deserializer": handler.request_deserializer,
            "response_serializer": handler.response_serializer,
        }
        if handler.unary_unary is not None:
            return grpc.unary_unary_rpc_method_handler(self.unary(method, handler.unary_unary), **kinds)
        if handler.unary_stream is not None:
            return grpc.unary_stream_rpc_method_handler(self.stream(method, handler.unary_stream), **kinds)
        if handler.stream_stream is not None and method.startswith("/headrace."):
            return grpc.stream_stream_rpc_method_handler(self.stream(method, handler.stream_stream), **kinds)
        return handler  # type: ignore[no-any-return]  # reflection streams both ways; it is not ours


async def _abort(context: Context, method: str, error: BaseException) -> None:
    if isinstance(error, HeadraceError):
        await context.abort(error.status, str(error), trailing_metadata(error))
    number = secrets.token_hex(4)
    fields = told("defect", method=method, number=number)
    logger.error("%s failed (error %s)", method, number, exc_info=error, extra=fields)
    await context.abort(grpc.StatusCode.INTERNAL, f"the server failed on this call; its log has the cause as {number}")


class Errors(Around):
    """Turns the project's errors into statuses with the class in the trailing metadata.

    While `closed` says why (the server starts, builds or drains), new calls are refused with these words as
    UNAVAILABLE; those under way are counted down.
    """

    def __init__(self) -> None:
        super().__init__()
        self._active = 0
        self.closed = ""

    async def drain(self, seconds: float) -> None:
        """Refuses new calls with UNAVAILABLE and waits until those under way have ended, at most this long."""
        self.closed = "this server is stopping; ask another one, or again when it is back"
        until = time.monotonic() + seconds
        while self._active and time.monotonic() < until:
            await asyncio.sleep(0.02)

    def unary(self, method: str, call: Unary) -> Unary:
        async def guarded(request: Any, context: Context) -> Any:
            self._active += 1
            try:
                self._check_open(method)
                return await call(request, context)
            except (asyncio.CancelledError, grpc.aio.AbortError):
                raise
            except Exception as error:
                return await _abort(context, method, error)
            finally:
                self._active -= 1

        return guarded

    def stream(self, method: str, call: Stream) -> Stream:
        async def guarded(request: Any, context: Context) -> AsyncIterator[Any]:
            try:
                self._check_open(method)
                async for answer in call(request, context):
                    yield answer
                    self._check_open(method)
            except (asyncio.CancelledError, grpc.aio.AbortError):
                raise
            except Exception as error:
                await _abort(context, method, error)

        return guarded

    def _check_open(self, method: str) -> None:
        if self.closed and not is_public(method):
            raise ElsewhereError(self.closed)


class Measured(Around):
    """Counts calls by method and status, and their time. Methods that do not exist are never labels."""

    def __init__(self, metrics: Metrics) -> None:
        super().__init__()
        self._metrics = metrics

    def unary(self, method: str, call: Unary) -> Unary:
        name = method.rpartition("/")[2]

        async def measured(request: Any, context: Context) -> Any:
            started, code = time.perf_counter(), "OK"
            try:
                return await call(request, context)
            except HeadraceError as error:
                code = error.status.name
                raise
            except BaseException as error:
                code = "CANCELLED" if isinstance(error, asyncio.CancelledError) else "INTERNAL"
                raise
            finally:
                self._metrics.handled(name, code, time.perf_counter() - started)

        return measured


class Authorized(Around):
    """Finds out who calls and whether they may; a refused change is noted. The health service is open to probes."""

    def __init__(self, authenticator: Authenticator, audit: Audit, metrics: Metrics) -> None:
        super().__init__()
        self._authenticator = authenticator
        self._audit = audit
        self._metrics = metrics

    def unary(self, method: str, call: Unary) -> Unary:
        if is_public(method):
            return call

        async def authorized(request: Any, context: Context) -> Any:
            self._enter(method, request, context)
            return await call(request, context)

        return authorized

    def stream(self, method: str, call: Stream) -> Stream:
        if is_public(method):
            return call

        async def authorized(request: Any, context: Context) -> AsyncIterator[Any]:
            self._enter(method, request, context)
            checked = time.monotonic()
            async for answer in call(request, context):
                if time.monotonic() - checked >= CHECK_AGAIN_SECONDS:  # it may have been revoked, or have expired
                    self._enter(method, request, context)
                    checked = time.monotonic()
                yield answer

        return authorized

    def _enter(self, method: str, request: Any, context: Context) -> None:
        name = method.rpartition("/")[2]
        peer = str(context.peer())
        try:
            check_certificate(context)
            caller = self._authenticator.caller(_authorization(context), certificate_names(context))
            enter(caller)
            peer = caller.name or peer
            require(scope_of(method), name)
        except AuthError as error:
            self._metrics.handled(name, error.status.name, 0.0)
            if scope_of(method) >= Scope.OPERATE:
                run = getattr(request, "run", "") or getattr(request, "name", "")
                self._audit.refused(run=str(run)[:100], who=peer, method=name, reason=str(error))
            fields = told("unauthorized", method=name, who=peer, remedy=remedy_of(error))
            logger.warning("%s by %s was refused: %s", name, peer, error, extra=fields)
            raise


def is_public(method: str) -> bool:
    """Probes of the health service need no token."""
    return method.startswith("/grpc.health.")


def _authorization(context: Context) -> str:
    metadata = context.invocation_metadata() or ()
    return next((str(value) for key, value in metadata if key == "authorization"), "")


def check_certificate(context: Context) -> None:
    """Raises UnauthenticatedError when the client's certificate has ended since the connection was made."""
    for pem in context.auth_context().get("x509_pem_cert", ()):
        end = _end_of(pem)
        if end is not None and end < time.time():
            raise UnauthenticatedError(
                f"the client's certificate has ended at {datetime.fromtimestamp(end, UTC):%Y-%m-%d %H:%M:%S} UTC; "
                f"renew it and connect again"
            )


@lru_cache(maxsize=1024)
def _end_of(pem: bytes) -> float | None:
    """When a certificate ends, seconds since 1970; None when it does not say so in a way that is known here."""
    try:
        return not_after(pem.decode("ascii")).timestamp()
    except (ValueError, UnicodeDecodeError):
        return None


def certificate_names(context: Context) -> list[str]:
    """Subject alternative names of the client's certificate, then its common name."""
    found = context.auth_context()
    keys = ("x509_subject_alternative_name", "x509_common_name")
    return [name.decode(errors="replace") for key in keys for name in found.get(key, ())]
