"""Keeps the books of one source: what was read, rejected and mended, and when that is an error."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from headrace.proto.errors import ConfigError
from headrace.server.corpus.bytestream import SourceError
from headrace.server.corpus.documents import EMPTY, MISSING, Row
from headrace.server.corpus.spec import DomainSpec


class Account:
    """Counts of one source; `admit` lets the good rows through and applies the policy to the others."""

    def __init__(self, name: str, spec: DomainSpec) -> None:
        self._name, self._spec = name, spec
        self._missing = ""
        self.read = 0
        self.rejected: Counter[str] = Counter()
        self.replaced: Counter[str] = Counter()
        self.notes: Counter[str] = Counter()

    @property
    def packed(self) -> int:
        return self.read - self.rejected.total()

    def admit(self, rows: Iterable[Row]) -> Iterator[Row]:
        """The rows that have a text; stops at the first bad one when the policy is `error`."""
        for row in rows:
            self.read += 1
            if row.text is None:
                self.reject(row, row.reason or EMPTY, row.detail)
                continue
            if row.reason is not None:
                self.replaced[row.reason] += 1
            yield row
        if self.read and self.rejected[MISSING] == self.read:
            raise ConfigError(f"`{self._name}`: none of its {self.read} rows is usable: {self._missing}")

    def reject(self, row: Row, reason: str, detail: str) -> None:
        """Counts a row out, or stops."""
        if self._spec.on_bad == "error" and reason != EMPTY:
            raise SourceError(
                f'{self._name}:{row.number}: {detail}; mend the source, or say on_bad = "skip" in domain '
                f"`{self._spec.name}` to count and leave out such documents"
            )
        if reason == MISSING and not self._missing:
            self._missing = detail
        self.rejected[reason] += 1
