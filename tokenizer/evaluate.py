"""How fair and how short a tokenizer is on parallel text.

report = evaluate(tokenizer, {"eng": lines, "swa": lines})      # line i says the same in each language
report.gini, report.tokens_per_line, report.languages["swa"].tokens_per_line
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from headrace.native import count_pieces
from headrace.proto.errors import UsageError
from headrace.tokenizer import metrics, vocabulary
from headrace.tokenizer.languages import check_aligned
from headrace.tokenizer.tokenizer import Tokenizer
from headrace.tokenizer.vocabulary import Vocabulary


@dataclass(frozen=True, kw_only=True, slots=True)
class LanguageFigures:
    """One language.

    Attributes:
        tokens_per_line: the cost that fairness is measured on.
        fertility: mean over lines of tokens / words, words by white space (huge for scripts without spaces).
        fertility_pieces: the same with words and runs of punctuation as units.
        utilization: share of the vocabulary that occurs in this language's lines.
        cost_ratio: tokens a line over those of the best language; 1 for the best.
    """

    lines: int
    bytes: int
    tokens: int
    tokens_per_line: float
    bytes_per_token: float
    fertility: float
    fertility_pieces: float
    utilization: float
    cost_ratio: float


@dataclass(frozen=True, kw_only=True, slots=True)
class FairnessReport:
    """A tokenizer on parallel text.

    Attributes:
        gini: of the languages' tokens per aligned line, 0 is fair.
        tokens_per_line: mean over languages.
        lines_per_token: lines / tokens, the compression rate as a ratio of sums.
        lines_per_token_mean: mean over all lines of 1 / tokens, the published suite's compression rate.
        worst, best: language of the largest and the smallest cost; `worst_to_best` their ratio.
        utilization: share of the vocabulary that occurs at all.
        type_token_ratio: distinct ids / tokens, all languages together.
        renyi_efficiency: order 2.5, of the token frequencies.
        dead: ids, special ones aside, that do not occur in these lines.
        vocabulary: ids that are useless in any text (see `vocabulary`).
        special_text: how often a special token is spelled in the lines (counted as plain text).
    """

    vocab_size: int
    lines: int
    gini: float
    tokens_per_line: float
    bytes_per_token: float
    lines_per_token: float
    lines_per_token_mean: float
    fertility: float
    fertility_pieces: float
    utilization: float
    dead: int
    vocabulary: Vocabulary
    type_token_ratio: float
    renyi_efficiency: float
    worst: str
    best: str
    worst_to_best: float
    special_text: Mapping[str, int]
    languages: Mapping[str, LanguageFigures]

    def to_json(self) -> dict[str, Any]:
        """The report as plain values."""
        return asdict(self)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Encoded:
    """One language's lines: bytes, tokens, words and pieces of each, and how often each id occurs."""

    sizes: np.ndarray[Any, np.dtype[np.int64]]
    tokens: np.ndarray[Any, np.dtype[np.int64]]
    words: np.ndarray[Any, np.dtype[np.int64]]
    pieces: np.ndarray[Any, np.dtype[np.int64]]
    counts: np.ndarray[Any, np.dtype[np.int64]]


def evaluate(tokenizer: Tokenizer, lines: Mapping[str, Sequence[str]], *, threads: int | None = None) -> FairnessReport:
    """Measure a tokenizer on aligned lines by language; UsageError when the numbers of lines differ."""
    counts = {name: len(texts) for name, texts in lines.items()}
    check_aligned(lines, "parallel text")
    encoded = {name: _encode(tokenizer, texts, threads) for name, texts in lines.items()}
    costs = {name: float(part.tokens.sum()) / counts[name] for name, part in encoded.items()}
    worst, best = max(costs, key=lambda name: costs[name]), min(costs, key=lambda name: costs[name])
    if costs[best] == 0:
        raise UsageError(f"the lines of `{best}` are all empty, so there is no cost to compare")
    whole = _Encoded(
        sizes=np.concatenate([part.sizes for part in encoded.values()]),
        tokens=np.concatenate([part.tokens for part in encoded.values()]),
        words=np.concatenate([part.words for part in encoded.values()]),
        pieces=np.concatenate([part.pieces for part in encoded.values()]),
        counts=np.sum([part.counts for part in encoded.values()], axis=0),
    )
    tokens = int(whole.tokens.sum())
    return FairnessReport(
        vocab_size=tokenizer.vocab_size,
        lines=counts[best],
        gini=metrics.gini(list(costs.values())),
        tokens_per_line=float(np.mean(list(costs.values()))),
        bytes_per_token=float(whole.sizes.sum()) / tokens,
        lines_per_token=whole.tokens.size / tokens,
        lines_per_token_mean=metrics.mean_ratio(np.ones_like(whole.tokens), whole.tokens),
        fertility=metrics.mean_ratio(whole.tokens, whole.words),
        fertility_pieces=metrics.mean_ratio(whole.tokens, whole.pieces),
        utilization=float((whole.counts > 0).sum()) / tokenizer.vocab_size,
        dead=_dead(tokenizer, whole.counts),
        vocabulary=vocabulary.examine(tokenizer),
        type_token_ratio=float((whole.counts > 0).sum()) / tokens,
        renyi_efficiency=metrics.renyi_efficiency(whole.counts, tokenizer.vocab_size),
        worst=worst,
        best=best,
        worst_to_best=costs[worst] / costs[best],
        special_text=tokenizer.count_special_text([line for texts in lines.values() for line in texts]),
        languages={
            name: _figures(part, tokenizer.vocab_size, costs[name] / costs[best]) for name, part in encoded.items()
        },
    )


def _dead(tokenizer: Tokenizer, counts: np.ndarray[Any, np.dtype[np.int64]]) -> int:
    special = list(tokenizer.special_ids.values())
    return int((counts == 0).sum()) - int((counts[special] == 0).sum())


def _encode(tokenizer: Tokenizer, lines: Sequence[str], threads: int | None) -> _Encoded:
    ids, ends = tokenizer.encode_batch(lines, threads=threads)
    return _Encoded(
        sizes=np.array([len(line.encode()) for line in lines], dtype=np.int64),
        tokens=np.asarray(np.ediff1d(ends.astype(np.int64), to_begin=ends[:1].astype(np.int64)), dtype=np.int64),
        words=np.array([len(line.split()) for line in lines], dtype=np.int64),
        pieces=np.array(count_pieces("paper", lines), dtype=np.int64),
        counts=np.bincount(ids, minlength=tokenizer.vocab_size).astype(np.int64),
    )


def _figures(part: _Encoded, vocab_size: int, cost_ratio: float) -> LanguageFigures:
    lines, size, tokens = len(part.tokens), int(part.sizes.sum()), int(part.tokens.sum())
    return LanguageFigures(
        lines=lines,
        bytes=size,
        tokens=tokens,
        tokens_per_line=tokens / lines,
        bytes_per_token=size / tokens,
        fertility=metrics.mean_ratio(part.tokens, part.words),
        fertility_pieces=metrics.mean_ratio(part.tokens, part.pieces),
        utilization=float((part.counts > 0).sum()) / vocab_size,
        cost_ratio=cost_ratio,
    )
