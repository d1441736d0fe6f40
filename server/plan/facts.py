"""What the plan must know of a corpus: numbers only. The corpus hands them over; the plan reads no file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from headrace.proto.errors import UsageError

_LARGEST = 1 << 62


@dataclass(frozen=True, kw_only=True, slots=True)
class ViewFacts:
    """A view of a domain: `windows` is its number of windows n, `real_tokens` the real input tokens R in all of them.

    Raises UsageError when a window would hold no real token (R < n).
    """

    windows: int
    real_tokens: int

    def __post_init__(self) -> None:
        if not 0 <= self.windows <= self.real_tokens < _LARGEST:
            raise UsageError(f"a view cannot have {self.windows} windows of {self.real_tokens} real tokens in all")


NOTHING = ViewFacts(windows=0, real_tokens=0)


@dataclass(frozen=True, kw_only=True, slots=True)
class GenerationFacts:
    """Numbers of the files that join a domain together: real tokens, and views by (seq_len, packing)."""

    tokens: int
    views: Mapping[tuple[int, str], ViewFacts]


@dataclass(frozen=True, kw_only=True)
class CorpusFacts:
    """Numbers of a corpus, and of those views that a spec needs. `tokens` are real tokens by domain.

    `generations` holds those that were opened to join later, by (digest of the manifest in hex, domain).
    """

    digest: bytes
    tokens: Mapping[str, int]
    vocab_size: int
    pad_id: int
    views: Mapping[tuple[str, int, str], ViewFacts]
    generations: Mapping[tuple[str, str], GenerationFacts] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for (domain, seq_len, packing), view in self.views.items():
            if domain not in self.tokens:
                raise UsageError(f"a view of `{domain}` ({seq_len}, {packing}), which is not a domain of the corpus")
            if view.real_tokens > view.windows * seq_len:
                raise UsageError(f"view of `{domain}` ({seq_len}, {packing}): more real tokens than its windows hold")

    @cached_property
    def domains(self) -> tuple[str, ...]:
        """Names in bytewise order."""
        return tuple(sorted(self.tokens, key=str.encode))

    def view(self, domain: str, seq_len: int, packing: str) -> ViewFacts:
        """The view; one without windows if the corpus gave none."""
        return self.views.get((domain, seq_len, packing), NOTHING)
