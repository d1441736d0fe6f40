"""The figures of a run from a control store and its corpus, with no server: for `top` and reports."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from headrace.server.control.store import Store
from headrace.server.service.loading import Opener
from headrace.server.service.view import View
from headrace.server.watch.history import History
from headrace.server.watch.snapshot import make_snapshot
from headrace.server.watch.values import Snapshot, Surroundings


class StoreFigures:
    """Reads a store anew at each look; also beside a server that writes it."""

    def __init__(self, url: str) -> None:
        self._store = Store(url, writable=False)
        self._opener = Opener(self._store)
        self._histories: dict[str, History] = {}

    def runs(self) -> list[str]:
        """Names of the store's runs."""
        return [run.name for run in self._store.runs()]

    def view(self, run: str) -> View:
        """A run as the store has it now."""
        return self._opener.view(run)

    def look(self, run: str, drift: Sequence[Mapping[str, Any]] = ()) -> tuple[View, History, Snapshot]:
        """A run with its history and figures."""
        view = self.view(run)
        history = self._histories.setdefault(run, History())
        return view, history, make_snapshot(view, history, Surroundings(now_us=time.time_ns() // 1000), drift)

    def snapshot(self, run: str) -> dict[str, Any]:
        """A run's figures as JSON has them."""
        return self.look(run)[2].as_dict()

    def close(self) -> None:
        """Closes the store."""
        self._store.close()
