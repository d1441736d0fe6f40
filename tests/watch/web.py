"""Requests to a server's page as a program makes them: no browser, no redirects followed."""

from __future__ import annotations

import http.client
import json
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Got:
    """An answer."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Web:
    """One address, with headers that every request carries."""

    def __init__(self, port: int, *, tls: ssl.SSLContext | None = None, **headers: str) -> None:
        self._port = port
        self._tls = tls
        self._headers = {name.replace("_", "-"): value for name, value in headers.items()}

    def __call__(self, path: str, *, method: str = "GET", body: str | None = None, **headers: str) -> Got:
        connection = self._connect()
        try:
            given = {**self._headers, **{name.replace("_", "-"): value for name, value in headers.items()}}
            connection.request(method, path, body=body, headers=given)
            answer = connection.getresponse()
            return Got(answer.status, {k.lower(): v for k, v in answer.getheaders()}, answer.read())
        finally:
            connection.close()

    def _connect(self) -> http.client.HTTPConnection:
        if self._tls is None:
            return http.client.HTTPConnection("127.0.0.1", self._port, timeout=10)
        return http.client.HTTPSConnection("127.0.0.1", self._port, timeout=10, context=self._tls)

    def messages(self, path: str, count: int, **headers: str) -> list[tuple[str, Any]]:
        """The first messages of a stream of server-sent events, as (event, data)."""
        connection = self._connect()
        try:
            connection.request("GET", path, headers={**self._headers, **headers})
            answer = connection.getresponse()
            assert answer.status == 200, answer.read()
            assert answer.getheader("content-type", "").startswith("text/event-stream")
            found: list[tuple[str, Any]] = []
            event = ""
            while len(found) < count:
                line = answer.readline().decode()
                assert line, "the stream has ended"
                event = line[7:].strip() if line.startswith("event: ") else event
                if line.startswith("data: "):
                    found.append((event, json.loads(line[6:])))
            return found
        finally:
            connection.close()
