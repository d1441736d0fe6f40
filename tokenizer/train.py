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

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from headrace.tokenizer.job import Job
from headrace.tokenizer.outcome import Progress, SmallVocabularyError, TrainReport
from headrace.tokenizer.spec import TrainSpec
from headrace.tokenizer.texts import Text
from headrace.tokenizer.tokenizer import Tokenizer

__all__ = ["Progress", "SmallVocabularyError", "TrainReport", "train"]


def train(
    spec: TrainSpec,
    texts: Mapping[str, Iterable[Text]],
    dev: Mapping[str, Iterable[Text]] | None = None,
    *,
    field: str = "text",
    progress: Callable[[Progress], None] | None = None,
    checkpoint_path: Path | None = None,
    checkpoint_seconds: float = 60.0,
) -> tuple[Tokenizer, TrainReport]:
    """Train on texts by language; parity-aware variants need `dev`, aligned lines by language, or `spec.ratio`.

    Texts are documents (str) or files (Path): `.jsonl` and `.parquet` with documents in `field`, anything else as one
    document. `dev` are lines (str) or files of lines. Raises UsageError when the texts cannot give what was asked for.

    With `checkpoint_path` the run is kept there every `checkpoint_seconds` of merging and when KeyboardInterrupt ends
    it, and a run that finds itself there goes on from it, to the same result. The file stays; remove it when the
    tokenizer is safe.
    """
    job = Job(spec, texts, dev, field=field, progress=progress or (lambda _: None))
    if checkpoint_path is not None:
        job.keep_at(checkpoint_path, checkpoint_seconds)
    return job.run()
