"""Rejections that are there already, so that a request taken in twice is rejected once.

A query that ended before its batch did begins that batch again. The dispatcher drops actions that
come twice; rejections nobody would drop. So before a query starts, the rejections topic is read
from where it stood before that batch, and the requests found in it are left out.

A set and not a highest offset: the rejections of one requests partition go to several partitions,
each of which may have been written further than the other. A bit per offset, from the first one
that is taken in again, is small however many were rejected.

Boundaries: it sees what is written by the time it looks, so nothing of the earlier query may still
be on its way (`clients.wait_until_sent`; a cluster's executors are beyond its sight). Requests more
than `MOST_BITS` after the beginning are not remembered; that is logged.
"""

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition
from pyspark.sql import Column
from pyspark.sql import functions as sf

from punctual_worker.contract import headers as names
from punctual_worker.intake.offsets import Place
from punctual_worker.kafka_clients import librdkafka_config
from punctual_worker.settings import Settings

MOST_BITS: Final = 2**25
"""Of one requests partition: 33 million requests, and 4 MB."""
_AT_ONCE: Final = 10_000
_SILENCE_SECONDS: Final = 20.0
_log = logging.getLogger(__name__)


@dataclass
class Rejected:
    """Offsets of one requests partition, none before `first`."""

    first: int
    bits: bytearray = field(default_factory=bytearray)
    end: int = 0
    """After the last one."""

    def add(self, offset: int) -> bool:
        """Remember it, unless it is before `first`; false if it is too far on for that."""
        index = offset - self.first
        self.end = max(self.end, offset + 1)
        if index < 0:
            return True
        if index >= MOST_BITS:
            return False
        if index >= 8 * len(self.bits):
            self.bits.extend(bytes(index // 8 + 1 - len(self.bits)))
        self.bits[index // 8] |= 1 << index % 8
        return True


def was_rejected(already: Mapping[int, Rejected]) -> Column | None:
    """Whether `partition` and `offset` of a record are among these; none if there are none."""
    found: Column | None = None
    for number, rejected in already.items():
        if not rejected.bits:
            continue
        index = sf.col("offset") - rejected.first
        here = (sf.col("partition") == number) & index.between(0, 8 * len(rejected.bits) - 1)
        place = sf.shiftright(index, 3).cast("int") + 1
        eight = sf.substring(sf.lit(bytes(rejected.bits)), place, sf.lit(1))
        # Hexadecimal is the way from a byte to a number.
        bit = sf.getbit(sf.conv(sf.hex(eight), 16, 10).cast("bigint"), index.bitwiseAND(7)) == 1
        found = sf.when(here, bit) if found is None else found.when(here, bit)
    return None if found is None else sf.coalesce(found.otherwise(sf.lit(False)), sf.lit(False))


def rejected_since(settings: Settings, place: Place) -> dict[int, Rejected]:
    """The requests at or after a place that have been rejected, by partition."""
    found = {number: Rejected(first) for number, first in place.requests.items()}
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
    reader = _Reader(settings.topics.requests, found)
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

    def __init__(self, requests_topic: str, found: dict[int, Rejected]) -> None:
        self._prefix = f"{requests_topic}/"
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
        if source.startswith(self._prefix):
            number, _, offset = source.removeprefix(self._prefix).partition("/")
            if number.isdecimal() and offset.isdecimal() and int(number) in self._found:
                self.too_far += not self._found[int(number)].add(int(offset))
        return None


def _text(value: bytes | str | None) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value or ""
