"""Where everything stands when a job begins: ends of topics, places of the consumer groups.

The order of asking matters. What a group says is done has its records before the ends that are
asked for later, so nothing that is done can be missing from what is read.
"""

import logging
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from confluent_kafka import Consumer, IsolationLevel, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from punctual_worker.dispatch import checkpoint as checkpoints
from punctual_worker.dispatch.checkpoint import Checkpoint
from punctual_worker.errors import PunctualError
from punctual_worker.kafka_clients import librdkafka_config
from punctual_worker.settings import Settings

_ASK_SECONDS: Final = 15
_OPEN_TRANSACTION_SECONDS: Final = 30
_SETTLE_SECONDS: Final = 1.0
"""A rejection may be on its way while actions of later requests are there already."""
_log = logging.getLogger(__name__)


class OffsetsError(PunctualError):
    """Kafka could not say how far things are."""


class Span(NamedTuple):
    """Offsets of one partition: from `start` to before `end`."""

    start: int
    end: int


Spans = Mapping[int, Span]


@dataclass(frozen=True)
class Progress:
    """How far the app's parts are, and what was asked of them by then."""

    requests: Spans
    taken_in: Mapping[int, int]
    """Request partition -> offset before which intake has done everything."""
    checkpoints: Mapping[int, Checkpoint]
    at_ms: int


class Offsets:
    """Asks Kafka; never a member of any group, so nothing is rebalanced."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._config: dict[str, Any] = {"log_level": 2, **librdkafka_config(settings)}
        self._admin = AdminClient(self._config)

    def progress(self) -> Progress:
        """Requests first: what is asked for later than them is not this job's."""
        names = self._settings.topics
        requests = self.spans([names.requests])[names.requests]
        taken_in = {
            place.partition: place.offset
            for place in self._committed("intake", names.requests)
            if place.offset >= 0
        }
        found = {
            place.partition: checkpoints.decode(place.metadata)
            for place in self._committed("dispatcher", names.actions)
            if place.offset >= 0 and place.metadata
        }
        time.sleep(_SETTLE_SECONDS)
        return Progress(requests, taken_in, found, time.time_ns() // 1_000_000)

    def existing(self, topics: Iterable[str]) -> list[str]:
        """Those that exist; a listing of all creates none by accident."""
        listed = self._partitions()
        return sorted(topic for topic in set(topics) if topic in listed)

    def spans(self, topics: Iterable[str]) -> dict[str, dict[int, Span]]:
        """What there is to read, transactions open at the moment awaited."""
        listed = self._partitions()
        places = [TopicPartition(t, n) for t in topics for n in range(listed.get(t, 0))]
        starts = self._ask(places, OffsetSpec.earliest(), committed=False)  # type: ignore[no-untyped-call]
        wanted = self._ask(places, OffsetSpec.latest(), committed=False)  # type: ignore[no-untyped-call]
        deadline = time.monotonic() + _OPEN_TRANSACTION_SECONDS
        while True:
            ends = self._ask(places, OffsetSpec.latest(), committed=True)  # type: ignore[no-untyped-call]
            hidden = {place for place, end in ends.items() if end < wanted[place]}
            if not hidden or time.monotonic() > deadline:
                break
            time.sleep(0.1)
        for topic, number in sorted(hidden):
            _log.warning(
                "%s partition %d: an open transaction hides what is beyond offset %d",
                *(topic, number, ends[topic, number]),
            )
        spans: dict[str, dict[int, Span]] = {}
        for (topic, number), end in ends.items():
            start = min(starts[topic, number], end)
            spans.setdefault(topic, {})[number] = Span(start, min(end, wanted[topic, number]))
        return spans

    def _ask(
        self, places: list[TopicPartition], spec: OffsetSpec, *, committed: bool
    ) -> dict[tuple[str, int], int]:
        isolation = IsolationLevel.READ_COMMITTED if committed else IsolationLevel.READ_UNCOMMITTED
        if not places:
            return {}
        try:
            answers = self._admin.list_offsets(
                dict.fromkeys(places, spec), isolation_level=isolation, request_timeout=_ASK_SECONDS
            )
            return {
                (place.topic, place.partition): int(answer.result(_ASK_SECONDS).offset)
                for place, answer in answers.items()
            }
        except (KafkaException, TimeoutError) as error:
            raise OffsetsError(f"Kafka does not tell the ends of topics: {error}.") from error

    def _partitions(self) -> dict[str, int]:
        try:
            listed = self._admin.list_topics(timeout=_ASK_SECONDS).topics
        except KafkaException as error:
            raise OffsetsError(f"Kafka cannot be reached: {error}.") from error
        return {name: len(topic.partitions) for name, topic in listed.items()}

    def _committed(self, part: str, topic: str) -> list[TopicPartition]:
        consumer = Consumer(
            {
                **self._config,
                "group.id": f"{self._settings.app_id}-{part}",
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
            }
        )
        places = [TopicPartition(topic, n) for n in range(self._partitions().get(topic, 0))]
        try:
            return list(consumer.committed(places, timeout=_ASK_SECONDS))
        except KafkaException as error:
            raise OffsetsError(f"Kafka does not tell how far the {part} is: {error}.") from error
        finally:
            consumer.close()
