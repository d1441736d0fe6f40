"""One training run from texts to tokenizer: counting, merging, keeping the run, the report."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from headrace.native import BpeTrainer, PieceCounter
from headrace.proto.errors import UsageError
from headrace.tokenizer import checkpoint, diagnose, sample
from headrace.tokenizer.checkpoint import Checkpoint
from headrace.tokenizer.languages import check_aligned, check_covered
from headrace.tokenizer.outcome import Progress, SmallVocabularyError, TrainReport
from headrace.tokenizer.spec import TrainSpec
from headrace.tokenizer.texts import Text, count_texts, development_lines
from headrace.tokenizer.tokenizer import Tokenizer


class Job:
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
        self.run_identity = checkpoint.identity(spec, texts, dev)
        self.checkpoint_path: Path | None = None
        self.checkpoint_seconds = 0.0
        self.is_classical = spec.variant == "classical"
        self.dev = self._development(dev)
        # Classical training needs no languages: one column for all is the same and faster.
        self.languages = ("all",) if self.is_classical else self.names
        self.parts = _parts(self.dev, split=spec.split_dev)
        self.counter = PieceCounter(
            spec.cutter, len(self.languages) * (1 + len(self.parts)), most_pieces=spec.most_pieces
        )

    def _development(self, dev: Mapping[str, Iterable[Text]] | None) -> dict[str, Sequence[str]]:
        if self.is_classical:
            return {}
        if self.spec.ratio:
            check_covered("ratio", self.spec.ratio, self.names)
            if not self.spec.uses_mix:
                return {}
        if dev is None:
            raise UsageError(
                f"the variant `{self.spec.variant}` needs development text (aligned lines in each language) "
                f"or a ratio for each language"
            )
        check_covered("development text", dev, self.names)
        lines = {name: development_lines(dev[name]) for name in self.names}
        check_aligned(lines, "development text")
        return lines

    def keep_at(self, path: Path, seconds: float) -> None:
        """Keep the run at a path; one that cannot be written to is refused now."""
        if not path.parent.is_dir():
            raise UsageError(f"cannot keep the run at `{path}`: its folder does not exist; make it, or choose another")
        self.checkpoint_path, self.checkpoint_seconds = path, seconds

    def run(self) -> tuple[Tokenizer, TrainReport]:
        kept = checkpoint.load(self.checkpoint_path, self.run_identity) if self.checkpoint_path else None
        if kept is None:
            kept, trainer = self._begin()
        else:
            self.inputs = kept.inputs
            trainer = self._trainer(kept)
            note = f"goes on from `{self.checkpoint_path}`"
            self.progress(Progress(stage="checkpoint", done=len(kept.rows), total=self.spec.wanted_merges, note=note))
        counted, before, warnings = kept.counted[: len(self.languages)], kept.before, kept.warnings
        rows = self._merge(trainer, kept)
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

    def _begin(self) -> tuple[Checkpoint, BpeTrainer]:
        """Count the texts; the run before its first merge."""
        self._count()
        columns = range(len(self.languages) * (1 + len(self.parts)))
        counted = [list(self.counter.seen(column)) for column in columns]
        if not any(pieces for _, _, pieces in counted[: len(self.languages)]):
            raise UsageError("the training text is empty: no document has a character in it")
        warnings = self._warn_of_text()
        trainer = self._trainer(None)
        start = Checkpoint(
            run=self.run_identity,
            counted=counted,
            inputs=self.inputs,
            before=self._totals(trainer),
            warnings=warnings,
            rows=[],
            state=b"",
        )
        return start, trainer

    def _sampled(self) -> Mapping[str, Iterable[Text]]:
        """The texts, or with a temperature the parts of them that are taken."""
        spec = self.spec
        if spec.temperature == 1:
            return self.texts
        sizes = {name: sample.size_of(texts, self.field) for name, texts in self.texts.items()}
        taken = sample.shares(sizes, spec.temperature)
        return {
            name: sample.sampled(texts, self.field, share=taken[name], seed=spec.seed, name=name)
            if taken[name] < 1
            else texts
            for name, texts in self.texts.items()
        }

    def _count(self) -> None:
        chosen = self._sampled()
        lines, threads = self.spec.compat is not None, self.spec.threads
        for index, name in enumerate(self.names):
            self.progress(Progress(stage="count", done=index, total=len(self.names), note=name))
            column = 0 if self.is_classical else index
            texts = chosen[name]
            self.inputs[name] = count_texts(self.counter, column, texts, field=self.field, lines=lines, threads=threads)
            for number, part in enumerate(self.parts, start=1):
                given = [line + "\n" for line in part[name]] if lines else part[name]
                column = len(self.languages) * number + index
                digest = count_texts(self.counter, column, given, field=self.field, lines=False, threads=threads)
                self.inputs[f"{name} development {number}"] = digest

    def _trainer(self, kept: Checkpoint | None) -> BpeTrainer:
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
                cross_from=spec.cross_from,
                state=([size for _, size, _ in kept.counted], kept.state) if kept else None,
            )
        except ValueError as error:
            raise UsageError(f"cannot train: {error}") from None

    def _totals(self, trainer: BpeTrainer) -> dict[str, int]:
        totals = trainer.totals
        first = 0 if self.spec.ratio else len(self.languages) * len(self.parts)
        return dict(zip(self.languages, totals[first : first + len(self.languages)], strict=True))

    def _merge(self, trainer: BpeTrainer, kept: Checkpoint) -> list[_Row]:
        first, last = len(kept.rows), time.monotonic()
        rows = [_row(row) for row in kept.rows]
        try:
            while not (trainer.is_complete or trainer.is_exhausted):
                trainer.run()
                rows += trainer.rows(len(rows) - first)
                total = self.spec.wanted_merges
                self.progress(Progress(stage="merge", done=len(rows), total=total, note=self._note(trainer)))
                if self.checkpoint_path and time.monotonic() - last > self.checkpoint_seconds:
                    self._keep(trainer, kept)
                    last = time.monotonic()
        except KeyboardInterrupt:
            self._keep(trainer, kept)
            raise
        return rows

    def _keep(self, trainer: BpeTrainer, kept: Checkpoint) -> None:
        """Write the run as it stands now."""
        if self.checkpoint_path is None:
            return
        rows = [*kept.rows, *map(list, trainer.rows(0))]
        replace(kept, rows=rows, state=trainer.state()).save(self.checkpoint_path)
        note = f"kept at `{self.checkpoint_path}`; the same command goes on from there"
        self.progress(Progress(stage="checkpoint", done=len(rows), total=self.spec.wanted_merges, note=note))

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
            pretokenizer_name=self.spec.cutter,
        )

    def _check_size(self, trainer: BpeTrainer, made: int) -> None:
        spec = self.spec
        if trainer.is_complete or spec.allow_smaller or spec.compat:
            return
        asked = spec.vocab_size or 0
        raise SmallVocabularyError(
            f"the text gives a vocabulary of {made + 256 + len(spec.specials)} of the {asked or spec.merges} "
            f"{'ids' if asked else 'merges'} asked for: no pair of tokens occurs {spec.least_pair_count} times "
            f"any more; give more text, ask for less, or allow a smaller vocabulary (`--allow-smaller`)"
        )

    def _warn_of_text(self) -> list[str]:
        """Look at the texts before merges are spent on them."""
        found = []
        for index, name in enumerate(self.languages):
            found += diagnose.dropped(name, *self.counter.dropped(index))
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


def _row(values: Sequence[Any]) -> _Row:
    left, right, token, language, count, saved = values
    return left, right, token, language, count, saved


def _parts(dev: Mapping[str, Sequence[str]], *, split: bool) -> list[Mapping[str, Sequence[str]]]:
    """The development text as the trainer uses it: whole, or odd lines for evidence and even ones for the cost."""
    if not dev:
        return []
    if not split:
        return [dev]
    return [{name: lines[start::2] for name, lines in dev.items()} for start in (0, 1)]
