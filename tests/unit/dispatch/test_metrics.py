"""The lateness histogram is our own: it must say what the library's would."""

from collections import Counter

from prometheus_client import CollectorRegistry, Histogram
from prometheus_client.samples import Sample
from punctual_worker.dispatch.metrics import _LATENESS_BUCKETS, DispatchMetrics


def _samples(registry: CollectorRegistry) -> dict[tuple[str, str], float]:
    def place(sample: Sample) -> tuple[str, str]:
        return sample.name, sample.labels.get("le", "")

    return {
        place(sample): round(sample.value, 6)
        for family in registry.collect()
        for sample in family.samples
        if sample.name.startswith("punctual_lateness") and not sample.name.endswith("_created")
    }


def test_lateness_is_counted_as_by_the_librarys_own_histogram() -> None:
    ours, theirs = CollectorRegistry(), CollectorRegistry()
    metrics = DispatchMetrics(ours)
    histogram = Histogram(
        "punctual_lateness_seconds", "", buckets=_LATENESS_BUCKETS, registry=theirs
    )
    for turn in ([0, 1, 2, 5, 5, 5], [], [7, 8, 10, 11, 4_000_000], [-3]):
        metrics.observe_lateness(Counter(turn))
        for late_ms in turn:
            histogram.observe(max(late_ms, 0) / 1000)
    assert _samples(ours) == _samples(theirs)
    assert _samples(ours)["punctual_lateness_seconds_count", ""] == 12
