"""The records of a turn, as Kafka's client sends them, and what goes wrong with them.

Knows a producer and nothing of transactions. Its errors say who is to blame: a destination, a
message, or the broker.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

from confluent_kafka import KafkaError, Message, Producer, TopicPartition

from punctual_worker.contract import actions
from punctual_worker.contract.topics import TopicNames
from punctual_worker.dispatch import blame, entries
from punctual_worker.dispatch.deliveries import Delivery, destination_of
from punctual_worker.dispatch.destinations import Fault
from punctual_worker.dispatch.outcome import Outcome
from punctual_worker.dispatch.restoring import tombstone_headers
from punctual_worker.logs import kafka_logger

_PURGED: Final = {KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT}  # noqa: SLF001

PartitionCount = Callable[[str], int | None]
"""How many partitions a destination has, where that is known."""


class DestinationError(Exception):
    """Destinations or messages refused: nothing was written; try again without them."""

    def __init__(self, faults: list[Fault], suspects: set[str]) -> None:
        super().__init__("; ".join(fault.reason for fault in faults) or f"one of {suspects}")
        self.faults = faults
        self.suspects = suspects


class InterruptedWriteError(Exception):
    """Broker trouble: nothing was written; try again."""


class Work(NamedTuple):
    """One partition's share of a turn."""

    partition: int
    outcome: Outcome
    record_checkpoint: bool
    """Whether to write the checkpoint into the log too: whenever more than the position moved. A
    position that only passed over our own records would otherwise move itself on for ever."""


class Records:
    """The records of a turn, produced one after the other. Collects what goes wrong."""

    def __init__(
        self,
        config: dict[str, Any],
        *,
        topics: TopicNames,
        rejections_compacted: bool,
        count_of: PartitionCount,
    ) -> None:
        self._errors: list[tuple[KafkaError, Message]] = []
        self._topics = topics
        self._count_of = count_of
        self._rejections_compacted = rejections_compacted
        self.producer = Producer(
            {
                "partitioner": "murmur2_random",
                "linger.ms": 0,
                "acks": "all",
                "enable.idempotence": True,
                "message.max.bytes": 1_000_000_000,  # the topic's own limit decides
                "queue.buffering.max.messages": 1_000_000,
                "queue.buffering.max.kbytes": 1_048_576,
                "delivery.report.only.error": True,
                "topic.metadata.propagation.max.ms": 1_000,
                # A transaction that follows another at once is told to come back: with the
                # default of 100 ms that is what it would take; with 1 ms it takes 4 in all. And if
                # the broker takes longer to finish the one before (35 to 300 ms, if it is our first
                # in a partition), with pauses that double we would come late.
                "retry.backoff.ms": 1,
                "retry.backoff.max.ms": 5,
                **config,
                "on_delivery": self._on_error,
            },
            logger=kafka_logger(),
        )

    def _on_error(self, error: KafkaError | None, message: Message) -> None:
        if error is not None and error.code() not in _PURGED:
            self._errors.append((error, message))

    def produce(self, works: Sequence[Work]) -> None:
        """Hand everything but the checkpoints to the client; it is sent while we go on."""
        self._errors.clear()
        for partition, outcome, _ in works:
            self._deliver(outcome.deliveries)
            for rejection in outcome.rejections:
                key = rejection.entry.user_key
                if key is None and self._rejections_compacted:
                    key = entries.base_key(rejection.entry.key)  # brokers refuse null keys there
                self._send(
                    self._topics.rejections, key, rejection.entry.value, rejection.headers, -1
                )
            for entry in outcome.rearmed:
                value, headers = entries.action_record(entry)
                self._send(self._topics.actions, entry.key, value, headers, partition)
            for entry in outcome.tombstones:
                self.bury(partition, entry.order)
            for event in outcome.events:
                self._send(self._topics.history, event.key, event.value, [], -1)

    def _deliver(self, deliveries: Sequence[Delivery]) -> None:
        """The one place where every microsecond counts: a burst is this loop."""
        produce = self.producer.produce
        for destination, value, key, headers, _, way, _, _ in deliveries:
            number = -1 if way is None else self._partition(destination, way)
            try:
                # by place, because the client looks names up one by one
                produce(destination, value, key, number, None, None, 0, headers)
            except BufferError:
                self._send(destination, key, value, headers, number)

    def _partition(self, destination: str, way: int | tuple[int | None, int | None]) -> int:
        """Where a message goes that asks for something else than the partition of its key."""
        partition, place = way if isinstance(way, tuple) else (None, way)
        if place is not None and (count := self._count_of(destination)):
            return place % count
        return -1 if partition is None else partition

    def record_checkpoints(self, works: Sequence[Work], offsets: Sequence[TopicPartition]) -> None:
        """Hand over the checkpoints for the log: what a take-over trusts most."""
        for (partition, _, record_checkpoint), offset in zip(works, offsets, strict=True):
            if record_checkpoint and offset.metadata is not None:
                text = offset.metadata.encode()
                self._send(self._topics.actions, actions.CHECKPOINT_KEY, text, [], partition)

    def bury(self, partition: int, order: bytes) -> None:
        """The tombstone of an action."""
        key = actions.order_action_key(order)
        self._send(self._topics.actions, key, None, tombstone_headers(order), partition)

    def _send(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        headers: actions.Headers | dict[str, bytes | None],
        partition: int,
    ) -> None:
        while True:
            try:
                self.producer.produce(topic, value, key, partition, headers=headers)  # type: ignore[arg-type] # list is invariant
                return
            except BufferError:
                self.producer.poll(0.05)

    def failure(self, works: Sequence[Work], cause: KafkaError) -> Exception:
        """Who is to blame for a failed turn: a destination, a message, or the broker."""
        self.producer.poll(0)
        blamed = [
            (error, message)
            for error, message in self._errors
            if message.topic() not in self._topics.all
        ]
        faults = [
            blame.fault(error, message, _deliveries(works))
            for error, message in blamed
            if error.code() in blame.CLEAR
        ]
        if faults:
            return DestinationError(faults, set())
        if {cause.code(), *(error.code() for error, _ in blamed)} & blame.UNCLEAR:
            topics = set(map(destination_of, _deliveries(works)))
            if len(topics) == 1:
                topic = topics.pop()
                return DestinationError([blame.topic_fault(topic, cause)], set())
            if topics:
                return DestinationError([], topics)
        told = "; ".join(f"{message.topic()}: {error}" for error, message in self._errors[:3])
        return InterruptedWriteError(f"{cause}{'; ' if told else ''}{told}")

    @property
    def first_error(self) -> KafkaError | None:
        """What went wrong first since `produce` began."""
        return self._errors[0][0] if self._errors else None

    def forget_errors(self) -> None:
        """They have been dealt with."""
        self._errors.clear()


def _deliveries(works: Sequence[Work]) -> list[Delivery]:
    return [delivery for work in works for delivery in work.outcome.deliveries]
