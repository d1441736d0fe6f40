"""SERVER.toml, checked strictly: an unknown key or a wrong value is an error that names the file and the line.

Relative paths (the store's file, runs, certificates, tokens) start from the folder of the file. Loopback is open by
default; listening elsewhere without TLS needs `allow_insecure = true`.
"""

from __future__ import annotations

import difflib
import ipaddress
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from headrace.proto.errors import ConfigError
from headrace.server.plan.strict import lines_of
from headrace.server.watch.drift_settings import DriftSettings

_TABLES: dict[str, dict[str, type]] = {
    "server": {
        "listen": str,
        "metrics": str,
        "store": str,
        "runs": list,
        "message_bytes": int,
        "grace_seconds": int,
        "concurrent_calls": int,
        "allow_insecure": bool,
        "reflection": bool,
        "bad_blocks": str,
        "changes_per_second": int,
        "share_bytes": int,
    },
    "tls": {"certificate": str, "key": str, "client_ca": str},
    "auth": {"tokens": str, "identities": dict, "open_metrics": bool},
    "drift": {"enabled": bool, "steps": int, "one_in": int, "least": int, "rows": int, "duty": float},
}
_WORDS = {
    str: "a string",
    int: "a whole number",
    float: "a number with a point",
    bool: "true or false",
    list: "a list of strings",
    dict: "a table",
}
BAD_BLOCKS = ("fail", "quarantine")
_LARGEST_PORT = 65_535
_NO_BOUND = 1 << 62
_BOUNDS = {
    "message_bytes": (1 << 16, 32 << 20, ""),
    "grace_seconds": (0, _NO_BOUND, ""),
    "concurrent_calls": (1, _NO_BOUND, ""),
    "changes_per_second": (0, _NO_BOUND, "; 0 is no limit"),
    "share_bytes": (0, _NO_BOUND, "; 0 shares no memory"),
}
"""Numbers of [server]: least, most, and what to add."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TlsConfig:
    """PEM files of the server; with `client_ca` every client must show a certificate of that authority."""

    certificate: Path
    key: Path
    client_ca: Path | None


@dataclass(frozen=True, kw_only=True, slots=True)
class ServerConfig:
    """A server as its file describes it; every path is absolute."""

    place: str
    text: str = field(default="", repr=False)
    listen: str
    store: str
    metrics: str | None = None
    runs: tuple[Path, ...] = ()
    message_bytes: int = 4 << 20
    grace_seconds: int = 20
    concurrent_calls: int = 16_384
    allow_insecure: bool = False
    reflection: bool = True
    bad_blocks: str = "fail"
    changes_per_second: int = 5
    share_bytes: int = 1 << 30
    tls: TlsConfig | None = None
    tokens: Path | None = None
    identities: Mapping[str, str] | None = None
    open_metrics: bool = False
    drift: DriftSettings | None = field(default_factory=DriftSettings)

    def __post_init__(self) -> None:
        for name, address in (("listen", self.listen), ("metrics", self.metrics)):
            if address is not None:
                self._check_address(name, address)
        if self.metrics == self.listen and not self.listen.endswith(":0"):
            raise self._error("metrics", f"metrics = `{self.metrics}` is also `listen`; give it another port")
        for name, (low, high, hint) in _BOUNDS.items():
            value = getattr(self, name)
            if not low <= value <= high:
                most = f" and at most {high}" if high < _NO_BOUND else ""
                raise self._error(name, f"{name} = {value} must be at least {low}{most}{hint}")
        if self.bad_blocks not in BAD_BLOCKS:
            raise self._error(
                "bad_blocks",
                f"bad_blocks = `{self.bad_blocks}` is neither `fail` (the seal stops before the step) nor `quarantine` "
                f"(the shard is masked from the first unsealed step on)",
            )
        if self.identities and (self.tls is None or self.tls.client_ca is None):
            raise self._error("identities", "identities are read from client certificates; [tls] needs client_ca")

    def _check_address(self, name: str, address: str) -> None:
        if not re.fullmatch(r"(\[[0-9a-fA-F:.]+\]|[^:\s]+):\d{1,5}", address):
            raise self._error(name, f"{name} = `{address}` is no HOST:PORT, such as 127.0.0.1:7750")
        if int(address.rpartition(":")[2]) > _LARGEST_PORT:
            raise self._error(name, f"{name} = `{address}`: a port is at most {_LARGEST_PORT}")
        if self.tls is None and not self.allow_insecure and not is_loopback(address):
            raise self._error(
                name,
                f"{name} = `{address}` is reachable from other machines and there is no [tls]; give a certificate, "
                f"use 127.0.0.1, or write allow_insecure = true if the network is trusted",
            )

    def _error(self, key: str, message: str) -> ConfigError:
        table = next((name for name, keys in _TABLES.items() if key in keys))
        return ConfigError(f"{self.place}{_line(self.text, table, key)}: {message}")

    @classmethod
    def load(cls, path: Path) -> ServerConfig:
        """Reads a file; raises ConfigError naming it and the line."""
        try:
            text = path.read_text(encoding="utf-8")
        except OSError as error:
            raise ConfigError(f"cannot read {path}: {error.strerror}; check the path") from None
        except UnicodeDecodeError:
            raise ConfigError(f"{path} is not UTF-8 text") from None
        return cls.from_toml(text, place=str(path), folder=path.resolve().parent)

    @classmethod
    def from_toml(cls, text: str, *, place: str, folder: Path) -> ServerConfig:
        """Parses the text of a file; `place` names it in messages, `folder` is where relative paths start."""
        tables = _parse(text, place)
        server = tables["server"]
        for name in ("listen", "store"):
            if name not in server:
                raise ConfigError(f"{place}: [server] needs {name}, such as {_EXAMPLES[name]}")
        auth = tables.get("auth", {})
        fields = {name: value for name, value in server.items() if name not in ("store", "runs", "metrics")}
        return cls(
            place=place,
            text=text,
            store=_store(server["store"], folder),
            metrics=server.get("metrics") or None,
            runs=tuple(folder / run for run in server.get("runs", ())),
            tls=_tls(tables.get("tls"), place, folder),
            tokens=folder / auth["tokens"] if "tokens" in auth else None,
            identities=auth.get("identities"),
            open_metrics=auth.get("open_metrics", False),
            drift=_drift(tables.get("drift", {}), f"{place}{_line(text, 'drift')}"),
            **fields,
        )


_EXAMPLES = {"listen": 'listen = "127.0.0.1:7750"', "store": 'store = "sqlite:///headrace.db"'}


def is_loopback(address: str) -> bool:
    """Whether HOST:PORT can be reached from this machine only."""
    host = address.rpartition(":")[0].strip("[]")
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _store(url: str, folder: Path) -> str:
    match = re.fullmatch(r"sqlite:///([^/].*)", url)
    return f"sqlite:///{folder / match[1]}" if match else url


def _tls(table: dict[str, Any] | None, place: str, folder: Path) -> TlsConfig | None:
    if table is None:
        return None
    for name in ("certificate", "key"):
        if name not in table:
            raise ConfigError(f"{place}: [tls] needs {name}, a PEM file")
    client_ca = folder / table["client_ca"] if "client_ca" in table else None
    return TlsConfig(certificate=folder / table["certificate"], key=folder / table["key"], client_ca=client_ca)


def _drift(table: dict[str, Any], place: str) -> DriftSettings | None:
    values = {name: value for name, value in table.items() if name != "enabled"}
    try:
        settings = DriftSettings(**values)
    except ValueError as error:
        raise ConfigError(f"{place}: [drift]: {error}") from None
    return settings if table.get("enabled", True) else None


def _parse(text: str, place: str) -> dict[str, dict[str, Any]]:
    try:
        tables = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{place}: this is no TOML: {error}") from None
    if "server" not in tables:
        raise ConfigError(
            f"{place}: there is no [server] table; the smallest file is:\n[server]\n" + "\n".join(_EXAMPLES.values())
        )
    for table, values in tables.items():
        if table not in _TABLES or not isinstance(values, dict):
            raise ConfigError(f"{place}{_line(text, table)}: unknown key `{table}`; known are {', '.join(_TABLES)}")
        for key, value in values.items():
            _check_key(text, place, table, key, value)
    return tables


def _check_key(text: str, place: str, table: str, key: str, value: object) -> None:
    kinds = _TABLES[table]
    where = f"{place}{_line(text, table, key)}"
    if key not in kinds:
        near = difflib.get_close_matches(key, kinds, n=1)
        hint = f"did you mean `{near[0]}`?" if near else f"known are {', '.join(kinds)}"
        raise ConfigError(f"{where}: unknown key `{key}` in [{table}]; {hint}")
    if type(value) is not kinds[key]:
        raise ConfigError(f"{where}: {key} must be {_WORDS[kinds[key]]}, not {value!r}")
    parts = value if isinstance(value, list) else list(value.values()) if isinstance(value, dict) else []
    if not all(isinstance(part, str) for part in parts):
        raise ConfigError(f"{where}: {key} must hold strings only")


def _line(text: str, *path: str) -> str:
    """`:N` of the line that names a key, or else its table; nothing where neither begins a line."""
    lines = lines_of(text)
    found = next((lines[path[:end]] for end in range(len(path), 0, -1) if path[:end] in lines), None)
    return f":{found}" if found else ""
