"""Who looks at the page: the tokens and certificates of gRPC, and sessions for browsers.

A program sends `Authorization: Bearer TOKEN`, or shows a certificate. A browser cannot, so its user gives the token
once in a form; the page answers with a cookie (HttpOnly, SameSite=Strict, Secure over TLS) that holds a random number
and nothing else. The token stays here, in memory, and is judged anew at every request: one that is taken out of the
token file ends its sessions at once. Sessions end after twelve hours, with the server, or when their user logs out.
"""

from __future__ import annotations

import secrets
import time
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass

from headrace.proto.errors import AuthError, UnauthenticatedError
from headrace.server.service.auth import Authenticator, Caller, Scope

SESSION_SECONDS = 12 * 3600
MOST_SESSIONS = 1000


@dataclass(frozen=True, kw_only=True, slots=True)
class Credentials:
    """What a request shows of its sender: the header, the session cookie, and the names of its certificate.

    `names` None: it showed no certificate.
    """

    authorization: str = ""
    session: str = ""
    names: tuple[str, ...] | None = None


class Sessions:
    """Tokens by random number, the oldest forgotten first."""

    def __init__(self, most: int = MOST_SESSIONS, seconds: float = SESSION_SECONDS) -> None:
        self._most = most
        self._seconds = seconds
        self._held: OrderedDict[str, tuple[float, str]] = OrderedDict()

    def open(self, authorization: str) -> str:
        """The number of a new session."""
        number = secrets.token_urlsafe(32)
        self._held[number] = (time.monotonic() + self._seconds, authorization)
        while len(self._held) > self._most:
            self._held.popitem(last=False)
        return number

    def find(self, number: str) -> str:
        """The authorization that a session stands for, or nothing."""
        until, authorization = self._held.get(number, (0.0, ""))
        if time.monotonic() > until:
            self.close(number)
            return ""
        return authorization

    def close(self, number: str) -> None:
        """Forgets a session."""
        self._held.pop(number, None)


class Access:
    """Finds the caller of a request and whether he may look."""

    def __init__(self, authenticator: Authenticator, *, needs_certificate: bool) -> None:
        self._authenticator = authenticator
        self.needs_certificate = needs_certificate
        self.sessions = Sessions()

    def reader(self, shown: Credentials) -> Caller:
        """Who may look; raises UnauthenticatedError or AuthError."""
        caller = self._caller(shown)
        if caller.scope < Scope.READ:
            raise AuthError(f"`{caller.name}` may not look at runs; use a token of scope read")
        return caller

    def log_in(self, token: str, names: Iterable[str] | None) -> str:
        """The number of a new session for a token; raises UnauthenticatedError."""
        authorization = f"Bearer {token.strip()}"
        self.reader(Credentials(authorization=authorization, names=None if names is None else tuple(names)))
        return self.sessions.open(authorization)

    def _caller(self, shown: Credentials) -> Caller:
        if self.needs_certificate and shown.names is None:
            raise UnauthenticatedError(
                "this server wants a client certificate of its authority ([tls] client_ca); show one, as a browser "
                "does when it is imported there, and curl with --cert and --key"
            )
        authorization = shown.authorization or self.sessions.find(shown.session)
        return self._authenticator.caller(authorization, shown.names or ())
