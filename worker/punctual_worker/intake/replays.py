"""Rejections that are there already, so that a request taken in twice is rejected once.

A query that ended before its batch did begins that batch again. The dispatcher drops actions that
come twice; rejections nobody would drop. So before a query starts, the rejections topic is read
from where it stood before that batch, and the requests found in it are left out.

A set and not a highest offset: the rejections of one requests partition go to several partitions,
each of which may have been written further than the other.

Boundaries: it sees what is written by the time it looks, so nothing of the earlier query may still
be on its way (`clients.wait_until_sent`; a cluster's executors are beyond its sight). Requests that
are too many to remember (`offset_sets`) are logged.
"""

import logging
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from punctual_worker.contract import headers as names
from punctual_worker.intake.offset_sets import Offsets
from punctual_worker.intake.offsets import Partition, Place
from punctual_worker.kafka_clients import librdkafka_config
from punctual_worker.settings import Settings

_AT_ONCE: Final = 10_000
_SILENCE_SECONDS: Final = 20.0
_log = logging.getLogger(__name__)


def rejected_since(settings: Settings, place: Place) -> dict[Partition, Offsets]:
    """The requests at or after a place that have been rejected, by partition."""
    found = {partition: Offsets(first) for partition, first in place.requests.items()}
    config: dict[str, Any] = librdkafka_config(
        settings,
        group_id=f"{settings.app_id}-intake-rejections",
        enable_auto_commit=False,
        enable_partition_eof=True,
        # A transaction of the dispatcher that is still open must not hide what stands after it.
        isolation_level="read_uncommitted",
        fetch_wait_max_ms=10,
    )
    consumer = Consumer({"log_level": 2, **config})
    topic = settings.topics.rejections
    reader = _Reader(found)
    try:
        consumer.assign([TopicPartition(topic, n, at) for n, at in place.rejections.items()])
        left = set(place.rejections)
        while left:
            messages = consumer.consume(_AT_ONCE, 0.1) or consumer.consume(1, _SILENCE_SECONDS)
            if not messages:
                raise KafkaException(KafkaError(KafkaError.REQUEST_TIMED_OUT, "no rejections"))
            left -= {number for message in messages if (number := reader.take(message)) is not None}
    finally:
        consumer.close()
    if reader.too_far:
        _log.error(
            "%d requests were rejected so long after the last batch ended that they are not "
            "remembered: they may be rejected a second time",
            reader.too_far,
        )
    return found


class _Reader:
    """Picks the coordinates out of rejections."""

    def __init__(self, found: dict[Partition, Offsets]) -> None:
        self._found = found
        self.too_far = 0

    def take(self, message: Message) -> int | None:
        """Look at it; the number of the partition whose end it tells."""
        error = message.error()
        if error is not None:
            if error.code() != KafkaError._PARTITION_EOF:  # noqa: SLF001 its name
                raise KafkaException(error)
            return message.partition()
        source = _text(dict(message.headers() or []).get(names.SOURCE))
        # The dispatcher's rejections are of requests that intake accepts: no harm in having them.
        topic, number, offset = source.rsplit("/", 2) if source.count("/") == 2 else ("", "", "")
        if number.isdecimal() and offset.isdecimal():
            offsets = self._found.get(Partition(topic, int(number)))
            self.too_far += offsets is not None and not offsets.add(int(offset))
        return None


def _text(value: bytes | str | None) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value or ""
