"""What the dispatcher tells Prometheus."""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Mapping
from math import inf
from typing import Final

from prometheus_client import CollectorRegistry, Gauge, Histogram
from prometheus_client import Counter as PrometheusCounter
from prometheus_client.core import HistogramMetricFamily
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

_LATENESS_BUCKETS: Final = (
    0.001, 0.002, 0.003, 0.005, 0.0075, 0.01, 0.015, 0.02, 0.03, 0.05, 0.075,
    0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 3600,
)  # fmt: skip
STATES: Final = ("restoring", "active", "clock-behind", "checkpoint-lost")


class LatenessHistogram(Collector):
    """`punctual_lateness_seconds`, filled by the turn: the library's own histogram takes longer
    for one message than sending it does."""

    def __init__(self) -> None:
        self._counts = [0] * (len(_LATENESS_BUCKETS) + 1)
        self._bounds_ms = [bound * 1000 for bound in _LATENESS_BUCKETS]
        self._sum_ms = 0

    def observe(self, lateness_ms: Mapping[int, int]) -> None:
        """Add so many of each; whoever is early by its own clock counts as in time."""
        for late_ms, number in lateness_ms.items():
            late_ms = max(late_ms, 0)
            self._counts[bisect_left(self._bounds_ms, late_ms)] += number
            self._sum_ms += late_ms * number

    def collect(self) -> Iterable[HistogramMetricFamily]:
        """For Prometheus."""
        total, buckets = 0, []
        for bound, number in zip((*_LATENESS_BUCKETS, inf), self._counts, strict=True):
            total += number
            buckets.append((floatToGoString(bound), total))  # type: ignore[no-untyped-call]
        yield HistogramMetricFamily(
            "punctual_lateness_seconds",
            "From the time asked for to the commit of the delivery",
            buckets=buckets,
            sum_value=self._sum_ms / 1000,
        )


class DispatchMetrics:
    """One object, so that a test can have its own registry."""

    def __init__(self, registry: CollectorRegistry) -> None:
        def counter(name: str, text: str, *labels: str) -> PrometheusCounter:
            return PrometheusCounter(f"punctual_{name}", text, labels, registry=registry)

        def gauge(name: str, text: str, *labels: str) -> Gauge:
            return Gauge(f"punctual_{name}", text, labels, registry=registry)

        self._actions = counter("actions", "Actions taken in from the log", "action")
        self._replays = counter("replays", "Actions that intake sent again")
        self._foreign = counter("foreign_records", "Records on the actions topic that are not ours")
        self._rejections = counter("rejections", "Requests rejected", "code")
        self._delivered = counter("delivered", "Messages delivered")
        self._replaced = counter("replaced", "Schedules replaced")
        self._replace_noop = counter("replace_noop", "REPLACE that asked for what stood already")
        self._add_noop = counter("add_noop", "ADD that asked for what stood already")
        self._cancelled = counter("cancelled", "Schedules cancelled")
        self._cancel_missed = counter("cancel_missed", "CANCEL of an id that was not pending")
        self._paused = counter("paused", "Schedules paused")
        self._pause_missed = counter("pause_missed", "PAUSE of an id that was not pending")
        self._resumed = counter("resumed", "Schedules resumed")
        self._resume_missed = counter("resume_missed", "RESUME of an id that was not pending")
        self._skipped = counter("skipped", "Fires of recurring schedules left out by their rule")
        self._failures = counter("delivery_failures", "Deliveries put off or given up", "reason")
        self.turns_failed = counter("turns_failed", "Transactions that had to be tried again")
        self._lateness = LatenessHistogram()
        registry.register(self._lateness)
        self.pending = gauge("pending", "Schedules waiting", "partition")
        self.overdue = gauge("overdue", "Schedules more than a second late", "partition")
        self.next_due = gauge("next_due_timestamp_seconds", "When the next one is due; 0 for none")
        self._state = gauge("dispatcher_state", "1 for the state it is in", "partition", "state")
        self.takeover_seconds = Histogram(
            "punctual_takeover_seconds",
            "From assignment to service of a partition",
            buckets=(0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1800),
            registry=registry,
        )

    def count(self, counts: Counter[tuple[str, str]]) -> None:
        """Add what a committed turn has decided."""
        plain = {
            "delivered": self._delivered,
            "replaced": self._replaced,
            "replace_noop": self._replace_noop,
            "add_noop": self._add_noop,
            "cancelled": self._cancelled,
            "cancel_missed": self._cancel_missed,
            "paused": self._paused,
            "pause_missed": self._pause_missed,
            "resumed": self._resumed,
            "resume_missed": self._resume_missed,
            "skipped": self._skipped,
            "replay": self._replays,
            "foreign": self._foreign,
        }
        labelled = {
            "request": self._actions,
            "rejection": self._rejections,
            "delivery_failure": self._failures,
        }
        for (what, label), number in counts.items():
            if what in plain:
                plain[what].inc(number)
            elif what in labelled:
                labelled[what].labels(label).inc(number)

    def observe_lateness(self, lateness_ms: Mapping[int, int]) -> None:
        """Deliveries of a committed turn by their lateness."""
        self._lateness.observe(lateness_ms)

    def enter(self, partition: int, state: str | None) -> None:
        """Say what a partition is doing; None when it is not ours (any more)."""
        for known in STATES:
            if state is None:
                self._state.remove(partition, known)
            else:
                self._state.labels(partition, known).set(known == state)
        if state is None:
            self.pending.remove(partition)
            self.overdue.remove(partition)
