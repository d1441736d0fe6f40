"""Puts together what `/metrics` says of the runs that are open on this server, and when its certificate ends."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from headrace.server.service.certificate import not_after
from headrace.server.service.figures import run_figures
from headrace.server.service.handle import RunHandle
from headrace.server.service.metrics import Losses
from headrace.server.service.run_metrics import DriftState, Watched, domains_of_each
from headrace.server.watch.drift_watch import DriftTask


def watched(handles: Sequence[RunHandle], drift: DriftTask | None, losses: Losses) -> list[Watched]:
    """Every run as it is now."""
    most = domains_of_each(len(handles))
    found = []
    for handle in handles:
        run = run_figures(handle, most_domains=most)
        means = {domain.name: losses.mean(run.name, domain.name) for domain in run.domains}
        known = {name: mean for name, mean in means.items() if mean is not None}
        found.append(Watched(run=run, drift=_drift(handle, drift), losses=known))
    return found


def _drift(handle: RunHandle, drift: DriftTask | None) -> DriftState:
    if drift is None:
        return DriftState()
    watch = drift.of(handle)
    return DriftState(
        figures=watch.figures(),
        intervals=watch.intervals,
        skipped=watch.skipped,
        seconds=watch.seconds,
        failed=dict(watch.failed),
    )


def certificate_end(path: Path | None) -> Callable[[], float | None]:
    """When the certificate in a file ends, seconds since 1970; read anew each time, since it may be renewed.

    A file that cannot be read gives 0: a date that any alert finds too near.
    """

    def end() -> float | None:
        if path is None:
            return None
        try:
            return not_after(path.read_text(encoding="ascii")).timestamp()
        except (OSError, ValueError):
            return 0.0

    return end
