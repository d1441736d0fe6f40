"""What stands around every request to the page: who may come in, and what a browser may do with the answer.

* On loopback the `Host` header must name this machine: a page of another site, whose name was made to point here (DNS
  rebinding), is turned away before anything is looked up.
* The content security policy allows scripts, styles and connections of this server alone, nothing inline, no frames.
* No answer shows a traceback: it has a number, under which the log has the cause.
"""

from __future__ import annotations

import json
import logging
import secrets
from collections.abc import Mapping

import grpc
from headrace.proto.errors import HeadraceError
from starlette.types import ASGIApp, Message, Receive, Scope, Send

logger = logging.getLogger("headrace.server")

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; "
    "base-uri 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
)
HEADERS: Mapping[str, str] = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=(), payment=(), usb=()",
}
LOOPBACK_HOSTS = frozenset({"localhost", "127.0.0.1", "::1"})

_STATUS = {
    grpc.StatusCode.INVALID_ARGUMENT: 400,
    grpc.StatusCode.UNAUTHENTICATED: 401,
    grpc.StatusCode.PERMISSION_DENIED: 403,
    grpc.StatusCode.NOT_FOUND: 404,
    grpc.StatusCode.OUT_OF_RANGE: 404,
    grpc.StatusCode.FAILED_PRECONDITION: 409,
    grpc.StatusCode.ABORTED: 409,
    grpc.StatusCode.ALREADY_EXISTS: 409,
    grpc.StatusCode.RESOURCE_EXHAUSTED: 429,
    grpc.StatusCode.UNAVAILABLE: 503,
    grpc.StatusCode.DEADLINE_EXCEEDED: 504,
}


class Guard:
    """Wraps an application. `hosts` None: any host name may be asked for."""

    def __init__(self, app: ASGIApp, hosts: frozenset[str] | None) -> None:
        self._app = app
        self._hosts = hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":  # a websocket, which nothing here speaks
            return
        begun = False

        async def guarded(message: Message) -> None:
            nonlocal begun
            if message["type"] == "http.response.start":
                begun = True
                held = {name for name, _ in message["headers"]}
                message["headers"] = [
                    *message["headers"],
                    *((n.encode(), v.encode()) for n, v in HEADERS.items() if n.encode() not in held),
                ]
            await send(message)

        try:
            if not self._is_known(scope):
                await answer(guarded, 421, "WrongHost", "this server does not go by that name; ask for localhost")
            else:
                await self._app(scope, receive, guarded)
        except Exception as error:
            if begun:  # nothing can be said any more; the connection ends
                logger.exception("%s %s failed in its answer", scope["method"], scope["path"])
                raise ConnectionError("an answer ended in its middle") from None
            await failed(guarded, f"{scope['method']} {scope['path']}", error)

    def _is_known(self, scope: Scope) -> bool:
        if self._hosts is None:
            return True
        given = [value.decode("latin-1") for name, value in scope["headers"] if name == b"host"]
        return len(given) == 1 and host_of(given[0]) in self._hosts


def host_of(header: str) -> str:
    """The name of a `Host` header without its port."""
    if header.startswith("["):
        return header[1:].partition("]")[0].lower()
    return header.partition(":")[0].rstrip(".").lower()


async def failed(send: Send, what: str, error: Exception) -> None:
    """Answers with an error: ours with its message, any other with a number."""
    if isinstance(error, HeadraceError):
        await answer(send, _STATUS.get(error.status, 500), type(error).__name__, str(error))
        return
    number = secrets.token_hex(4)
    logger.error("%s failed (error %s)", what, number, exc_info=error)
    await answer(send, 500, "InternalError", f"the server failed on this request; its log has the cause as {number}")


async def answer(send: Send, status: int, kind: str, message: str) -> None:
    """A JSON answer that holds an error."""
    body = json.dumps({"error": {"kind": kind, "message": message}}, ensure_ascii=False).encode()
    headers = [(b"content-type", b"application/json"), (b"cache-control", b"no-store")]
    if status == 401:
        headers.append((b"www-authenticate", b'Bearer realm="headrace"'))
    if status in (429, 503):
        headers.append((b"retry-after", b"5"))
    headers.append((b"content-length", str(len(body)).encode()))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
