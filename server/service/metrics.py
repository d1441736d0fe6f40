"""What the server counts, for Prometheus.

Figures of the stream (tokens, shares, epochs) are computed at the scrape from `plan.cursor(confirmed)`: a batch asked
for twice, or by two replicas, counts once, and a restart goes on from the durable value. Figures of the service
(messages, bytes, times) are this process's own. Labels are run, domain, reason, method and code only, so the number of
series is bounded by runs x domains; domains beyond 256 of a run are summed as `other`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from headrace.server.service.figures import DomainFigures, RunFigures
from prometheus_client import CollectorRegistry, Counter, Histogram, Info, disable_created_metrics
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

_BUCKETS = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


class Metrics:
    """The counters of one server, on a registry of its own."""

    def __init__(self, version: str) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self.registry = CollectorRegistry()
        self._of_run: dict[str, tuple[Counter, Counter]] = {}
        self._of_method: dict[tuple[str, str], tuple[Counter, Histogram]] = {}
        Info("headrace_build", "Version of this server.", registry=self.registry).info({"version": version})
        self._batches = Counter(
            "headrace_batches", "GetBatch answers with rows, repeats included.", ["run"], registry=self.registry
        )
        self._bytes = Counter("headrace_batch_bytes", "Bytes of those answers.", ["run"], registry=self.registry)
        self._build = Histogram(
            "headrace_batch_build_seconds", "Time to gather rows.", buckets=_BUCKETS, registry=self.registry
        )
        self._serve = Histogram(
            "headrace_batch_serve_seconds",
            "Time from request to encoded answer.",
            buckets=_BUCKETS,
            registry=self.registry,
        )
        self._mismatches = Counter(
            "headrace_row_digest_mismatches",
            "Rows that a client received with another digest.",
            ["run"],
            registry=self.registry,
        )
        self._losses = Counter(
            "headrace_loss_reports", "Loss values by result.", ["run", "reason"], registry=self.registry
        )
        self._updates = Counter(
            "headrace_weight_updates",
            "Changes asked for, by result.",
            ["run", "result", "reason"],
            registry=self.registry,
        )
        self._handled = Counter(
            "grpc_server_handled", "Calls by method and status.", ["method", "code"], registry=self.registry
        )
        self._handling = Histogram(
            "grpc_server_handling_seconds",
            "Time of calls by method.",
            ["method"],
            buckets=_BUCKETS,
            registry=self.registry,
        )

    def served(self, run: str, size: int, seconds: float) -> None:
        """A batch of `size` bytes was made `seconds` after its request began."""
        if run not in self._of_run:
            self._of_run[run] = (self._batches.labels(run), self._bytes.labels(run))
        batches, bytes_ = self._of_run[run]
        batches.inc()
        bytes_.inc(size)
        self._serve.observe(seconds)

    def built(self, seconds: float) -> None:
        """Rows were gathered in this time."""
        self._build.observe(seconds)

    def row_mismatch(self, run: str, rows: int) -> None:
        """A client received `rows` rows with other digests than were sent."""
        self._mismatches.labels(run).inc(rows)

    def loss(self, run: str, reason: str) -> None:
        """One loss value was `accepted`, or refused for a reason."""
        self._losses.labels(run, reason).inc()

    def update(self, run: str, result: str, reason: str) -> None:
        """A change was `accepted` or `refused`, and why (the error's class)."""
        self._updates.labels(run, result, reason).inc()

    def handled(self, method: str, code: str, seconds: float) -> None:
        """A call ended."""
        key = (method, code)
        if key not in self._of_method:
            self._of_method[key] = (self._handled.labels(*key), self._handling.labels(method))
        handled, handling = self._of_method[key]
        handled.inc()
        handling.observe(seconds)

    def watch(self, figures: Callable[[], Iterable[RunFigures]]) -> None:
        """Computes the figures of every open run at each scrape."""
        self.registry.register(_RunCollector(figures))


class _RunCollector(Collector):
    def __init__(self, figures: Callable[[], Iterable[RunFigures]]) -> None:
        self._figures = figures

    def describe(self) -> Iterable[Metric]:
        return ()

    def collect(self) -> Iterator[Metric]:
        runs = list(self._figures())
        yield from _run_families(runs)
        yield from _domain_families(runs)


def _run_families(runs: list[RunFigures]) -> Iterator[Metric]:
    gauges: tuple[tuple[str, str, Callable[[RunFigures], float]], ...] = (
        ("headrace_seal_step", "First step that is not sealed.", lambda run: run.seal),
        ("headrace_confirmed_step", "Steps that the trainer has taken.", lambda run: run.confirmed),
        ("headrace_lead_steps", "Steps that the seal may be ahead of confirmed.", lambda run: run.lead),
        ("headrace_segment", "Segment of the first unsealed step.", lambda run: run.segment),
        ("headrace_slowest_rank_step", "Next step of the rank that is furthest behind.", lambda run: run.slowest_rank),
        ("headrace_open_ranks", "Ranks that hold the lease.", lambda run: run.ranks),
        (
            "headrace_generation_missing",
            "1 when a generation of the log is not open on this server.",
            lambda run: float(run.generation_missing),
        ),
        ("headrace_store_up", "1 when the control store answered the last call.", lambda run: float(run.store_up)),
    )
    for name, text, value in gauges:
        family = GaugeMetricFamily(name, text, labels=["run"])
        for run in runs:
            family.add_metric([run.name], value(run))
        yield family


def _domain_families(runs: list[RunFigures]) -> Iterator[Metric]:
    gauges: tuple[tuple[str, str, Callable[[DomainFigures], float]], ...] = (
        ("headrace_target_weight_ratio", "Target part of real tokens.", lambda domain: domain.target),
        ("headrace_served_share_ratio", "Realized part of real tokens so far.", lambda domain: domain.share),
        ("headrace_domain_epochs", "Tokens served over tokens in the domain.", lambda domain: domain.epochs),
    )
    for name, text, value in gauges:
        family = GaugeMetricFamily(name, text, labels=["run", "domain"])
        for run in runs:
            for domain in run.domains:
                family.add_metric([run.name, domain.name], value(domain))
        yield family
    served = CounterMetricFamily("headrace_served_tokens", "Real tokens in confirmed steps.", labels=["run", "domain"])
    for run in runs:
        for domain in run.domains:
            served.add_metric([run.name, domain.name], domain.tokens)
    yield served
