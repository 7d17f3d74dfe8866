"""The metrics of several parts under one address, told apart by the label `part`."""

from collections.abc import Iterable, Sequence

from prometheus_client.metrics_core import Metric
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector

from punctual_worker.local.parts import Part


class MergedMetrics(Collector):
    """Asks each part anew at every scrape."""

    def __init__(self, parts: Sequence[Part]) -> None:
        """Parts may come and go while they are restarted."""
        self._parts = parts

    def describe(self) -> Iterable[Metric]:
        """Nothing is known before the first scrape."""
        return []

    def collect(self) -> Iterable[Metric]:
        """All families, those with one name put together."""
        merged: dict[str, Metric] = {}
        for part in self._parts:
            for family in text_string_to_metric_families(part.metrics()):
                known = merged.setdefault(
                    family.name, Metric(family.name, family.documentation, family.type)
                )
                for sample in family.samples:
                    labels = {**sample.labels, "part": part.name}
                    known.samples.append(sample._replace(labels=labels))
        return merged.values()
