"""Watches what a run really serves: an interval of confirmed steps is sampled, counted and compared, off the serving
path.

The work is bounded twice: one in `one_in` of the windows that were served is looked at, and after each piece of work
the watch rests until it has used no more than `duty` of the time. A run that goes faster than that skips intervals: the
newest is looked at, and the skipped ones are counted. A rare domain gathers windows over as many intervals as it takes.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable
from typing import TypeVar

from headrace.proto.errors import HeadraceError
from headrace.server.corpus.profile import Profile
from headrace.server.corpus.text_encoder import load_tokenizer, tables_of
from headrace.server.corpus.token_tables import TokenTables
from headrace.server.service.handle import RunHandle
from headrace.server.service.logs import remedy_of, told
from headrace.server.service.view import View
from headrace.server.watch.drift.near_duplicates import HISTORY
from headrace.server.watch.drift.series import Comparison
from headrace.server.watch.drift_domain import DomainDrift
from headrace.server.watch.drift_figures import DriftFigure
from headrace.server.watch.drift_sample import choose, observe
from headrace.server.watch.drift_settings import DriftSettings

logger = logging.getLogger("headrace.drift")

_HISTORY_FIGURES = 20_000
_MOST_REMEMBERED = 1 << 18  # documents of all domains together, about 200 bytes each
_LEAST_REMEMBERED = 256
_Result = TypeVar("_Result")


class DriftWatch:
    """The drift of one run. `turn` is called by one task; all of it belongs to the event loop."""

    def __init__(self, handle: RunHandle, settings: DriftSettings | None = None) -> None:
        self.settings = settings or DriftSettings()
        self.intervals = 0
        self.skipped = 0
        self.failed: Counter[str] = Counter()
        self.seconds = 0.0
        self._handle = handle
        self._domains: dict[str, DomainDrift] = {}
        self._newest: dict[tuple[str, str, str], DriftFigure] = {}
        self._history: deque[DriftFigure] = deque(maxlen=_HISTORY_FIGURES)
        self._next: int | None = None
        self._shape: tuple[int, str] | None = None
        self._tables: TokenTables | None = None

    def figures(self) -> tuple[DriftFigure, ...]:
        """The newest figure of every domain and feature, against each of what it is compared with."""
        return tuple(self._newest[key] for key in sorted(self._newest))

    def history(self) -> tuple[DriftFigure, ...]:
        """Every figure in the order in which they were made; the last 20,000."""
        return tuple(self._history)

    async def turn(self) -> bool:
        """Looks at the newest whole interval if it was not looked at yet; whether there was one."""
        view = self._handle.view
        number = view.run.confirmed // self.settings.steps - 1
        due = max(0, -(-view.plan.first // self.settings.steps)) if self._next is None else self._next
        if number < due or view.run.kind == "eval":
            return False
        self.skipped += number - due if self._next is not None else 0
        self._next = number + 1
        try:
            await self._look(view, number * self.settings.steps, (number + 1) * self.settings.steps)
            self.intervals += 1
        except HeadraceError as error:
            self.failed[type(error).__name__] += 1
            step = number * self.settings.steps
            fields = told("drift-unknown", run=view.run.name, step=step, remedy=remedy_of(error))
            logger.warning("run %s: drift from step %d on is not known: %s", view.run.name, step, error, extra=fields)
        return True

    async def _look(self, view: View, from_step: int, to_step: int) -> None:
        sizes = self.settings
        interval = await self._apart(lambda: choose(view.plan, view.library, from_step, to_step, sizes))
        if self._tables is None:
            self._tables = await self._apart(lambda: _tables(view))
        tables = self._tables
        if (interval.shape.seq_len, interval.shape.packing) != self._shape:
            self._shape = (interval.shape.seq_len, interval.shape.packing)
            for domain in self._domains.values():
                domain.forget_documents()
        span = (interval.from_step, interval.to_step)
        for name in interval.windows:
            drift = self._domain(view, name)
            self._keep(name, await self._apart(lambda: drift.add(observe(interval, name, tables), *span)))  # noqa: B023
        losses = await self._handle.losses(from_step, to_step)
        for name in sorted({loss.domain for loss in losses}):
            mine = [loss for loss in losses if loss.domain == name]
            self._keep(name, self._domain(view, name).add_losses(mine, from_step, to_step))

    async def _apart(self, work: Callable[[], _Result]) -> _Result:
        """The work in a thread, then a rest as long as it takes to stay within the duty."""

        def timed() -> tuple[_Result, float]:
            started = time.thread_time()
            return work(), time.thread_time() - started

        result, seconds = await asyncio.to_thread(timed)
        self.seconds += seconds
        await asyncio.sleep(seconds / self.settings.duty - seconds)
        return result

    def _domain(self, view: View, name: str) -> DomainDrift:
        if name not in self._domains:
            record = next((each for each in view.library.base.manifest.domains if each.name == name), None)
            self._domains[name] = DomainDrift(
                record.profile if record else Profile(),
                documents=record.total("documents") if record else 0,
                duplicates=record.duplicates if record else 0,
                rule=self.settings.rule,
                remembered=min(HISTORY, max(_LEAST_REMEMBERED, _MOST_REMEMBERED // len(view.plan.domains))),
            )
        return self._domains[name]

    def _keep(self, domain: str, found: Iterable[Comparison]) -> None:
        for each in found:
            values = {name: getattr(each, name) for name in each.__slots__}
            figure = DriftFigure(run=self._handle.view.run.name, domain=domain, **values)
            key = (domain, figure.feature, figure.against)
            was = self._newest.get(key)
            if figure.alarm and not (was and was.alarm):
                _warn(figure)
            self._newest[key] = figure
            self._history.append(figure)


def _tables(view: View) -> TokenTables:
    corpus = view.library.base
    return tables_of(load_tokenizer(str(corpus.tokenizer_path), corpus.tokenizer_digest.hex()))


def _warn(figure: DriftFigure) -> None:
    logger.warning(
        "run %s: domain %s drifts: %s of steps %d to %d is %.4f bits from the %s, %.1f times its noise floor; look at "
        "what is served with `headrace run explain %s --step %d`",
        figure.run,
        figure.domain,
        figure.feature,
        figure.from_step,
        figure.to_step - 1,
        figure.jsd,
        figure.against,
        figure.value_floor_ratio,
        figure.run,
        figure.from_step,
        extra=told(
            "drift",
            run=figure.run,
            step=figure.from_step,
            remedy=f"headrace run explain {figure.run} --step {figure.from_step}",
            domain=figure.domain,
            feature=figure.feature,
            against=figure.against,
            jsd=round(figure.jsd, 6),
            floor=round(figure.floor, 6),
        ),
    )


class DriftTask:
    """Gives each run that is open on a server its watch, and lets them take turns."""

    def __init__(self, handles: Callable[[], Iterable[RunHandle]], settings: DriftSettings) -> None:
        self._handles = handles
        self._settings = settings
        self._watches: dict[RunHandle, DriftWatch] = {}
        self._task = asyncio.create_task(self._keep_watching(), name="drift")

    def of(self, handle: RunHandle) -> DriftWatch:
        """The watch of a run."""
        if handle not in self._watches:
            self._watches[handle] = DriftWatch(handle, self._settings)
        return self._watches[handle]

    async def close(self) -> None:
        """Stops; what is under way in a thread ends by itself."""
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def _keep_watching(self) -> None:
        while True:
            await asyncio.sleep(1.0)
            for handle in self._handles():
                try:
                    await self.of(handle).turn()
                except Exception:
                    logger.exception("run %s: the drift watch failed and goes on", handle.view.run.name)
