"""Asks the live page's address of a server for figures, over HTTP or HTTPS, with a token or a certificate."""

from __future__ import annotations

import http.client
import json
import ssl
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any

from headrace.proto.errors import (
    AuthError,
    HeadraceError,
    NotFoundError,
    UnauthenticatedError,
    UnavailableError,
    UsageError,
)

_SECONDS = 15.0
_LARGEST = 64 << 20
_LOOPBACK = ("localhost", "127.0.0.1", "::1")
_KINDS = {401: UnauthenticatedError, 403: AuthError, 404: NotFoundError, 429: UnavailableError, 503: UnavailableError}


class Web:
    """One server's page. `endpoint` is its address as `headrace serve` prints it, such as http://127.0.0.1:7751."""

    def __init__(
        self,
        endpoint: str,
        *,
        ca: Path | None = None,
        cert: Path | None = None,
        key: Path | None = None,
        token_file: Path | None = None,
    ) -> None:
        secure = bool(ca or cert or key)
        self._endpoint = _checked(endpoint, secure=secure, has_token=token_file is not None)
        self._token_file = token_file
        handlers: list[urllib.request.BaseHandler] = [urllib.request.ProxyHandler({}), _NoRedirect()]
        if self._endpoint.startswith("https:"):
            handlers.append(urllib.request.HTTPSHandler(context=_context(ca, cert, key)))
        self._opener = urllib.request.build_opener(*handlers)

    def runs(self) -> list[str]:
        """Names of the server's runs: those that it serves, then those that are refused."""
        answer = self._get("/api/runs")
        return sorted(map(str, answer["runs"]), key=lambda name: name in answer.get("refused", {}))

    def snapshot(self, run: str) -> dict[str, Any]:
        """A run's figures."""
        return self._get(f"/api/runs/{urllib.parse.quote(run, safe='')}")

    def _get(self, path: str) -> dict[str, Any]:
        request = urllib.request.Request(self._endpoint + path, headers=self._headers())
        try:
            with self._opener.open(request, timeout=_SECONDS) as answer:
                value = json.loads(answer.read(_LARGEST))
        except urllib.error.HTTPError as error:
            kind = _KINDS.get(error.code, HeadraceError)
            raise kind(f"{self._endpoint}{path}: {_message(error)}") from None
        except http.client.HTTPException:
            raise UsageError(
                f"{self._endpoint} does not speak HTTP; is it the `listen` address of SERVER.toml? --endpoint wants "
                f"that of `metrics`"
            ) from None
        except (OSError, ValueError) as error:
            cause = getattr(error, "reason", error)
            raise UnavailableError(
                f"no figures from {self._endpoint}: {cause}; is a server with `metrics` in its SERVER.toml running "
                f"there? --endpoint names another address"
            ) from None
        if not isinstance(value, dict):
            raise UnavailableError(f"{self._endpoint}{path} is no page of Headrace; check --endpoint")
        return value

    def _headers(self) -> dict[str, str]:
        if self._token_file is None:
            return {}
        try:
            return {"Authorization": f"Bearer {self._token_file.read_text(encoding='utf-8').strip()}"}
        except OSError as error:
            raise UsageError(f"token file {self._token_file} cannot be read: {error.strerror}") from None


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A token must never follow a redirect elsewhere."""

    def redirect_request(self, *args: Any, **kwargs: Any) -> None:
        return None


def _checked(endpoint: str, *, secure: bool, has_token: bool) -> str:
    text = endpoint if "://" in endpoint else f"{'https' if secure else 'http'}://{endpoint}"
    try:
        parts = urllib.parse.urlsplit(text)
        good = parts.scheme in ("http", "https") and parts.hostname and parts.port and parts.path in ("", "/")
    except ValueError:
        good = None
    if not good:
        raise UsageError(f"`{endpoint}` is no address of a page; write it as http://127.0.0.1:7751")
    if parts.scheme == "http" and has_token and parts.hostname not in _LOOPBACK:
        raise UsageError(f"`{endpoint}`: a token is sent only over https or to this machine")
    return f"{parts.scheme}://{parts.netloc}"


def _context(ca: Path | None, cert: Path | None, key: Path | None) -> ssl.SSLContext:
    if (cert is None) != (key is None):
        raise UsageError("--cert and --key go together: give both for mTLS, or neither")
    try:
        context = ssl.create_default_context(cafile=ca)
        if cert is not None:
            context.load_cert_chain(cert, key)
    except (OSError, ssl.SSLError) as error:
        raise UsageError(f"the files of --ca, --cert and --key cannot be used: {error}") from None
    return context


def _message(error: urllib.error.HTTPError) -> str:
    try:
        return str(json.loads(error.read(1 << 16))["error"]["message"])
    except (OSError, ValueError, KeyError, TypeError):
        return f"the server answered {error.code}"
