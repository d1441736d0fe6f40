"""Train a tokenizer: texts in, tokenizer and report out.

    tokenizer, report = train(
        TrainSpec(vocab_size=8192, variant="base"),
        {"eng": english_documents, "swa": [Path("swa.txt")]},       # documents, or files of them
        dev={"eng": english_lines, "swa": swahili_lines},           # aligned: line i says the same in each language
    )

Parity-aware BPE (arXiv 2508.04796): at each merge the language that now needs most tokens on the development text gets
its most frequent pair of the training text. Ties as in the reference implementation: of pairs the largest
(left, right) strings of byte characters, of languages the one given first. A language that has no pair left is passed
over and reported.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from headrace.native import BpeTrainer, PieceCounter
from headrace.proto.errors import HeadraceError, UsageError
from headrace.tokenizer import diagnose
from headrace.tokenizer.spec import TrainSpec
from headrace.tokenizer.texts import Text, count_texts, development_lines
from headrace.tokenizer.tokenizer import Tokenizer


@dataclass(frozen=True, kw_only=True, slots=True)
class Progress:
    """Where training is: `done` of `total` in a stage ("count" languages, "merge" tokens), and a note on it.

    In the stage "warning" the note is something about the texts that a user should look at.
    """

    stage: str
    done: int
    total: int
    note: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainReport:
    """What a training run did.

    Attributes:
        languages: in the order that decides ties.
        vocab_size, merges: ids made, special tokens and bytes included; merges written, each of which makes an id.
        exhausted: languages that had no pair left, with the number of merges after which that was so.
        inputs: SHA-256 of each language's text, see `texts.count_texts`.
        documents, bytes, pieces: of the training text, by language (under "all" for the classical variant).
        tokens_before, tokens_after: on the text that scores are taken from, by language.
        trace: for each merge the language it was for (index, None in the global phase), the pair's count in its
            evidence, and the tokens that the merge saved in that language's score text.
        warnings: what a user should look at.
    """

    variant: str
    languages: tuple[str, ...]
    vocab_size: int
    merges: int
    exhausted: Mapping[str, int]
    inputs: Mapping[str, str]
    documents: Mapping[str, int]
    bytes: Mapping[str, int]
    pieces: Mapping[str, int]
    tokens_before: Mapping[str, int]
    tokens_after: Mapping[str, int]
    trace: Sequence[tuple[int | None, int, int]] = field(repr=False)
    warnings: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """The report without its trace, as plain values."""
        content = asdict(self)
        del content["trace"]
        return content


def train(
    spec: TrainSpec,
    texts: Mapping[str, Iterable[Text]],
    dev: Mapping[str, Iterable[Text]] | None = None,
    *,
    field: str = "text",
    progress: Callable[[Progress], None] | None = None,
) -> tuple[Tokenizer, TrainReport]:
    """Train on texts by language; parity-aware variants need `dev`, aligned lines by language, or `spec.ratio`.

    Texts are documents (str) or files (Path): `.jsonl` with documents in `field`, anything else as one document. `dev`
    are lines (str) or files of lines. Raises UsageError when the texts cannot give what was asked for.
    """
    job = _Job(spec, texts, dev, field=field, progress=progress or (lambda _: None))
    return job.run()


class _Job:
    """One run: counting, merging, and the making of tokenizer and report."""

    def __init__(
        self,
        spec: TrainSpec,
        texts: Mapping[str, Iterable[Text]],
        dev: Mapping[str, Iterable[Text]] | None,
        *,
        field: str,
        progress: Callable[[Progress], None],
    ) -> None:
        self.spec, self.texts, self.field, self.progress = spec, texts, field, progress
        if not texts:
            raise UsageError("there is no text to train on; give at least one language")
        self.names = tuple(texts)
        self.inputs: dict[str, str] = {}
        self.is_classical = spec.variant == "classical"
        self.dev = self._development(dev)
        # Classical training needs no languages: one column for all is the same and faster.
        self.languages = ("all",) if self.is_classical else self.names
        self.parts = _parts(self.dev, split=spec.split_dev)
        self.counter = PieceCounter(spec.pretokenizer, len(self.languages) * (1 + len(self.parts)))

    def _development(self, dev: Mapping[str, Iterable[Text]] | None) -> dict[str, Sequence[str]]:
        if self.is_classical:
            return {}
        if self.spec.ratio:
            _check_languages("ratio", self.spec.ratio, self.names)
            if not self.spec.uses_mix:
                return {}
        if dev is None:
            raise UsageError(
                f"the variant `{self.spec.variant}` needs development text (aligned lines in each language) "
                f"or a ratio for each language"
            )
        _check_languages("development text", dev, self.names)
        lines = {name: development_lines(dev[name]) for name in self.names}
        _check_aligned(lines)
        return lines

    def run(self) -> tuple[Tokenizer, TrainReport]:
        self._count()
        counted = [self.counter.seen(column) for column in range(len(self.languages))]
        if not any(pieces for _, _, pieces in counted):
            raise UsageError("the training text is empty: no document has a character in it")
        warnings = self._warn_of_text()
        trainer = self._trainer()
        before = self._totals(trainer)
        rows = self._merge(trainer)
        self._check_size(trainer, len(rows))
        tokenizer = self._tokenizer(rows)
        exhausted = {name: at for name, at in zip(self.languages, trainer.exhausted, strict=True) if at is not None}
        report = TrainReport(
            variant=self.spec.variant,
            languages=self.names,
            vocab_size=tokenizer.vocab_size,
            merges=len(rows),
            exhausted=exhausted,
            inputs=self.inputs,
            documents={name: seen[0] for name, seen in zip(self.languages, counted, strict=True)},
            bytes={name: seen[1] for name, seen in zip(self.languages, counted, strict=True)},
            pieces={name: seen[2] for name, seen in zip(self.languages, counted, strict=True)},
            tokens_before=before,
            tokens_after=self._totals(trainer),
            trace=[(language, count, saved) for _, _, _, language, count, saved in rows],
            warnings=(*warnings, *self._warn_of_merges(rows, exhausted)),
        )
        return tokenizer, report

    def _count(self) -> None:
        lines, threads = self.spec.compat is not None, self.spec.threads
        for index, name in enumerate(self.names):
            self.progress(Progress(stage="count", done=index, total=len(self.names), note=name))
            column = 0 if self.is_classical else index
            texts = self.texts[name]
            self.inputs[name] = count_texts(self.counter, column, texts, field=self.field, lines=lines, threads=threads)
            for number, part in enumerate(self.parts, start=1):
                given = [line + "\n" for line in part[name]] if lines else part[name]
                column = len(self.languages) * number + index
                digest = count_texts(self.counter, column, given, field=self.field, lines=False, threads=threads)
                self.inputs[f"{name} development {number}"] = digest

    def _trainer(self) -> BpeTrainer:
        spec, languages = self.spec, len(self.languages)
        # The reference divides by one language more after global merges.
        quirk = spec.compat is not None and spec.global_steps > 0
        is_norm = spec.objective == "pnorm"
        window = (spec.window, spec.alpha, languages + quirk) if "window" in spec.variant else None
        try:
            return BpeTrainer(
                self.counter,
                languages=languages,
                development=("none", "shared", "split")[len(self.parts)],
                lines=len(next(iter(self.parts[0].values()))) if self.parts else 0,
                max_tokens=spec.max_tokens,
                max_merges=spec.max_merges,
                global_merges=spec.global_steps,
                min_frequency=spec.least_pair_count,
                window=window,
                ratio=[spec.ratio[name] for name in self.names] if spec.ratio and not self.is_classical else None,
                stop_when_exhausted=spec.compat is not None,
                least_word_count=spec.least_word_count,
                mixed=(*spec.mix_fraction, spec.eta, spec.kappa) if spec.evidence == "mix" and not is_norm else None,
                norm=(*spec.mix_fraction, spec.power) if is_norm else None,
            )
        except ValueError as error:
            raise UsageError(f"cannot train: {error}") from None

    def _totals(self, trainer: BpeTrainer) -> dict[str, int]:
        totals = trainer.totals
        first = 0 if self.spec.ratio else len(self.languages) * len(self.parts)
        return dict(zip(self.languages, totals[first : first + len(self.languages)], strict=True))

    def _merge(self, trainer: BpeTrainer) -> list[_Row]:
        rows: list[_Row] = []
        total = min(self.spec.max_tokens - 256, self.spec.max_merges)
        while not (trainer.is_complete or trainer.is_exhausted):
            rows += trainer.run()
            self.progress(Progress(stage="merge", done=len(rows), total=total, note=self._note(trainer)))
        return rows

    def _note(self, trainer: BpeTrainer) -> str:
        if self.is_classical:
            return ""
        worst, tokens = max(self._totals(trainer).items(), key=lambda item: item[1])
        lines = len(self.parts[-1][worst]) if self.parts and not self.spec.ratio else 0
        return f"worst {worst}" + (f" {tokens / lines:.1f} tokens a line" if lines else "")

    def _tokenizer(self, rows: Sequence[_Row]) -> Tokenizer:
        specials = self.spec.specials
        shift = len(specials)
        tokens = [name.encode() for name in specials] + [bytes([byte]) for byte in range(256)]
        for left, right, *_ in rows:
            tokens.append(tokens[left + shift] + tokens[right + shift])
        return Tokenizer(
            tokens=tokens,
            merges=[(left + shift, right + shift) for left, right, *_ in rows],
            special_ids={name: number for number, name in enumerate(specials)},
            pretokenizer_name=self.spec.pretokenizer,
        )

    def _check_size(self, trainer: BpeTrainer, made: int) -> None:
        spec = self.spec
        if trainer.is_complete or spec.allow_smaller or spec.compat:
            return
        asked = spec.vocab_size or 0
        raise SmallVocabularyError(
            f"the text gives a vocabulary of {made + 256 + len(spec.specials)} of the {asked or spec.merges} "
            f"{'ids' if asked else 'merges'} asked for: no pair of tokens occurs {spec.least_pair_count} times "
            f"any more; give more text, ask for less, or allow a smaller vocabulary"
        )

    def _warn_of_text(self) -> list[str]:
        """Look at the texts before merges are spent on them."""
        found = []
        if self.parts:
            lines = len(next(iter(self.parts[0].values())))
            found += diagnose.small_development(lines)
            for index, name in enumerate(self.names):
                found += diagnose.mismatch(name, *self.counter.mismatch(index, len(self.names) + index))
        for text in found:
            self.progress(Progress(stage="warning", done=0, total=0, note=text))
        return found

    def _warn_of_merges(self, rows: Sequence[_Row], exhausted: Mapping[str, int]) -> list[str]:
        return [*diagnose.exhausted(exhausted), *diagnose.stuck(self.languages, [(row[3], row[5]) for row in rows])]


_Row = tuple[int, int, int, int | None, int, int]


class SmallVocabularyError(HeadraceError):
    """The text has too few pairs for the vocabulary asked for."""


def _parts(dev: Mapping[str, Sequence[str]], *, split: bool) -> list[Mapping[str, Sequence[str]]]:
    """The development text as the trainer uses it: whole, or odd lines for evidence and even ones for the cost."""
    if not dev:
        return []
    if not split:
        return [dev]
    return [{name: lines[start::2] for name, lines in dev.items()} for start in (0, 1)]


def _check_languages(what: str, given: Iterable[str], names: Sequence[str]) -> None:
    missing = [name for name in names if name not in set(given)]
    extra = [name for name in given if name not in names]
    if missing or extra:
        raise UsageError(
            f"the {what} must cover the languages of the training text: missing {missing or 'none'}, "
            f"too many {extra or 'none'}"
        )


def _check_aligned(lines: Mapping[str, Sequence[str]]) -> None:
    counts = {name: len(texts) for name, texts in lines.items()}
    if len(set(counts.values())) > 1:
        raise UsageError(f"development text must be aligned line by line, but the languages have lines: {counts}")
    if not any(counts.values()):
        raise UsageError("the development text has no line")
