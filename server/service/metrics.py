"""What one server process counts, for Prometheus: messages, bytes, times, refusals, and what trainers tell of waiting.

Counters start from 0 with the process. Figures of the stream, which every server gives alike, are in `run_metrics`.
Labels are names of runs, domains, methods and classes of errors, never a step, rank, client or file: the number of
series is bounded, whoever comes and goes.
"""

from __future__ import annotations

from collections import OrderedDict

from prometheus_client import CollectorRegistry, Counter, Histogram, Info, disable_created_metrics

_BUCKETS = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_MOST_RANKS = 65_536
_LOSS_STEPS = 8


class Metrics:
    """The counters of one server, on a registry of its own."""

    def __init__(self, version: str) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self.registry = CollectorRegistry()
        self._of_run: dict[str, tuple[Counter, Counter, Counter]] = {}
        self.losses = Losses()
        self._told: dict[bytes, tuple[int, int]] = {}
        self._of_method: dict[tuple[str, str], tuple[Counter, Histogram]] = {}
        Info("headrace_build", "Version of this server.", registry=self.registry).info({"version": version})
        self._batches = self._counter("headrace_batches", "GetBatch answers with rows, repeats included.", "run")
        self._bytes = self._counter("headrace_batch_bytes", "Bytes of those answers.", "run")
        shared = "Bytes of ids, of those, that went through memory shared with the client."
        self._shared = self._counter("headrace_shared_bytes", shared, "run")
        self._shares = self._counter(
            "headrace_shares",
            "Streams of clients on this host that wanted shared memory, by result: given; left, when the client did "
            "not come for it; full, when share_bytes was reached; failed.",
            "result",
        )
        self._build = self._histogram("headrace_batch_build_seconds", "Time to gather rows.")
        self._serve = self._histogram("headrace_batch_serve_seconds", "Time from request to encoded answer.")
        self._mismatches = self._counter(
            "headrace_row_digest_mismatches", "Rows that a client received with another digest.", "run"
        )
        waited = "Time that ranks have waited for batches, summed over ranks, as they tell."
        self._waited = self._counter("headrace_trainer_wait_seconds", waited, "run")
        self._stalls = self._counter("headrace_trainer_stalls", "Waits that a rank found too long, as it tells.", "run")
        self._losses = self._counter("headrace_loss_reports", "Loss values by result.", "run", "reason")
        self._updates = self._counter(
            "headrace_weight_updates", "Changes asked for, by result.", "run", "result", "reason"
        )
        self._handled = self._counter("grpc_server_handled", "Calls by method and status.", "method", "code")
        self._handling = self._histogram("grpc_server_handling_seconds", "Time of calls by method.", "method")

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(name, text, labels, registry=self.registry)

    def _histogram(self, name: str, text: str, *labels: str) -> Histogram:
        return Histogram(name, text, labels, buckets=_BUCKETS, registry=self.registry)

    def served(self, run: str, size: int, seconds: float, shared: int = 0) -> None:
        """A batch of `size` bytes was made `seconds` after its request began, so many of them in `shared` memory."""
        if run not in self._of_run:
            self._of_run[run] = (self._batches.labels(run), self._bytes.labels(run), self._shared.labels(run))
        batches, bytes_, shared_bytes = self._of_run[run]
        batches.inc()
        bytes_.inc(size)
        if shared:
            shared_bytes.inc(shared)
        self._serve.observe(seconds)

    def share(self, result: str) -> None:
        """What became of a client's wish for shared memory: `given`, `left`, `full` or `failed`."""
        self._shares.labels(result).inc()

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

    def waited(self, run: str, token: bytes, waited_us: int, stalls: int) -> None:
        """A rank tells what its waiting has come to since it opened the run.

        The first word of a rank that this process hears is where its counting starts.
        """
        before_us, before = self._told.get(token, (waited_us, stalls))
        if len(self._told) > _MOST_RANKS:
            self._told.clear()
        self._told[token] = (waited_us, stalls)
        self._waited.labels(run).inc(max(0, waited_us - before_us) / 1e6)
        self._stalls.labels(run).inc(max(0, stalls - before))


class Losses:
    """The mean loss of each domain over the newest steps that were reported to this server."""

    def __init__(self) -> None:
        self._sums: dict[tuple[str, str], OrderedDict[int, tuple[float, int]]] = {}

    def add(self, run: str, domain: str, step: int, loss_sum: float, tokens: int) -> None:
        """One rank's part of a step."""
        steps = self._sums.setdefault((run, domain), OrderedDict())
        old_sum, old_tokens = steps.get(step, (0.0, 0))
        steps[step] = (old_sum + loss_sum, old_tokens + tokens)
        if len(steps) > _LOSS_STEPS:
            del steps[min(steps)]

    def mean(self, run: str, domain: str) -> float | None:
        """Nats a token; None when nothing was reported."""
        steps = self._sums.get((run, domain))
        if not steps:
            return None
        tokens = sum(count for _, count in steps.values())
        return sum(total for total, _ in steps.values()) / tokens
