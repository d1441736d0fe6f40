"""All series of one domain of a run, and the documents that it has served."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from headrace.server.control.losses import DomainLoss
from headrace.server.corpus.profile import Profile
from headrace.server.corpus.token_tables import TOKEN_FEATURES
from headrace.server.watch.drift.features import LOSS_BINS, loss_bin, one_hot, reference
from headrace.server.watch.drift.near_duplicates import HISTORY, History, expected_rate
from headrace.server.watch.drift.rule import Rule
from headrace.server.watch.drift.series import Comparison, Series
from headrace.server.watch.drift_sample import Observation

_LEAST_LOSSES = 16  # steps


class DomainDrift:
    """Mutable. The reference is the profile that the manifest records, with its count of exact duplicates.

    `remembered`: documents that near-duplicates are looked for among.
    """

    def __init__(
        self, profile: Profile, *, documents: int, duplicates: int, rule: Rule, remembered: int = HISTORY
    ) -> None:
        names = ("document_length", *TOKEN_FEATURES)
        self._series = {name: Series(name, reference(profile, name), rule) for name in names}
        self._repeats = Series("near_duplicate", None, rule)
        self._losses = Series("loss", None, rule, only_rising=True, least_units=_LEAST_LOSSES)
        self._history = History(remembered)
        self._documents = documents
        self._duplicates = duplicates

    def forget_documents(self) -> None:
        """The windows are numbered anew from here on."""
        self._history.clear()

    def add(self, seen: Observation, from_step: int, to_step: int) -> list[Comparison]:
        """The figures that what was seen in steps [from_step, to_step) completes."""
        found = []
        for name, series in self._series.items():
            found += series.add(seen.counts[name], from_step, to_step)
        rate = expected_rate(self._documents, self._duplicates, len(self._history))
        repeated = np.array([self._history.repeats(*document) for document in seen.documents], np.int64)
        self._repeats.reference = np.array([1 - rate, rate])
        return found + self._repeats.add(one_hot(repeated, 2), from_step, to_step)

    def add_losses(self, losses: Sequence[DomainLoss], from_step: int, to_step: int) -> list[Comparison]:
        """The same for losses that trainers reported; only a loss that rises is drift."""
        means = np.array([loss.loss_sum / loss.tokens for loss in losses])
        return self._losses.add(one_hot(loss_bin(means), LOSS_BINS), from_step, to_step)
