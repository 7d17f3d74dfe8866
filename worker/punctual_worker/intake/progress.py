"""What intake tells about itself: group offsets after each batch, counters, lag.

Spark reports a batch when it ends, and a real-time batch lasts minutes. Nothing finer can be had
from it, so until then:
- the group's offsets stay where the last batch ended, and a restart reads again from there; the
  dispatcher drops the actions it has seen, `replays` the rejections that are there
- `punctual_requests_total` moves at the end of each batch
- `punctual_rejections_total` is live: rejections are few, so the topic itself is counted
- `punctual_intake_lag_records` is live where Spark runs in this process (the Kafka clients in its
  JVM know how far they have read); on a cluster it is what was behind when the last batch ended
"""

import json
import logging
import threading
from collections.abc import Mapping
from typing import Any, Final

from confluent_kafka import OFFSET_END, Consumer, KafkaException, TopicPartition
from prometheus_client import CollectorRegistry, Counter, Gauge
from pyspark.sql.streaming.query import StreamingQuery

from punctual_worker.contract import headers as names
from punctual_worker.contract.actions import Verb
from punctual_worker.contract.codes import Code
from punctual_worker.intake.offset_sets import Offsets
from punctual_worker.intake.offsets import GroupOffsets, Partition, Place
from punctual_worker.intake.pipeline import OBSERVED
from punctual_worker.kafka_clients import librdkafka_config
from punctual_worker.settings import Settings

_ACTIONS: Final = {verb: verb.name.lower() for verb in Verb}
_DISPATCHERS_CODES: Final = frozenset(
    {Code.REQUEST_ID_IN_USE, Code.UNKNOWN_DESTINATION, Code.DELIVERY_FAILED, Code.EXPIRED}
)
_log = logging.getLogger(__name__)


class IntakeMetrics:
    """The numbers on `/metrics`."""

    def __init__(self, registry: CollectorRegistry) -> None:
        """Every label value is there from the start, at 0."""
        self.requests = Counter(
            "punctual_requests", "Requests accepted", ["action"], registry=registry
        )
        self.rejections = Counter(
            "punctual_rejections", "Requests rejected", ["code"], registry=registry
        )
        self.lag = Gauge(
            "punctual_intake_lag_records",
            "Requests not yet taken in",
            ["partition"],
            registry=registry,
        )
        for action in _ACTIONS.values():
            self.requests.labels(action)
        for code in set(Code) - _DISPATCHERS_CODES:
            self.rejections.labels(code.value)


class BatchProgress:
    """Follows one query's batches: commits what they took in, and counts it."""

    def __init__(
        self,
        query: StreamingQuery,
        offsets: GroupOffsets,
        metrics: IntakeMetrics,
        *,
        place: Place,
        already: Mapping[Partition, Offsets],
    ) -> None:
        """A query that began at `place`; from there on, `already` has been rejected."""
        self._query = query
        self._offsets = offsets
        self._metrics = metrics
        self._rejections = place.rejections
        self._again_until = {partition: rejected.end for partition, rejected in already.items()}
        self._last_batch = -1
        self.taken_in = dict(place.requests)
        """Offsets up to which batches have ended, as far as that is known."""

    def update(self) -> bool:
        """Take note of the batches that have ended since; whether there was one."""
        fresh = [p for p in self._query.recentProgress if p["batchId"] > self._last_batch]
        for progress in fresh:
            self._last_batch = progress["batchId"]
            self._count(progress)
            self.taken_in.update(_end_offsets(progress))
        if fresh:
            # Not the ends of now: the next batch may have rejected something already.
            self._offsets.commit(Place(self.taken_in, self._rejections))
            # Nor later ones than an earlier query's, as long as that one had been further.
            if all(self.taken_in.get(one, 0) >= end for one, end in self._again_until.items()):
                self._rejections = self._offsets.rejection_ends()
        return bool(fresh)

    def _count(self, progress: Any) -> None:
        counts = (progress["observedMetrics"] or {}).get(OBSERVED)
        if counts is not None:
            for verb, action in _ACTIONS.items():
                self._metrics.requests.labels(action).inc(counts[verb.value] or 0)


def _end_offsets(progress: Any) -> dict[Partition, int]:
    ends: dict[Partition, int] = {}
    for source in progress["sources"]:
        end = source["endOffset"]
        by_topic = json.loads(end) if isinstance(end, str) else end
        for topic, by_partition in (by_topic or {}).items():
            ends.update({Partition(topic, int(n)): int(at) for n, at in by_partition.items()})
    return ends


class RejectionCounter:
    """Counts intake's rejections by code as they appear in their topic."""

    def __init__(self, settings: Settings, metrics: IntakeMetrics, *, partitions: int) -> None:
        """Counts from now on, once started."""
        self._metrics = metrics
        self._stop = threading.Event()
        config: dict[str, Any] = librdkafka_config(
            settings,
            group_id=f"{settings.app_id}-intake-rejections",
            enable_auto_commit=False,
            isolation_level="read_committed",
            auto_offset_reset="latest",
        )
        self._consumer = Consumer({"log_level": 2, **config})
        topic = settings.topics.rejections
        self._consumer.assign([TopicPartition(topic, n, OFFSET_END) for n in range(partitions)])
        self._thread = threading.Thread(target=self._run, name="rejections", daemon=True)

    def start(self) -> None:
        """Begin to count."""
        self._thread.start()

    def stop(self) -> None:
        """Count no more."""
        self._stop.set()
        self._thread.join(5)

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                messages = self._consumer.consume(500, 0.5)
            except KafkaException as error:
                _log.warning("rejections cannot be counted: %s", error)
                self._stop.wait(1)
                continue
            for message in messages:
                if message.error() is None:
                    self._count(dict(message.headers() or []).get(names.ERROR_CODE))
        self._consumer.close()

    def _count(self, codes: bytes | str | None) -> None:
        text = codes.decode("utf-8", "replace") if isinstance(codes, bytes) else codes or ""
        for code in text.split(","):
            if code in set(Code) - _DISPATCHERS_CODES:
                self._metrics.rejections.labels(code).inc()
