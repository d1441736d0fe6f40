"""Drift of a run's last intervals, from store and corpus with no server, by the features and the rule of the watch.

It looks at more windows than a server that also serves: at least eight of each domain and interval on average, so that
a few intervals are enough for a figure. Which windows those are is a pure function of plan and interval.
"""

from __future__ import annotations

from dataclasses import replace

from headrace.server.corpus.profile import Profile
from headrace.server.corpus.text_encoder import load_tokenizer, tables_of
from headrace.server.service.view import View
from headrace.server.watch.drift_domain import DomainDrift
from headrace.server.watch.drift_figures import DriftFigure
from headrace.server.watch.drift_sample import choose, observe
from headrace.server.watch.drift_settings import DriftSettings

_WINDOWS_OF_A_DOMAIN = 8


def last_figures(view: View, intervals: int, settings: DriftSettings | None = None) -> tuple[DriftFigure, ...]:
    """The newest figure of each domain, feature and comparison, after so many whole intervals of one shape.

    Raises DataLossError when a window cannot be read.
    """
    settings = settings or replace(DriftSettings(), least=_WINDOWS_OF_A_DOMAIN * len(view.plan.domains))
    end = view.run.confirmed // settings.steps
    first = max(0, end - intervals, -(-view.plan.first // settings.steps))
    if end <= first:
        return ()
    shape = view.plan.shape(end * settings.steps - 1)
    base = view.library.base
    tables = tables_of(load_tokenizer(str(base.tokenizer_path), base.tokenizer_digest.hex()))
    domains: dict[str, DomainDrift] = {}
    newest: dict[tuple[str, str, str], DriftFigure] = {}
    for number in range(first, end):
        from_step, to_step = number * settings.steps, (number + 1) * settings.steps
        if view.plan.shape(from_step) != shape:
            continue
        interval = choose(view.plan, view.library, from_step, to_step, settings)
        for name in interval.windows:
            drift = domains.setdefault(name, _domain(view, name, settings))
            for found in drift.add(observe(interval, name, tables), from_step, to_step):
                values = {field: getattr(found, field) for field in found.__slots__}
                figure = DriftFigure(run=view.run.name, domain=name, **values)
                newest[name, figure.feature, figure.against] = figure
    return tuple(newest[key] for key in sorted(newest))


def _domain(view: View, name: str, settings: DriftSettings) -> DomainDrift:
    record = next((each for each in view.library.base.manifest.domains if each.name == name), None)
    return DomainDrift(
        record.profile if record else Profile(),
        documents=record.total("documents") if record else 0,
        duplicates=record.duplicates if record else 0,
        rule=settings.rule,
    )
