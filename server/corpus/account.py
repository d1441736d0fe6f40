"""Keeps the books of one source: what was read, rejected and mended, and when that is an error."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from headrace.proto.errors import ConfigError
from headrace.server.corpus.documents import EMPTY, MISSING, DocumentError, Rows
from headrace.server.corpus.spec import DomainSpec


class Account:
    """Counts of one source; `admit` lets the good rows through and applies the policy to the others."""

    def __init__(self, name: str, spec: DomainSpec) -> None:
        self.name, self._spec = name, spec
        self._missing = ""
        self._unseen = set(spec.fields)
        self.read = 0
        self.held_out = 0
        self.rejected: Counter[str] = Counter()
        self.replaced: Counter[str] = Counter()
        self.notes: Counter[str] = Counter()

    @property
    def packed(self) -> int:
        return self.read - self.rejected.total() - self.held_out

    def take(self, other: Account) -> None:
        """Adds what another one has counted of the same source."""
        self.read += other.read
        self.held_out += other.held_out
        for mine, more in (
            (self.rejected, other.rejected),
            (self.replaced, other.replaced),
            (self.notes, other.notes),
        ):
            mine.update(more)

    def admit(self, chunks: Iterable[Rows]) -> Iterator[Rows]:
        """The rows that have a text; stops at the first bad one when the policy is `error`."""
        for rows in chunks:
            self.read += len(rows.texts) + len(rows.odd)
            for row in rows.odd:
                self._see(row.fields)
                self.reject(row.number, row.reason or EMPTY, row.detail)
            if self._unseen:
                for fields in rows.fields:
                    self._see(fields)
            self.replaced.update(rows.replaced)
            yield rows
        if self.read and self.rejected[MISSING] == self.read:
            raise ConfigError(
                f"`{self.name}`: none of its {self.read} rows is usable: {self._missing}; say in domain "
                f'`{self._spec.name}` which field holds the text (now text = "{self._spec.text}")'
            )
        if self.read and self._unseen:
            names = ", ".join(f"`{name}`" for name in sorted(self._unseen))
            raise ConfigError(
                f"`{self.name}`: no row has the field {names}, which `name`, `where` or `keep` asks for; give files "
                f"without it (text files have no fields) a domain of their own"
            )

    def _see(self, fields: Iterable[str]) -> None:
        self._unseen.difference_update(fields)

    def reject(self, row: int, reason: str, detail: str) -> None:
        """Counts a row out, or stops."""
        if self._spec.on_bad == "error" and reason != EMPTY:
            other = (
                f'name the field that holds the text (now text = "{self._spec.text}"), ' if reason == MISSING else ""
            )
            raise DocumentError(
                f'{self.name}:{row}: {detail}; {other}mend the source, or say on_bad = "skip" in domain '
                f"`{self._spec.name}` to count and leave out such documents"
            )
        if reason == MISSING and not self._missing:
            self._missing = detail
        self.rejected[reason] += 1
