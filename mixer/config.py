"""MIXER.toml: which run to watch, by which method, and what a push may never do. Read strictly.

[mixer]
run = "pretrain-1"
server = "127.0.0.1:7750"
method = "online"
mode = "propose"                 # or "auto"
journal = "mixer"                # folder, beside this file: journal.jsonl and proposals
interval = 100                   # steps between pushes, at least max(lead, 100)
[method]                         # fields of OnlineSpec
rule = "velocity"
tls_ca = "ca.pem"                # with tls_cert and tls_key for mTLS; token_file = "token"
metrics = "127.0.0.1:7752"       # what this process exposes to Prometheus
[guardrails]
largest_change = 0.05
floor = 0.001
max_epochs = 4.0                 # over the whole run; what was served already counts
budget = "80B"                   # tokens of the whole run
[tokens]                         # where the server's own counts are not what counts
deu = "12B"
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from headrace.client.settings import Tls
from headrace.mixer.caps import Bounds, epoch_caps
from headrace.mixer.online import OnlineSpec
from headrace.mixer.simplex import Weights
from headrace.proto.errors import ConfigError, UsageError

# A push less than so many steps after the last one cannot be told from noise, whatever the file says.
SHORTEST_INTERVAL = 100
LARGEST_PORT = 65_535
_KINDS = {"interval": int, "poll": float, "mode": str, "run": str, "server": str, "metrics": str}
_TLS = ("tls_ca", "tls_cert", "tls_key")
_SUFFIXES = {"K": 1e3, "M": 1e6, "B": 1e9, "T": 1e12}


def count(value: object, *, place: str = "") -> float:
    """A number of tokens: 1000, "80B", "1.5T". Raises ConfigError."""
    try:
        if isinstance(value, str):
            scale = _SUFFIXES.get(value[-1:].upper(), 1.0)
            number = float(value[:-1] if scale > 1 else value) * scale
        elif isinstance(value, bool) or not isinstance(value, int | float):
            raise ValueError
        else:
            number = float(value)
        if not (math.isfinite(number) and number >= 0):
            raise ValueError
    except ValueError:
        where = f"{place}: " if place else ""
        raise ConfigError(f'{where}{value!r} is no number of tokens; write one such as 1_000 or "80B"') from None
    return number


@dataclass(frozen=True, kw_only=True, slots=True)
class Guardrails:
    """What a push may never do. smallest_change: smaller movements (half the sum of differences) are not pushed;
    coverage: the part of a window's steps that must have been reported; largest_rise: nats a token that the loss may
    have risen since the last window that taught something, before a run counts as diverging."""

    largest_change: float = 0.05
    floor: float = 0.001
    largest_share: float = 1.0
    max_epochs: float | None = None
    budget: float | None = None
    smallest_change: float = 1e-4
    coverage: float = 0.5
    largest_rise: float = 0.5

    def __post_init__(self) -> None:
        Bounds(floor=self.floor, largest_share=self.largest_share, largest_change=self.largest_change)
        if not (0 < self.coverage <= 1 and 0 <= self.smallest_change < 1):
            raise UsageError("guardrails: coverage must be above 0 and at most 1, smallest_change from 0 to below 1")
        if not self.largest_rise > 0:
            raise UsageError(f"guardrails: largest_rise is {self.largest_rise}; it must be above 0")
        if self.max_epochs is not None and (self.budget is None or not self.max_epochs > 0):
            raise UsageError("guardrails: max_epochs must be above 0 and needs budget, the tokens that the run trains")


@dataclass(frozen=True, kw_only=True, slots=True)
class MixerConfig:
    """A whole MIXER.toml. poll: seconds between looks at the server."""

    run: str
    server: str
    folder: Path
    mode: str = "propose"
    interval: int = SHORTEST_INTERVAL
    poll: float = 2.0
    token_file: Path | None = None
    tls: Tls | None = None
    metrics: str = ""
    method: OnlineSpec = field(default_factory=OnlineSpec)
    guardrails: Guardrails = field(default_factory=Guardrails)
    tokens: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.mode not in ("propose", "auto"):
            raise UsageError(f"mixer: mode is `{self.mode}`; choose `propose` or `auto`")
        if self.interval < SHORTEST_INTERVAL:
            raise UsageError(f"mixer: interval is {self.interval} steps; at least {SHORTEST_INTERVAL} are needed")
        if not self.poll > 0:
            raise UsageError(f"mixer: poll is {self.poll} seconds; it must be above 0")
        host, _, port = self.metrics.rpartition(":")
        if self.metrics and not (host and port.isascii() and port.isdigit() and int(port) <= LARGEST_PORT):
            raise UsageError(f"mixer: metrics is `{self.metrics}`; write host:port, such as 127.0.0.1:7752")

    def window(self, lead: int) -> int:
        """Steps a window of reports covers, which is also the least distance between two pushes."""
        return max(self.interval, lead, SHORTEST_INTERVAL)

    def bounds(
        self, current: Weights, served: Mapping[str, float] | None = None, sizes: Mapping[str, float] | None = None
    ) -> Bounds:
        """The guardrails as bounds around the weights in force.

        served: real tokens that the run has served by domain; sizes: tokens of each domain as far as the server knows
        them. What was served is spent, and the caps share what is left of the budget.
        """
        rails = self.guardrails
        return Bounds(
            caps=self._caps(current, served or {}, dict(sizes or {}) | dict(self.tokens)),
            floor=rails.floor,
            largest_share=rails.largest_share,
            largest_change=rails.largest_change,
            previous=current,
            excluded=frozenset(name for name, weight in current.items() if weight == 0),
        )

    def _caps(self, current: Weights, served: Mapping[str, float], sizes: Mapping[str, float]) -> Weights:
        rails = self.guardrails
        if rails.max_epochs is None or rails.budget is None:
            return {}
        named = [name for name, weight in current.items() if weight > 0]
        missing = [name for name in named if name not in sizes]
        if missing:
            raise UsageError(f"the tokens of `{missing[0]}` are not known, so it cannot be capped; add [tokens]")
        left = rails.budget - math.fsum(served.values())
        if left <= 0:
            raise UsageError(f"the budget of {rails.budget:.6g} tokens is spent; raise `budget` to what the run trains")
        return epoch_caps({name: sizes[name] for name in named}, left, rails.max_epochs, served)


def read_config(path: Path) -> MixerConfig:
    """Read and check a MIXER.toml. Raises ConfigError naming the file and the key."""
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigError(f"`{path}`: cannot be read: {error}") from error
    try:
        return _config(document, path)
    except ConfigError:
        raise
    except UsageError as error:
        raise ConfigError(f"`{path}`: {error}") from error


def _config(document: dict[str, Any], path: Path) -> MixerConfig:
    _only(document, ("mixer", "method", "guardrails", "tokens"), place=str(path))
    top = dict(_table(document, "mixer", path))
    known = ("run", "server", "method", "mode", "journal", "interval", "poll", "metrics", "token_file", *_TLS)
    _only(top, known, place=f"{path} [mixer]")
    for key in ("run", "server"):
        if not isinstance(top.get(key), str) or not top[key]:
            raise ConfigError(f'`{path}` [mixer]: `{key}` is missing; write {key} = "..."')
    if top.pop("method", "online") != "online":
        raise ConfigError(f"`{path}` [mixer]: the only method that watches a run is `online`")
    journal = Path(_typed(top.pop("journal", "mixer"), str, f"{path} [mixer] journal"))
    ca, cert, private, token_file = (_file(top, name, path) for name in (*_TLS, "token_file"))
    place = f"{path} [tokens]"
    return MixerConfig(
        folder=path.parent / journal,
        token_file=token_file,
        tls=Tls(ca=ca, cert=cert, key=private) if ca or cert or private else None,
        method=_fill(OnlineSpec, _table(document, "method", path), place=f"{path} [method]"),
        guardrails=_fill(Guardrails, _table(document, "guardrails", path), place=f"{path} [guardrails]"),
        tokens={
            name: count(value, place=f"{place} {name}") for name, value in _table(document, "tokens", path).items()
        },
        **_checked(top, _KINDS, f"{path} [mixer]"),
    )


def _file(top: dict[str, Any], name: str, path: Path) -> Path | None:
    """A file named in the table, beside the configuration; taken out of the table."""
    value = top.pop(name, None)
    return None if value is None else path.parent / str(_typed(value, str, f"{path} [mixer] {name}"))


def _table(document: Mapping[str, Any], name: str, path: Path) -> Mapping[str, Any]:
    table = document.get(name, {})
    if not isinstance(table, dict):
        raise ConfigError(f"`{path}`: `{name}` is a value; it must be a table [{name}]")
    return table


def _only(table: Mapping[str, Any], known: tuple[str, ...], *, place: str) -> None:
    unknown = sorted(set(table) - set(known))
    if unknown:
        raise ConfigError(f"`{place}`: unknown key `{unknown[0]}`; known are {', '.join(known)}")


def _typed(value: Any, kind: type, place: str) -> Any:
    right = isinstance(value, int | float) if kind is float else isinstance(value, kind)
    if isinstance(value, bool) or not right:
        raise ConfigError(f"`{place}`: {value!r} is no {kind.__name__}")
    return float(value) if kind is float else value


def _checked(table: Mapping[str, Any], kinds: Mapping[str, type], place: str) -> dict[str, Any]:
    return {name: _typed(value, kinds[name], f"{place} {name}") for name, value in table.items()}


def _fill(kind: Any, table: Mapping[str, Any], *, place: str) -> Any:
    names = tuple(each.name for each in fields(kind))
    _only(table, names, place=place)
    kinds: dict[str, type] = dict.fromkeys(names, float) | {"rule": str}
    budget = {"budget": count(table["budget"], place=f"{place} budget")} if "budget" in table else {}
    plain = {name: value for name, value in table.items() if name != "budget"}
    return kind(**_checked(plain, kinds, place), **budget)
