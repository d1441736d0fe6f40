"""The weight vector that a method hands over, with all that is needed to judge and to repeat it.

What holds: a result names its method, convention, parameters, the digest of every input and what the pipeline of
caps did to it; its file is canonical JSON, so equal inputs give equal bytes (no clock, no host name in it).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from headrace.mixer.caps import Bound, Bounds, CapReport, project
from headrace.mixer.files import parse_json, write_atomic
from headrace.mixer.simplex import Weights, normalise
from headrace.proto.errors import ConfigError, UsageError

SCHEMA = "headrace.mixture/1"

Json = str | int | float | bool | None | list[Any] | dict[str, Any]


@dataclass(frozen=True, kw_only=True, slots=True)
class Mixture:
    """Weights by domain with their provenance.

    raw: what the method said; weights: after the pipeline; parameters: what it was asked; inputs: name of each
    input and its SHA-256; diagnostics: scores, scales, epochs and the like; warnings: what a reader must know
    before using it.
    """

    method: str
    weights: Mapping[str, float]
    raw: Mapping[str, float]
    convention: str = ""
    parameters: Mapping[str, Json] = field(default_factory=dict)
    inputs: Mapping[str, str] = field(default_factory=dict)
    caps: CapReport = field(default_factory=CapReport)
    diagnostics: Mapping[str, Json] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not self.method:
            raise UsageError("mixture: the method is not named")
        if set(self.weights) != set(self.raw):
            raise UsageError("mixture: raw and final weights name different domains")
        for vector in (self.weights, self.raw):
            if abs(sum(normalise(vector, place="mixture").values()) - 1) > 1e-9 or abs(sum(vector.values()) - 1) > 1e-6:
                raise UsageError(f"mixture: the weights of `{self.method}` sum to {sum(vector.values())}, not to 1")

    def to_json(self) -> str:
        """Canonical JSON, sorted keys, two spaces, one line feed at the end."""
        document = {"schema": SCHEMA} | asdict(self)
        return json.dumps(document, sort_keys=True, indent=2, ensure_ascii=False, allow_nan=False) + "\n"

    def save(self, path: Path) -> None:
        """Write the JSON file durably."""
        write_atomic(path, self.to_json().encode())

    def to_toml(self) -> str:
        """The inline table that a RUN.toml takes: `weights = { ... }`."""
        entries = ", ".join(f"{_toml_key(name)} = {weight!r}" for name, weight in self.weights.items())
        return f"weights = {{ {entries} }}"


def finish(
    method: str,
    raw: Mapping[str, float],
    bounds: Bounds,
    *,
    convention: str = "",
    parameters: Mapping[str, Json] | None = None,
    inputs: Mapping[str, str] | None = None,
    diagnostics: Mapping[str, Json] | None = None,
    warnings: tuple[str, ...] = (),
) -> Mixture:
    """The one pipeline after all methods: normalise, project into the bounds, and keep what happened."""
    weights, report = project(raw, bounds)
    asked = dict(parameters or {}) | {"bounds": _bounds_json(bounds)}
    return Mixture(
        method=method,
        weights=weights,
        raw=normalise(raw, place=method),
        convention=convention,
        parameters=asked,
        inputs=inputs or {},
        caps=report,
        diagnostics=diagnostics or {},
        warnings=warnings,
    )


def load(path: Path) -> Mixture:
    """Read a result file. Raises ConfigError when it is none, naming the file and the fault."""
    try:
        document = parse_json(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise ConfigError(f"`{path}`: no such file; `headrace mixer compute --out` writes one") from error
    except (OSError, ValueError) as error:
        raise ConfigError(f"`{path}`: cannot be read as a mixture file: {error}") from error
    return from_document(document, place=str(path))


def from_document(document: object, *, place: str) -> Mixture:
    """A mixture from parsed JSON; unknown or missing keys are errors."""
    if not isinstance(document, dict) or document.get("schema") != SCHEMA:
        raise ConfigError(f"`{place}`: not a mixture file of schema `{SCHEMA}`; make one with `headrace mixer compute`")
    values = {name: value for name, value in document.items() if name != "schema"}
    try:
        report = dict(values.pop("caps"))
        bound = tuple(Bound(**entry) for entry in report["bound"])
        caps = CapReport(bound=bound, moved=report["moved"], notes=tuple(report["notes"]))
        values["warnings"] = tuple(values["warnings"])
        return Mixture(**values, caps=caps)
    except (KeyError, TypeError, ValueError) as error:
        raise ConfigError(f"`{place}`: the mixture file is damaged ({error}); compute it again") from error


def weights_of(path: Path) -> Weights:
    """The weights of a result file."""
    return dict(load(path).weights)


def _toml_key(name: str) -> str:
    bare = all(c.isascii() and (c.isalnum() or c in "_-") for c in name)
    return name if bare else f'"{name}"'


def _bounds_json(bounds: Bounds) -> dict[str, Json]:
    return {
        "caps": dict(bounds.caps),
        "excluded": sorted(bounds.excluded),
        "floor": bounds.floor,
        "largest_change": bounds.largest_change,
        "largest_share": bounds.largest_share,
        "previous": None if bounds.previous is None else dict(bounds.previous),
    }
