"""What the operator tells Prometheus about itself."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram


class OperatorMetrics:
    """One object, so that a test can have its own registry."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.reconciles = Counter(
            "punctual_operator_reconciles",
            "Reconciles by result: settled, waiting or failed",
            ["result"],
            registry=registry,
        )
        self.reconcile_seconds = Histogram(
            "punctual_operator_reconcile_seconds",
            "Duration of a reconcile",
            buckets=(0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60),
            registry=registry,
        )
        self.api_writes = Counter(
            "punctual_operator_api_writes",
            "Writes to the API server",
            ["kind", "verb"],
            registry=registry,
        )
        self.kafka_writes = Counter(
            "punctual_operator_kafka_writes",
            "Topics created, changed or deleted",
            ["verb"],
            registry=registry,
        )
        self.schedulers = Gauge(
            "punctual_operator_schedulers",
            "Schedulers by whether they are ready",
            ["ready"],
            registry=registry,
        )
        self.queued = Gauge(
            "punctual_operator_queued", "Schedulers that wait for a reconcile", registry=registry
        )
        self.leading = Gauge(
            "punctual_operator_leading", "1 for the replica that is active", registry=registry
        )
        for result in ("settled", "waiting", "failed"):
            self.reconciles.labels(result)
        for ready in ("True", "False", "Unknown"):
            self.schedulers.labels(ready)
