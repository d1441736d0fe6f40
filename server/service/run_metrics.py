"""The figures of every open run as Prometheus families, made at each scrape.

They come from confirmed steps alone: a batch asked for twice, or by two replicas, counts once, and a restart goes on
from the durable value. So the counters among them never fall, and nothing is ever NaN: a domain that was not served has
share 0, one without a cap has no series of it. The number of series is bounded whatever the runs are: 256 domains over
all runs, the rest of a run summed as `other`, and drift by feature only while that is few enough, else the worst figure
of each domain.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from headrace.server.service.figures import MOST_DOMAINS, OTHER, DomainFigures, RunFigures
from headrace.server.watch.drift_figures import DriftFigure
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

LEAST_DOMAINS = 8
MOST_DRIFT_FIGURES = 300
WORST = "worst"


@dataclass(frozen=True, kw_only=True, slots=True)
class DriftState:
    """What the drift watch of a run has come to."""

    figures: tuple[DriftFigure, ...] = ()
    intervals: int = 0
    skipped: int = 0
    seconds: float = 0.0
    failed: Mapping[str, int] | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Watched:
    """One run at a scrape: its figures, its drift, and the loss of each domain that has one, nats a token."""

    run: RunFigures
    drift: DriftState
    losses: Mapping[str, float]


def domains_of_each(runs: int) -> int:
    """How many domains of a run get series of their own when so many runs are open."""
    return max(LEAST_DOMAINS, MOST_DOMAINS // max(1, runs))


class RunCollector(Collector):
    """Asks for the figures at each scrape; `certificate` gives the end of the server's, None without TLS, `refused` the
    names of runs that the server was told to serve and cannot open."""

    def __init__(
        self,
        watched: Callable[[], Iterable[Watched]],
        certificate: Callable[[], float | None] = lambda: None,
        refused: Callable[[], Iterable[str]] = tuple,
    ) -> None:
        self._watched = watched
        self._refused = refused
        self._certificate = certificate

    def describe(self) -> Iterable[Metric]:
        return ()

    def collect(self) -> Iterator[Metric]:
        runs = list(self._watched())
        figures = [each.run for each in runs]
        yield from _run_families(figures)
        yield _refused([run.name for run in figures], self._refused())
        yield from _document_families(figures)
        yield from _domain_families(figures)
        yield _losses(runs)
        yield from _drift_families(runs)
        expiry = self._certificate()
        if expiry is not None:
            name, text = "headrace_certificate_expiry_timestamp_seconds", "When the server's certificate ends."
            yield GaugeMetricFamily(name, text, value=expiry)


def _run_families(runs: Sequence[RunFigures]) -> Iterator[Metric]:
    gauges: tuple[tuple[str, str, Callable[[RunFigures], float]], ...] = (
        ("seal_step", "First step that is not sealed.", lambda run: run.seal),
        ("confirmed_step", "Steps that the trainer has taken.", lambda run: run.confirmed),
        ("end_step", "Step after the last one.", lambda run: run.end),
        ("lead_steps", "Steps that the seal may be ahead of confirmed.", lambda run: run.lead),
        ("segment", "Segment of the first unsealed step.", lambda run: run.segment),
        ("slowest_rank_step", "Next step of the rank that is furthest behind.", lambda run: run.slowest_rank),
        ("open_ranks", "Ranks that hold the lease.", lambda run: run.ranks),
        ("world_ranks", "Ranks that the attempt has; 0 when nobody trains.", lambda run: run.world),
        ("share_tolerance_ratio", "Distance from its target that a share may have by the draw alone, over the window.",
         lambda run: run.tolerance),
        ("weights_changed_timestamp_seconds", "When the weights were changed last.", lambda run: run.changed),
        ("generation_missing", "1 when a generation of the log is not open on this server.", lambda run: run.missing),
        ("store_up", "1 when the control store answered the last call.", lambda run: run.store_up),
        ("store_writable", "0 when the control store has refused a write as full or read-only.",
         lambda run: run.store_writable),
        ("seal_blocked", "1 while bytes that fail their checksum stop the seal.", lambda run: run.seal_blocked),
    )  # fmt: skip
    for name, text, value in gauges:
        family = GaugeMetricFamily(f"headrace_{name}", text, labels=["run"])
        for run in runs:
            family.add_metric([run.name], float(value(run)))
        yield family
    failures = CounterMetricFamily("headrace_checksum_failures", "Blocks that failed their checksum.", labels=["run"])
    for run in runs:
        failures.add_metric([run.name], run.checksum_failures)
    yield failures


def _refused(served: Iterable[str], refused: Iterable[str]) -> Metric:
    text = "1 while the server cannot open a run that its file names; it serves the others."
    family = GaugeMetricFamily("headrace_run_refused", text, labels=["run"])
    for name, value in {**dict.fromkeys(served, 0.0), **dict.fromkeys(refused, 1.0)}.items():
        family.add_metric([name], value)
    return family


def _document_families(runs: Sequence[RunFigures]) -> Iterator[Metric]:
    read = CounterMetricFamily("headrace_documents_read", "Documents read to build the corpora.", labels=["run"])
    for run in runs:
        read.add_metric([run.name], run.read)
    yield read
    counters: tuple[tuple[str, str, str, Callable[[RunFigures], Mapping[str, int]]], ...] = (
        ("documents_rejected", "Documents that the build left out.", "reason", lambda run: run.rejected),
        ("log_events", "Events of the log.", "kind", lambda run: run.events),
        ("masks", "Mask events by what they take down; shard: quarantined.", "reason", lambda run: run.masks),
    )
    for name, text, label, value in counters:
        family = CounterMetricFamily(f"headrace_{name}", text, labels=["run", label])
        for run in runs:
            for key, count in sorted(value(run).items()):
                family.add_metric([run.name, key], count)
        yield family


def _domain_families(runs: Sequence[RunFigures]) -> Iterator[Metric]:
    gauges: tuple[tuple[str, str, Callable[[DomainFigures], float | None]], ...] = (
        ("target_weight_ratio", "Target part of real tokens.", lambda domain: domain.target),
        ("served_share_ratio", "Realized part of real tokens so far.", lambda domain: domain.share),
        ("window_target_ratio", "Mean target over the last 256 steps.", lambda domain: domain.window_target),
        ("window_share_ratio", "Realized part over the last 256 steps.", lambda domain: domain.window_share),
        ("domain_epochs", "Tokens served over tokens in the domain.", lambda domain: domain.epochs),
        ("domain_cap_epochs", "Epochs that the domain may have.", lambda domain: domain.cap),
        ("domain_remaining_tokens", "Tokens left to the cap.", lambda domain: domain.tokens_left),
    )
    for name, text, value in gauges:
        family = GaugeMetricFamily(f"headrace_{name}", text, labels=["run", "domain"])
        for run in runs:
            for domain in run.domains:
                found = value(domain)
                if found is not None:
                    family.add_metric([run.name, domain.name], found)
        yield family
    served = CounterMetricFamily("headrace_served_tokens", "Real tokens in confirmed steps.", labels=["run", "domain"])
    for run in runs:
        for domain in run.domains:
            served.add_metric([run.name, domain.name], domain.tokens)
    yield served


def _losses(runs: Sequence[Watched]) -> Metric:
    text = "Mean loss of a token over the last 8 steps reported to this server, nats."
    family = GaugeMetricFamily("headrace_domain_loss_nats", text, labels=["run", "domain"])
    for each in runs:
        for domain in each.run.domains:
            if domain.name in each.losses:
                family.add_metric([each.run.name, domain.name], each.losses[domain.name])
    return family


def _drift_families(runs: Sequence[Watched]) -> Iterator[Metric]:
    labels = ["run", "domain", "feature", "against"]
    gauges: tuple[tuple[str, str, Callable[[DriftFigure], float]], ...] = (
        ("jsd", "Jensen-Shannon divergence of what is served, from 0 to 1.", lambda figure: figure.jsd),
        ("psi", "Population stability index of what is served.", lambda figure: figure.psi),
        ("noise_floor", "JSD that chance alone stays below with probability 0.99.", lambda figure: figure.floor),
        ("alarm", "1 while the figure is above its bound for two intervals.", lambda figure: float(figure.alarm)),
    )
    shown = _shown_drift(runs)
    for name, text, value in gauges:
        family = GaugeMetricFamily(f"headrace_drift_{name}", text, labels=labels)
        for names, figure in shown:
            family.add_metric(list(names), value(figure))
        yield family
    counters: tuple[tuple[str, str, Callable[[DriftState], float]], ...] = (
        ("intervals", "Intervals that were looked at.", lambda state: state.intervals),
        ("skipped_intervals", "Intervals that came too fast to be looked at.", lambda state: state.skipped),
        ("failed_intervals", "Intervals that could not be read.", lambda state: sum((state.failed or {}).values())),
        ("cpu_seconds", "Time of a core that looking took.", lambda state: state.seconds),
    )
    for name, text, count in counters:
        counter = CounterMetricFamily(f"headrace_drift_{name}", text, labels=["run"])
        for each in runs:
            counter.add_metric([each.run.name], count(each.drift))
        yield counter


def _shown_drift(runs: Sequence[Watched]) -> list[tuple[tuple[str, str, str, str], DriftFigure]]:
    """Every figure while they are few; else the worst of each domain, those of domains without series as `other`."""
    figures = [figure for each in runs for figure in each.drift.figures]
    if len(figures) <= MOST_DRIFT_FIGURES:
        return [((each.run, each.domain, each.feature, each.against), each) for each in figures]
    worst: dict[tuple[str, str, str, str], DriftFigure] = {}
    for watched in runs:
        known = {domain.name for domain in watched.run.domains}
        for figure in watched.drift.figures:
            key = (figure.run, figure.domain if figure.domain in known else OTHER, WORST, WORST)
            if key not in worst or _urgency(figure) > _urgency(worst[key]):
                worst[key] = figure
    return list(worst.items())


def _urgency(figure: DriftFigure) -> tuple[bool, float]:
    return figure.alarm, figure.value_floor_ratio
