"""The login form: a token once, then a cookie. Nothing of it runs a script.

A wrong token costs a second, and no more than eight are tried at once, so guessing a token of 16 characters takes
longer than there is time. A form that another site has sent is refused.
"""

from __future__ import annotations

import asyncio
import html
import logging
from urllib.parse import parse_qs

from headrace.proto.errors import AuthError, LimitError, UsageError
from headrace.server.watch.access import SESSION_SECONDS, Access
from headrace.server.watch.files import StaticFile
from headrace.server.watch.requests import PRIVATE, cookie_name, credentials
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

logger = logging.getLogger("headrace.server")

_LARGEST_FORM = 4096
_WRONG_SECONDS = 1.0
_AT_ONCE = 8
_PLACE = "<!-- said -->"


class Login:
    """The form and what it does."""

    def __init__(self, access: Access, form: StaticFile) -> None:
        self._access = access
        self._form = form.content.decode()
        self._trying = 0

    async def form(self, request: Request) -> Response:
        """The empty form, or the page for who needs none."""
        try:
            self._access.reader(credentials(request))
        except AuthError as error:
            needs_certificate = self._access.needs_certificate and credentials(request).names is None
            return self._shown(str(error) if needs_certificate else "", 200)
        return RedirectResponse("/", status_code=303, headers=PRIVATE)

    async def log_in(self, request: Request) -> Response:
        """Takes the token of the form."""
        check_origin(request)
        if self._trying >= _AT_ONCE:
            raise LimitError("too many logins at once; try again in a few seconds")
        self._trying += 1
        try:
            token = await _token(request)
            session = self._access.log_in(token, credentials(request).names)
        except AuthError as error:
            who = request.client.host if request.client else "-"
            logger.warning("login to the page from %s was refused", who)
            await asyncio.sleep(_WRONG_SECONDS)
            return self._shown(str(error), 401)
        finally:
            self._trying -= 1
        answer = RedirectResponse("/", status_code=303, headers=PRIVATE)
        answer.set_cookie(
            cookie_name(request),
            session,
            max_age=SESSION_SECONDS,
            httponly=True,
            samesite="strict",
            secure=request.scope["scheme"] == "https",
        )
        return answer

    async def log_out(self, request: Request) -> Response:
        """Forgets the session, here and in the browser."""
        check_origin(request)
        self._access.sessions.close(credentials(request).session)
        answer = RedirectResponse("/login", status_code=303, headers=PRIVATE)
        answer.set_cookie(
            cookie_name(request),
            "",
            max_age=0,
            httponly=True,
            samesite="strict",
            secure=request.scope["scheme"] == "https",
        )
        return answer

    def _shown(self, said: str, status: int) -> Response:
        line = f'<p class="said" role="alert">{html.escape(said)}</p>' if said else ""
        return HTMLResponse(self._form.replace(_PLACE, line), status_code=status, headers=PRIVATE)


def check_origin(request: Request) -> None:
    """Refuses a form of another site. Raises AuthError."""
    origin = request.headers.get("origin")
    if request.headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none") or (
        origin is not None and origin.partition("://")[2] != request.headers.get("host")
    ):
        raise AuthError("this form comes from another site; open the page and log in there")


async def _token(request: Request) -> str:
    body = b""
    async for part in request.stream():
        body += part
        if len(body) > _LARGEST_FORM:
            raise UsageError("this form is too large; it holds a token and nothing else")
    try:
        fields = parse_qs(body.decode("ascii"), max_num_fields=4)
    except ValueError:
        raise UsageError("this form cannot be read; send `token=...` as application/x-www-form-urlencoded") from None
    return fields.get("token", [""])[0]
