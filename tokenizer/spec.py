"""What to train: a variant with its settings, checked."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction

from headrace.proto.errors import UsageError
from headrace.tokenizer import pretokenizer
from headrace.tokenizer.tokenizer import DEFAULT_SPECIALS

VARIANTS = ("classical", "base", "window", "hybrid", "hybrid+window")
LARGEST = 262_144


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainSpec:
    """Settings of one training run.

    Attributes:
        vocab_size: ids of the finished tokenizer, special tokens and the 256 bytes included. This or `merges`.
        merges: number of merges to write instead.
        variant: `classical` takes the most frequent pair of all text; `base` serves, at each merge, the language that
            now costs most tokens on the development text (Parity-aware BPE, arXiv 2508.04796, algorithm 1); `window`
            does so but gives no language more than its part of the last merges; `hybrid` begins with `global_merges`
            classical ones; `hybrid+window` is both.
        global_merges: classical merges at the start; for the hybrid variants half of all merges when not given.
        window, alpha: of the last `window` merges one language may have had alpha / number of languages.
        evidence: what a pair is worth to a language: `train`, its count in the training text (as published), or `mix`,
            `mix` parts of its count in the development text and 1 - `mix` of that in the training text, both per byte.
            With `mix` a language whose best pair is worth less than `kappa` of the best of all has no say, and `eta`
            (0.1 to 0.3 protects large languages) adds what the pair is worth to the others.
        objective: `worst` serves the neediest language; `pnorm` takes the pair that lowers the `power`-norm of all
            costs most (it always uses mixed evidence; power 1 is classical BPE on both texts).
        split_dev: use odd development lines as evidence and even ones as cost, so that what a large vocabulary learns
            by heart is no score.
        ratio: wanted compression of each language, relative to each other, instead of development text; for parallel
            quality set it to the bytes of one parallel sentence.
        min_frequency: least occurrences of a pair in the text of the language that it is merged for; when not given 2,
            and 1 with mixed evidence, whose guard does what the threshold is for.
        least_word_count: pieces rarer than this over all training text are dropped (1 keeps all).
        most_pieces: most distinct pieces of one language's text that are held; above it the rarest are dropped, with a
            warning. Memory is some 100 bytes a piece.
        pretokenizer: see `headrace.tokenizer.pretokenizer`.
        superword_merges: of all merges, how many at the end may join words across a blank (SuperBPE, arXiv
            2503.13423); pieces are then clauses, words parted by single blanks, so there are many distinct ones, and
            memory grows with the text. The file's pre-tokenizer is `clause`.
        temperature: above 1, the larger a language's training text is, the smaller the part of it that is taken: the
            parts' sizes are as the sizes to the power of 1 / temperature, and the smallest language is taken whole.
        seed: which documents (of plain text files: lines) the parts are made of.
        specials: special tokens, which get the first ids.
        compat: "reference" follows the parity-aware reference implementation in all: text line by line with its line
            end, training that ends at the first exhausted language, its window quirk, its lossy pre-tokenizer `paper`.
        allow_smaller: accept a smaller vocabulary when the text has no more pairs; an error otherwise.
        threads: threads that count pieces; the result does not depend on it.
    """

    vocab_size: int | None = None
    merges: int | None = None
    variant: str = "base"
    global_merges: int | None = None
    evidence: str = "train"
    mix: float = 0.5
    eta: float = 0.0
    kappa: float = 0.02
    objective: str = "worst"
    power: int = 32
    split_dev: bool = False
    window: int = 100
    alpha: float = 2.0
    ratio: Mapping[str, float] = field(default_factory=dict)
    min_frequency: int | None = None
    least_word_count: int = 1
    most_pieces: int = 20_000_000
    pretokenizer: str = pretokenizer.DEFAULT
    superword_merges: int = 0
    temperature: float = 1.0
    seed: int = 0
    specials: tuple[str, ...] = DEFAULT_SPECIALS
    compat: str | None = None
    allow_smaller: bool = False
    threads: int = 2

    def __post_init__(self) -> None:
        _check_choice("variant", self.variant, VARIANTS)
        _check_choice("evidence", self.evidence, ("train", "mix"))
        _check_choice("objective", self.objective, ("worst", "pnorm"))
        _check_choice("compat", self.compat, (None, "reference"))
        pretokenizer.checked(self.pretokenizer)
        if (self.vocab_size is None) == (self.merges is None):
            raise UsageError("give the size of the vocabulary or the number of merges, and not both")
        self._check_size()
        if self.pretokenizer in pretokenizer.LOSSY and self.compat is None:
            raise UsageError(
                f"the pre-tokenizer `{self.pretokenizer}` loses white space, so texts would not come back; it is only "
                f"for compat='reference'; use `{pretokenizer.DEFAULT}`"
            )
        if self.global_merges is not None and "hybrid" not in self.variant:
            raise UsageError(f"global merges belong to the hybrid variants, not to `{self.variant}`")
        self._check_rule()
        self._check_superwords()
        if not 1 <= self.temperature < math.inf:
            raise UsageError(f"the temperature must be 1 (all text) or more, not {self.temperature}")
        for name in ("window", "alpha", "power", "least_word_count", "most_pieces", "threads"):
            _check_positive(name, getattr(self, name))
        _check_positive("min_frequency", self.least_pair_count)
        for language, ratio in self.ratio.items():
            _check_positive(f"ratio of {language}", ratio)

    def _check_rule(self) -> None:
        if not (0 <= self.mix <= 1 and 0 <= self.kappa <= 1 and 0 <= self.eta < math.inf):
            raise UsageError(
                f"mix and kappa must lie between 0 and 1 and eta be 0 or more, not {self.mix}, {self.kappa}, {self.eta}"
            )
        if self.objective == "pnorm" and (self.variant != "base" or self.ratio):
            raise UsageError("the objective `pnorm` chooses no language, so it goes with the variant `base` alone")
        if self.variant == "classical" and (self.evidence != "train" or self.split_dev):
            raise UsageError("the variant `classical` uses no development text; for both texts use `pnorm` of power 1")
        if self.split_dev and not self.uses_mix:
            raise UsageError("split development text needs evidence from it: evidence `mix` or objective `pnorm`")

    def _check_superwords(self) -> None:
        if self.superword_merges < 0 or self.superword_merges > self.wanted_merges:
            raise UsageError(f"superword merges must be 0 to {self.wanted_merges} here, not {self.superword_merges}")
        if self.superword_merges and self.pretokenizer not in (pretokenizer.DEFAULT, pretokenizer.CLAUSE):
            raise UsageError(
                f"merges across words need pieces that hold several words, so they go with the pre-tokenizer "
                f"`{pretokenizer.DEFAULT}`, which becomes `{pretokenizer.CLAUSE}`, and not with `{self.pretokenizer}`"
            )

    @property
    def cutter(self) -> str:
        """The pre-tokenizer that training and the finished tokenizer cut with."""
        return pretokenizer.CLAUSE if self.superword_merges else pretokenizer.checked(self.pretokenizer)

    @property
    def wanted_merges(self) -> int:
        """Merges that are asked for."""
        return self.max_tokens - 256 if self.merges is None else self.merges

    @property
    def cross_from(self) -> int:
        """Merges before the first across words."""
        return self.wanted_merges - self.superword_merges if self.superword_merges else 0

    @property
    def uses_mix(self) -> bool:
        """Whether development text is evidence."""
        return self.evidence == "mix" or self.objective == "pnorm"

    @property
    def least_pair_count(self) -> int:
        """The threshold `min_frequency`, with its default."""
        if self.min_frequency is not None:
            return self.min_frequency
        return 1 if self.uses_mix else 2

    @property
    def mix_fraction(self) -> tuple[int, int]:
        """`mix` as whole numbers, so that keys are integers."""
        return Fraction(str(self.mix)).limit_denominator(1000).as_integer_ratio()

    def _check_size(self) -> None:
        if len(set(self.specials)) != len(self.specials) or "" in self.specials:
            raise UsageError(f"special tokens must be distinct and not empty: {list(self.specials)}")
        least = 256 + len(self.specials)
        size = self.vocab_size if self.vocab_size is not None else least + (self.merges or 0)
        if (self.merges is not None and self.merges < 0) or size < least:
            raise UsageError(
                f"a vocabulary of {size} cannot hold the 256 bytes and {len(self.specials)} special tokens; "
                f"ask for at least {least}"
            )
        if size - len(self.specials) > LARGEST:
            raise UsageError(f"a vocabulary of {size} is too large; at most {LARGEST + len(self.specials)}")

    @property
    def max_tokens(self) -> int:
        """Tokens to make, bytes included, special ones not."""
        return LARGEST if self.vocab_size is None else self.vocab_size - len(self.specials)

    @property
    def max_merges(self) -> int:
        """Merges to write; far more than any vocabulary needs when the size decides."""
        return 2 * LARGEST if self.merges is None else self.merges

    @property
    def global_steps(self) -> int:
        """Merges of the global phase."""
        if "hybrid" not in self.variant:
            return 0
        asked = self.wanted_merges
        return asked // 2 if self.global_merges is None else self.global_merges


def _check_choice(name: str, value: str | None, choices: tuple[str | None, ...]) -> None:
    if value not in choices:
        known = ", ".join(str(choice) for choice in choices if choice)
        raise UsageError(f"unknown {name} `{value}`; known are {known}")


def _check_positive(name: str, value: float) -> None:
    if not math.isfinite(value) or value <= 0:
        raise UsageError(f"{name} must be a positive number, not {value}")
