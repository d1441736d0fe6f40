"""Drift between two versions of the data, such as grown files against the old, and between their tokenizers.

Both corpora are sampled alike: windows of 1,024 tokens that lie evenly over each domain, compared as two samples with
the floor of both. Corpora of different tokenizers are compared by what does not depend on ids. Aligned lines, where
they are given, say what the tokenizers do: the tokens a line of each language, in pairs, so that easy and hard lines
cancel.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from headrace.proto.errors import UsageError
from headrace.server.corpus.manifest import Corpus
from headrace.server.corpus.text_encoder import load_tokenizer, tables_of
from headrace.server.watch.drift.divergence import jsd, psi
from headrace.server.watch.drift.features import LENGTH_BINS, length_bin, one_hot
from headrace.server.watch.drift.floor import Sample, noise_floor
from headrace.server.watch.drift.near_duplicates import HEAD, History, document_keys
from headrace.server.watch.drift.rule import Rule
from headrace.tokenizer.tokenizer import Tokenizer

SEQ_LEN = 1024
MOST_WINDOWS = 512
FREE_OF_IDS = ("bytes_per_token", "byte_fallback", "script")
_NORMAL_QUANTILE = 2.5758293035489004  # two-sided, 0.99
LEAST_CHANGE = 0.01
"""Part of the tokens a line below which a change of the tokenizer is none."""


@dataclass(frozen=True, kw_only=True, slots=True)
class VersionFigure:
    """One feature of one domain in the new corpus against the old; `samples` of the new; see DriftFigure."""

    domain: str
    feature: str
    jsd: float
    psi: float
    floor: float
    samples: int
    above: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class LineFigure:
    """Tokens that an aligned line of a language takes in the old and the new tokenizer.

    `change` is new / old - 1, `floor` what chance in the choice of lines makes of it with probability 0.99.
    """

    language: str
    lines: int
    old: float
    new: float
    change: float
    floor: float
    above: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class Versions:
    """All figures, and the domains that only one of the two has."""

    same_tokenizer: bool
    figures: tuple[VersionFigure, ...]
    lines: tuple[LineFigure, ...]
    only_old: tuple[str, ...]
    only_new: tuple[str, ...]

    @property
    def drifts(self) -> bool:
        """Whether any figure is above its bound."""
        return any(figure.above for figure in self.figures) or any(line.above for line in self.lines)

    def as_dict(self) -> dict[str, Any]:
        """For `--json`."""
        return {**asdict(self), "drifts": self.drifts}


def compare(old: Corpus, new: Corpus, lines: Mapping[str, Sequence[str]], rule: Rule | None = None) -> Versions:
    """The new corpus against the old; `lines` are aligned lines by language, if there are any."""
    same = old.tokenizer_digest == new.tokenizer_digest
    both = [name for name in old.domains if name in new.domains]
    return Versions(
        same_tokenizer=same,
        figures=tuple(figure for name in both for figure in _domain(old, new, name, same, rule or Rule())),
        lines=compare_lines(_tokenizer(old), _tokenizer(new), lines) if lines else (),
        only_old=tuple(name for name in old.domains if name not in new.domains),
        only_new=tuple(name for name in new.domains if name not in old.domains),
    )


def _tokenizer(corpus: Corpus) -> Tokenizer:
    return load_tokenizer(str(corpus.tokenizer_path), corpus.tokenizer_digest.hex())


def _domain(old: Corpus, new: Corpus, name: str, same: bool, rule: Rule) -> list[VersionFigure]:
    before, after = samples(old, name), samples(new, name)
    figures = []
    for feature in after if same else FREE_OF_IDS:
        mine, other = after[feature], before[feature]
        if not (mine.total and other.total):
            continue
        value, floor = float(jsd(mine.shares, other.shares)), noise_floor(mine, other)
        figure = VersionFigure(
            domain=name,
            feature=feature,
            jsd=value,
            psi=float(psi(mine.shares, other.shares)),
            floor=floor,
            samples=mine.units,
            above=rule.is_above(feature, value, floor),
        )
        figures.append(figure)
    return figures


def samples(corpus: Corpus, domain: str) -> dict[str, Sample]:
    """Every feature of windows that lie evenly over a domain."""
    count = corpus.view(domain, SEQ_LEN, "concat").windows
    windows = np.unique(np.linspace(0, count - 1, min(MOST_WINDOWS, count)).astype(np.uint64))
    rows = len(windows)
    read = corpus.read(SEQ_LEN, "concat", [domain], np.zeros(rows, np.uint32), windows)
    kind = np.dtype("<u2" if corpus.id_bytes == 2 else "<u4")
    ids = np.frombuffer(read.ids, kind).reshape(rows, SEQ_LEN + 1)[:, :SEQ_LEN]
    real = np.minimum(read.real_ids.astype(np.int64), SEQ_LEN)
    row_of, column = np.nonzero(np.arange(SEQ_LEN) < real[:, None])
    counts = tables_of(_tokenizer(corpus)).of_rows(ids[row_of, column], row_of, rows)
    row, offset, length = corpus.documents_of(domain, SEQ_LEN, "concat", windows, SEQ_LEN)
    lengths = np.bincount(row * LENGTH_BINS + length_bin(length), minlength=rows * LENGTH_BINS)
    counts["document_length"] = lengths.reshape(rows, LENGTH_BINS)
    counts["near_duplicate"] = _repeats(ids, row, offset, np.minimum(length, HEAD), real)
    return {name: Sample(values[values.sum(axis=1) > 0]) for name, values in counts.items()}


def _repeats(
    ids: npt.NDArray[np.unsignedinteger],
    row: npt.NDArray[np.int64],
    offset: npt.NDArray[np.int64],
    heads: npt.NDArray[np.int64],
    real: npt.NDArray[np.int64],
) -> npt.NDArray[np.int64]:
    """Each document whose beginning is there, as new or as near to an earlier one of the sample."""
    seen = heads <= real[row] - offset
    row, offset, heads = row[seen], offset[seen], heads[seen]
    columns = np.minimum(offset[:, None] + np.arange(HEAD), ids.shape[1] - 1)
    keys = document_keys(ids[row[:, None], columns], heads).tolist()
    history = History(len(keys) + 1)
    repeated = [history.repeats(key, number) for number, key in enumerate(keys)]
    return one_hot(np.array(repeated, np.int64), 2)


def compare_lines(old: Tokenizer, new: Tokenizer, lines: Mapping[str, Sequence[str]]) -> tuple[LineFigure, ...]:
    """Tokens an aligned line, by language; UsageError when the languages have different numbers of lines."""
    counts = {name: len(texts) for name, texts in lines.items()}
    if len(set(counts.values())) != 1 or not all(counts.values()):
        raise UsageError(f"aligned lines are as many in each language, but there are: {counts}; mend the files")
    return tuple(_language(name, _costs(old, texts), _costs(new, texts)) for name, texts in sorted(lines.items()))


def _costs(tokenizer: Tokenizer, texts: Sequence[str]) -> npt.NDArray[np.float64]:
    _, ends = tokenizer.encode_batch(list(texts))
    return np.diff(ends.astype(np.float64), prepend=0.0)


def _language(name: str, old: npt.NDArray[np.float64], new: npt.NDArray[np.float64]) -> LineFigure:
    if not old.sum():
        raise UsageError(f"the lines of `{name}` are all empty, so there is no cost to compare; mend the file")
    ratio = float(new.sum() / old.sum())
    spread = float(np.std(new - ratio * old, ddof=1)) if len(old) > 1 else 0.0
    floor = _NORMAL_QUANTILE * spread / (math.sqrt(len(old)) * float(old.mean()))
    return LineFigure(
        language=name,
        lines=len(old),
        old=float(old.mean()),
        new=float(new.mean()),
        change=ratio - 1,
        floor=floor,
        above=abs(ratio - 1) > max(LEAST_CHANGE, floor),
    )
