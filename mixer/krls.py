"""KRLS (Chameleon): domain weights from the kernel ridge leverage scores of domain embeddings.

    S_i = [ Omega (Omega + k lambda I)^-1 ]_ii,   Omega = X X^T,   X one row a domain

Xie, Tonin, Cevher, "Chameleon: A Flexible Data-mixing Framework", ICML 2025, arXiv 2505.24844. A high score means
that the other domains cannot reconstruct this one. The paper and the authors' released code differ, and their
published numbers cannot decide between them, so both are here under their names:

* `paper`: plain Omega; pretrain = softmax(1 / S), finetune = softmax(S).
* `reference`: Omega double-centred, S divided by its sum; pretrain = softmax(1 / ((S + 1e-12) 5)), finetune =
  softmax(S / 0.2).

What holds: the result names convention, purpose and lambda, and reports lambda relative to trace(Omega) / k, without
which a lambda means nothing across proxies. Embeddings that are all equal once centred give uniform weights and a
warning (the reference code gives NaN). A new domain needs only its own embedding: k is small, so everything is computed
anew (with centring every old score moves, an appended row alone would be wrong). What was given up: kernels other than
the linear one, which the paper argues for.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
from headrace.mixer.simplex import Vector, Weights, named, names_of, softmax
from headrace.proto.errors import UsageError

Convention = Literal["paper", "reference"]
Purpose = Literal["pretrain", "finetune"]

# The released code's constants; the paper has neither a temperature nor the guard.
REFERENCE_LAMBDA = 10.0
REFERENCE_TEMPERATURE: Mapping[str, float] = {"pretrain": 5.0, "finetune": 0.2}
REFERENCE_GUARD = 1e-12
# A domain whose score is below this part of the mean takes most of a pretrain mixture (0.93 at k = 7, reference).
BLOW_UP = 0.25
# Outside this range of lambda / (trace / k) a score no longer says what the method means by it.
SMALLEST_RELATIVE_LAMBDA, LARGEST_RELATIVE_LAMBDA = 1e-4, 10.0
# What the command allows one of three or more domains when nothing else is said: the blow-up needs some bound.
DEFAULT_LARGEST_SHARE = 0.5


@dataclass(frozen=True, kw_only=True, slots=True)
class KrlsSpec:
    """What to compute. `lam` is absolute, as published; `relative_lam` in units of trace(Omega) / k; at most one.

    unit_length: scale every embedding (less the mean, in `reference`) to length 1 first, so that scores measure
    direction alone; in neither publication.
    """

    convention: Convention = "reference"
    purpose: Purpose = "pretrain"
    lam: float | None = None
    relative_lam: float | None = None
    temperature: float | None = None
    unit_length: bool = False

    def __post_init__(self) -> None:
        if self.convention not in get_args(Convention):
            raise UsageError(f"krls: convention is `{self.convention}`; choose `paper` or `reference`")
        if self.purpose not in get_args(Purpose):
            raise UsageError(f"krls: purpose is `{self.purpose}`; choose `pretrain` or `finetune`")
        if self.lam is not None and self.relative_lam is not None:
            raise UsageError("krls: both lam and relative_lam are given; give one")
        for name in ("lam", "relative_lam", "temperature"):
            value = getattr(self, name)
            if value is not None and not (np.isfinite(value) and value > 0):
                raise UsageError(f"krls: {name} is {value}; it must be finite and above 0")

    @property
    def used_temperature(self) -> float:
        """The temperature of the softmax: as given, else 1 for `paper` and the released code's for `reference`."""
        default = 1.0 if self.convention == "paper" else REFERENCE_TEMPERATURE[self.purpose]
        return default if self.temperature is None else self.temperature


@dataclass(frozen=True, kw_only=True, slots=True)
class KrlsResult:
    """Weights with the scores they come from. `mean_square` is trace(Omega) / k of the matrix that was inverted."""

    weights: Weights
    scores: Weights
    lam: float
    mean_square: float
    warnings: tuple[str, ...]

    @property
    def relative_lam(self) -> float:
        """Lambda in units of trace(Omega) / k; infinite when the embeddings do not differ at all."""
        return self.lam / self.mean_square if self.mean_square > 0 else float("inf")

    @property
    def effective_domains(self) -> float:
        """Sum of the scores: in `paper`, how many domains the embeddings tell apart at this lambda; else 1."""
        return float(sum(self.scores.values()))

    def details(self, spec: KrlsSpec) -> dict[str, Any]:
        """Convention, parameters, diagnostics and warnings, as `headrace.mixer.result.finish` takes them."""
        return {
            "convention": spec.convention + (", unit length" if spec.unit_length else ""),
            "parameters": {"purpose": spec.purpose, "lam": self.lam, "temperature": spec.used_temperature}
            | {"unit_length": spec.unit_length},
            "diagnostics": {
                "relative_lam": self.relative_lam if self.mean_square > 0 else None,
                "mean_square": self.mean_square,
                "effective_domains": self.effective_domains,
                "scores": self.scores,
            },
            "warnings": self.warnings,
        }


def gram(embeddings: Vector) -> Vector:
    """Omega = X X^T of the (k, d) embeddings."""
    result: Vector = embeddings @ embeddings.T
    return result


def centre(omega: Vector) -> Vector:
    """H Omega H with H = I - 11^T / k: the Gram matrix of the embeddings less their mean."""
    rows = omega.mean(axis=0)
    result: Vector = omega - rows[None, :] - rows[:, None] + omega.mean()
    return result


