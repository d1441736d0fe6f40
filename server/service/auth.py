"""Who calls, and what they may do: bearer tokens from a file, identities from client certificates, four scopes.

    read      look at runs, observe, watch
    report    train: take leases, confirm, report losses
    operate   change what is not sealed yet, branch
    admin     make, export and import runs

Each scope holds those above it. With neither tokens nor identities configured everybody who can connect is `admin`,
which is the default on loopback. Tokens are compared by digest in constant time and never logged; the file is read
again when it changes, and a bad new file leaves the old tokens in force.
"""

from __future__ import annotations

import enum
import hashlib
import hmac
import logging
import threading
import tomllib
from collections.abc import Iterable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headrace.proto.errors import AuthError, ConfigError, UnauthenticatedError

logger = logging.getLogger("headrace.server")

SHORTEST_TOKEN = 16


class Scope(enum.IntEnum):
    """What a caller may do; each holds the lower ones."""

    READ = 1
    REPORT = 2
    OPERATE = 3
    ADMIN = 4


@dataclass(frozen=True, kw_only=True, slots=True)
class Caller:
    """Who makes the current call; `name` is empty where nobody is asked for a name."""

    name: str
    scope: Scope


EVERYBODY = Caller(name="", scope=Scope.ADMIN)
_current: ContextVar[Caller] = ContextVar("headrace_caller", default=EVERYBODY)

_SCOPES = {
    **dict.fromkeys(("ListRuns", "GetRun", "ListEvents", "Explain", "Forecast", "WatchRun", "WatchLosses"), Scope.READ),
    **dict.fromkeys(("OpenRun", "GetBatch", "StreamBatches", "CloseRun", "ListRefusals"), Scope.READ),
    **dict.fromkeys(("Confirm", "ReportLosses"), Scope.REPORT),
    **dict.fromkeys(("SetWeights", "CancelEvent", "GrowDomain", "Mask", "BranchRun"), Scope.OPERATE),
    **dict.fromkeys(("CreateRun", "ExportRun", "ImportRun"), Scope.ADMIN),
}


def scope_of(method: str) -> Scope:
    """The scope that a method needs; one that nobody has listed needs `admin`."""
    return _SCOPES.get(method.rpartition("/")[2], Scope.ADMIN)


def current() -> Caller:
    """Who makes the current call."""
    return _current.get()


def enter(caller: Caller) -> None:
    """Sets who makes the current call, for the task that runs it."""
    _current.set(caller)


def require(scope: Scope, what: str) -> None:
    """Raises AuthError when the current caller may not do `what`."""
    caller = current()
    if caller.scope < scope:
        raise AuthError(
            f"`{caller.name}` has scope {caller.scope.name.lower()}, {what} needs {scope.name.lower()}; "
            f"use a token or certificate of that scope"
        )


def parse_scope(text: str, place: str) -> Scope:
    """A scope by its name; raises ConfigError."""
    try:
        return Scope[text.upper()]
    except KeyError:
        names = ", ".join(scope.name.lower() for scope in Scope)
        raise ConfigError(f"{place}: `{text}` is no scope; there are {names}") from None


def parse_tokens(text: str, place: str) -> dict[bytes, Caller]:
    """Callers by the SHA-256 of their token, from `[[token]]` tables of name, scope and token."""
    try:
        tables = tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        # The parser's message quotes the file, which holds secrets.
        raise ConfigError(f"{place}: this is no TOML; each token is a [[token]] with name, scope and token") from None
    entries = tables.pop("token", [])
    if tables or not isinstance(entries, list) or not entries:
        raise ConfigError(
            f"{place}: each token is a [[token]] with name, scope and token; nothing else may stand there"
        )
    callers: dict[bytes, Caller] = {}
    for number, entry in enumerate(entries, 1):
        where = f"{place}: token {number}"
        name, scope, token = _entry(entry, where)
        digest = hashlib.sha256(token.encode()).digest()
        if digest in callers or any(caller.name == name for caller in callers.values()):
            raise ConfigError(f"{where}: name and token must be its own, `{name}` shares one with another entry")
        callers[digest] = Caller(name=name, scope=parse_scope(scope, where))
    return callers


def _entry(entry: Any, where: str) -> tuple[str, str, str]:
    keys = ("name", "scope", "token")
    if not isinstance(entry, dict) or set(entry) != set(keys) or not all(isinstance(entry[key], str) for key in keys):
        raise ConfigError(f"{where}: needs name, scope and token, three strings, and nothing else")
    if not entry["name"] or len(entry["token"]) < SHORTEST_TOKEN:
        raise ConfigError(f"{where}: needs a name, and a token of at least {SHORTEST_TOKEN} characters")
    return entry["name"], entry["scope"], entry["token"]


class TokenFile:
    """Tokens of a file, read again when it changes."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._seen = -1
        self._callers: dict[bytes, Caller] = {}
        self._read()

    def find(self, token: str) -> Caller | None:
        """The caller of a token. Every known digest is compared, so that the time says nothing."""
        self._refresh()
        digest = hashlib.sha256(token.encode()).digest()
        found = [caller for known, caller in self._callers.items() if hmac.compare_digest(known, digest)]
        return found[0] if found else None

    def _refresh(self) -> None:
        with self._lock:
            try:
                self._read()
            except ConfigError as error:
                logger.error("the tokens stay as they were: %s", error)

    def _read(self) -> None:
        try:
            changed = self._path.stat().st_mtime_ns
            if changed == self._seen:
                return
            self._seen = changed
            text = self._path.read_text(encoding="utf-8")
        except OSError as error:
            raise ConfigError(f"cannot read the token file {self._path}: {error.strerror}; check [auth]") from None
        except UnicodeDecodeError:  # its message quotes the file, which holds secrets
            raise ConfigError(f"the token file {self._path} is not UTF-8 text") from None
        self._callers = parse_tokens(text, str(self._path))


class Authenticator:
    """Finds the caller of a call from its token or its certificate."""

    def __init__(self, tokens: TokenFile | None, identities: Mapping[str, Scope]) -> None:
        self._tokens = tokens
        self._identities = identities
        self.is_open = tokens is None and not identities

    def caller(self, authorization: str, names: Iterable[str]) -> Caller:
        """`authorization` is the header, `names` those of the client's certificate. Raises UnauthenticatedError."""
        if self.is_open:
            return EVERYBODY
        if self._tokens is not None and authorization:
            kind, _, token = authorization.partition(" ")
            found = self._tokens.find(token.strip()) if kind.lower() == "bearer" else None
            if found is None:
                raise UnauthenticatedError("the token is not known to this server; check the client's token file")
            return found
        for name in names:
            if name in self._identities:
                return Caller(name=name, scope=self._identities[name])
        raise UnauthenticatedError(
            "this server wants a bearer token or a certificate that it knows; give the client token_file= or tls="
        )
