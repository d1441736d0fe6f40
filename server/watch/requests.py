"""What is read from a request, and how answers are packed."""

from __future__ import annotations

import gzip

from headrace.proto.errors import UsageError
from headrace.server.watch.access import Credentials
from starlette.requests import Request

PRIVATE = {"cache-control": "no-store"}
PACK_ABOVE = 2048
_LARGEST = 1 << 62


def credentials(request: Request) -> Credentials:
    """What a request shows of its sender."""
    return Credentials(
        authorization=request.headers.get("authorization", ""),
        session=request.cookies.get(cookie_name(request), ""),
        names=request.scope.get("certificate_names"),
    )


def cookie_name(request: Request) -> str:
    """Cookies do not know of ports: two servers of one host must not log each other out."""
    port = (request.scope.get("server") or ("", 0))[1]
    return f"{'__Host-' if request.scope['scheme'] == 'https' else ''}headrace-{port}"


def whole_number(request: Request, name: str) -> int | None:
    """A parameter that is a number of at least 0; None when it is not given."""
    text = request.query_params.get(name)
    if text is None:
        return None
    if not text.isascii() or not text.isdigit() or len(text) > 19 or int(text) > _LARGEST:
        raise UsageError(f"{name} must be a whole number of at least 0, not `{text[:40]}`")
    return int(text)


def takes_gzip(request: Request) -> bool:
    """Whether the answer may be compressed."""
    return "gzip" in request.headers.get("accept-encoding", "")


def pack(content: bytes) -> bytes:
    """Fast rather than small: pages are near."""
    return gzip.compress(content, compresslevel=1)
