"""What a training run says while it runs and when it is done."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from headrace.proto.errors import HeadraceError


@dataclass(frozen=True, kw_only=True, slots=True)
class Progress:
    """Where training is: `done` of `total` in a stage ("count" languages, "merge" tokens), and a note on it.

    In the stage "warning" the note is something about the texts that a user should look at, in "checkpoint" where the
    run was kept, after `done` merges.
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


class SmallVocabularyError(HeadraceError):
    """The text has too few pairs for the vocabulary asked for."""