def leverage_scores(omega: Vector, lam: float) -> Vector:
    """diag(Omega (Omega + k lambda I)^-1) of a symmetric positive semi-definite (k, k) matrix, each in [0, 1)."""
    k = len(omega)
    solved = np.linalg.solve(omega + k * lam * np.eye(k), omega)
    return np.clip(np.diag(solved), 0.0, 1.0)


def stack(embeddings: Mapping[str, Vector]) -> tuple[tuple[str, ...], Vector]:
    """Names sorted bytewise and the (k, d) matrix; refuses other shapes and values that are not finite, by name."""
    names = names_of(embeddings, place="embeddings")
    rows = [np.asarray(embeddings[name], dtype=np.float64) for name in names]
    for name, row in zip(names, rows, strict=True):
        if row.ndim != 1 or row.shape != rows[0].shape or row.size == 0:
            raise UsageError(
                f"embeddings: `{name}` has shape {row.shape}, `{names[0]}` has {rows[0].shape}; "
                "give every domain one vector of the same length, from one proxy and layer"
            )
        if not np.isfinite(row).all():
            raise UsageError(f"embeddings: `{name}` holds a value that is not finite; embed it again")
    return names, np.stack(rows)


def krls(embeddings: Mapping[str, Vector], spec: KrlsSpec | None = None) -> KrlsResult:
    """Weights by domain from one embedding (d,) a domain. Raises UsageError for unusable embeddings."""
    spec = spec or KrlsSpec()
    names, rows = stack(embeddings)
    if spec.convention == "paper":
        return _paper(names, rows, spec)
    return _reference(names, rows, spec)


def _lam(spec: KrlsSpec, mean_square: float) -> float:
    if spec.relative_lam is not None:
        return spec.relative_lam * mean_square
    return REFERENCE_LAMBDA if spec.lam is None else spec.lam


def _paper(names: tuple[str, ...], rows: Vector, spec: KrlsSpec) -> KrlsResult:
    zero = [name for name, row in zip(names, rows, strict=True) if not row.any()]
    if zero:
        raise UsageError(
            f"embeddings: `{zero[0]}` is all zeros, so its inverse score is infinite; embed samples of it, or leave it "
            "out"
        )
    omega = gram(_scaled(rows) if spec.unit_length else rows)
    mean_square = float(np.trace(omega)) / len(names)
    lam = _lam(spec, mean_square)
    scores = leverage_scores(omega, lam)
    return _result(names, scores, scores, spec, lam, mean_square, guard=0.0)


def _reference(names: tuple[str, ...], rows: Vector, spec: KrlsSpec) -> KrlsResult:
    # Centring the rows first is the same matrix as centring Omega, without the cancellation of large common means.
    spread = rows - rows.mean(axis=0)
    mean_square = float(np.square(spread).sum()) / len(names)
    if mean_square <= np.finfo(np.float64).eps ** 2 * float(np.square(rows).sum()) * len(names):
        return _indistinct(names, spec)
    omega = gram(_scaled(spread) if spec.unit_length else spread)
    mean_square = float(np.trace(omega)) / len(names)
    lam = _lam(spec, mean_square)
    scores = leverage_scores(omega, lam)
    return _result(names, scores, scores / scores.sum(), spec, lam, mean_square, guard=REFERENCE_GUARD)


def _scaled(rows: Vector) -> Vector:
    """Rows of length 1; one that is zero (a domain at the very centre) stays zero."""
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    result: Vector = np.divide(rows, lengths, out=np.zeros_like(rows), where=lengths > 0)
    return result


def _indistinct(names: tuple[str, ...], spec: KrlsSpec) -> KrlsResult:
    k = len(names)
    even = np.full(k, 1.0 / k)
    return KrlsResult(
        weights=named(names, even),
        scores=named(names, np.zeros(k)),
        lam=_lam(spec, 0.0),
        mean_square=0.0,
        warnings=(f"the embeddings of all {k} domains are equal, so their scores are 0 / 0; the weights are uniform",),
    )


def _result(
    names: tuple[str, ...],
    raw: Vector,
    scores: Vector,
    spec: KrlsSpec,
    lam: float,
    mean_square: float,
    *,
    guard: float,
) -> KrlsResult:
    signal = 1.0 / (scores + guard) if spec.purpose == "pretrain" else scores
    weights = softmax(signal / spec.used_temperature)
    return KrlsResult(
        weights=named(names, weights),
        scores=named(names, scores),
        lam=lam,
        mean_square=mean_square,
        warnings=_warnings(names, raw, weights, spec, lam / mean_square),
    )


def _warnings(
    names: tuple[str, ...], scores: Vector, weights: Vector, spec: KrlsSpec, relative_lam: float
) -> tuple[str, ...]:
    found = []
    low = [name for name, score in zip(names, scores, strict=True) if score < BLOW_UP * scores.mean()]
    if low and spec.purpose == "pretrain":
        share = float(sum(weights[names.index(name)] for name in low))
        found.append(
            f"the score of {', '.join(f'`{name}`' for name in low)} is under {BLOW_UP} of the mean: inverse scores "
            f"give {share:.4f} of the mixture to it; bound it with a largest share or epoch caps"
        )
    if len(names) > 1 and not SMALLEST_RELATIVE_LAMBDA <= relative_lam <= LARGEST_RELATIVE_LAMBDA:
        effect = "are near 1 for every domain" if relative_lam < 1 else "measure length only, redundancy drops out"
        found.append(
            f"lambda is {relative_lam:.3g} times the mean square of the embeddings, so the scores {effect}; give a "
            "relative lambda such as 0.1"
        )
    return tuple(found)
