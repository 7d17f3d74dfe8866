"""The consumer group of dispatchers: which partitions are ours, and what comes in on them.

Everything runs on the thread that polls. The group's metadata, which fences an owner that lost its
partitions without noticing, is taken when partitions are assigned and never later: asked for after
a long stop it could already be a newer generation's.
"""

import logging
import time
from typing import Any, Final

from confluent_kafka import (
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    TopicPartition,
)

from punctual_worker.dispatch.entries import LogRecord
from punctual_worker.dispatch.writing import BrokenError
from punctual_worker.logs import kafka_logger

_QUEUED_KBYTES: Final = 16_384
_LONGEST_TURN_MS: Final = 15_000
"""Who takes longer from poll to poll is given up. Also how long the group waits for members to join
again, dead ones among them that a restarted broker has not noticed: so not much longer than a
transaction may take."""
_log = logging.getLogger(__name__)


class Group:
    """Membership of the group, from `__init__` to `close`."""

    def __init__(
        self,
        config: dict[str, Any],
        *,
        topic: str,
        group_id: str,
        name: str,
        session_timeout_ms: int,
    ) -> None:
        """Joins, under a name by which others see whether we are still there."""
        self._topic = topic
        self._trusted_seconds = session_timeout_ms / 2000
        self.metadata: Any = None
        self.gained: list[int] = []
        self.lost: list[int] = []
        self.joined = False
        self.cast_out = False
        """Whether the group went on without us."""
        self.consumer = Consumer(
            {
                **config,
                "group.id": group_id,
                "client.id": name,
                "partition.assignment.strategy": "cooperative-sticky",
                "session.timeout.ms": session_timeout_ms,
                "heartbeat.interval.ms": min(session_timeout_ms // 6, 3_000),
                "max.poll.interval.ms": max(_LONGEST_TURN_MS, session_timeout_ms),
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "enable.auto.offset.store": False,
                "auto.offset.reset": "earliest",
                "queued.max.messages.kbytes": _QUEUED_KBYTES,
                "fetch.error.backoff.ms": 50,
            },
            logger=kafka_logger(),
        )
        self.consumer.subscribe(
            [topic], on_assign=self._on_assign, on_revoke=self._on_revoke, on_lost=self._on_lost
        )

    def poll(self, seconds: float, limit: int) -> dict[int, list[LogRecord]]:
        """Wait for a record, then take what else is there; by partition."""
        began = time.monotonic()
        first = self.consumer.poll(seconds)
        if self.gained and time.monotonic() - began - seconds > self._trusted_seconds:
            raise BrokenError("stopped for too long while partitions were assigned")
        if first is None:
            return {}
        batches: dict[int, list[LogRecord]] = {}
        for message in (first, *self.consumer.consume(limit - 1, 0)):
            error = message.error()
            if error is not None:
                self._complain(error)
                continue
            batches.setdefault(message.partition() or 0, []).append(_live_record(message))
        return batches

    def begin(self, partition: int, offset: int) -> None:
        """Read a partition from here on."""
        place = TopicPartition(self._topic, partition, offset)
        self.consumer.seek(place)
        self.consumer.resume([place])

    def pause(self, partition: int) -> None:
        """Leave a partition's records where they are for now."""
        self.consumer.pause([TopicPartition(self._topic, partition)])

    def close(self) -> None:
        """Leave the group, so that others take over at once."""
        self.consumer.close()

    def _on_assign(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        # Any offset will do until `begin`, but not a symbolic one: the client would ask the broker
        # for it, again and again while that is starting, and an answer that comes after `begin`
        # has won over the place given there: a backlog was passed over unread (chaos, seed 7).
        places = [TopicPartition(self._topic, tp.partition, 0) for tp in partitions]
        consumer.incremental_assign(places)
        if places:
            consumer.pause(places)  # until the table is there
        self.metadata = consumer.consumer_group_metadata()
        self.gained += [tp.partition for tp in partitions]
        self.joined = True

    def _on_revoke(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self.lost += [tp.partition for tp in partitions]
        consumer.incremental_unassign(partitions)

    def _on_lost(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        _log.warning("partitions taken away: %s", sorted(tp.partition for tp in partitions))
        self.joined = False
        self.cast_out = True
        self._on_revoke(consumer, partitions)

    def _complain(self, error: KafkaError) -> None:
        if error.fatal():
            raise BrokenError(str(error))
        if error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
            raise KafkaException(error)
        _log.warning("reading the actions topic: %s", error)


def _live_record(message: Message) -> LogRecord:
    """The same for one that is read while serving: tombstones are our own there, so that nobody
    asks for their headers."""
    if message.value() is None:
        key: Any = message.key()
        return LogRecord(message.offset() or 0, 0, key or b"", None, ())
    return log_record(message)


def log_record(message: Message) -> LogRecord:
    """What the pure code sees of a Kafka message."""
    key: Any = message.key()
    value: Any = message.value()
    headers: Any = message.headers()
    return LogRecord(
        message.offset() or 0, message.timestamp()[1], key or b"", value, headers or ()
    )
