"""Writing a turn to Kafka: all of it in one transaction, or at least once without.

Knows producers and nothing of partitions' tables. A failed `write` has left nothing behind that a
read-committed consumer could see, unless it is `BrokenError`: then nobody knows, and the owner has
to take its partitions over again.
"""

import logging
import time
from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple, Protocol

from confluent_kafka import KafkaError, KafkaException, Message, Producer, TopicPartition

from punctual_worker.contract import actions
from punctual_worker.contract.codes import Code
from punctual_worker.contract.topics import TopicNames
from punctual_worker.dispatch import checkpoint as checkpoints
from punctual_worker.dispatch import entries
from punctual_worker.dispatch.destinations import Fault
from punctual_worker.dispatch.entries import Entry
from punctual_worker.dispatch.restoring import tombstone_headers
from punctual_worker.dispatch.timetable import Outcome

_log = logging.getLogger(__name__)

_PURGED: Final = {KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT}  # noqa: SLF001
_MESSAGE_FAULTS: Final = {
    KafkaError.MSG_SIZE_TOO_LARGE,
    KafkaError.INVALID_RECORD,
    KafkaError.INVALID_MSG,
}
_TOPIC_FAULTS: Final = {
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError._UNKNOWN_TOPIC,  # noqa: SLF001
    KafkaError._UNKNOWN_PARTITION,  # noqa: SLF001
    KafkaError.TOPIC_EXCEPTION,
    KafkaError.POLICY_VIOLATION,
    KafkaError.NOT_ENOUGH_REPLICAS,
    KafkaError.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
}
_UNCLEAR_FAULTS: Final = {
    *_TOPIC_FAULTS,
    *_MESSAGE_FAULTS,
    KafkaError._MSG_TIMED_OUT,  # noqa: SLF001
}
"""Where the report names no culprit, or names everybody: a destination is to blame only if it
was alone in the transaction."""


class DestinationError(Exception):
    """Destinations or messages refused: nothing was written; try again without them."""

    def __init__(self, faults: list[Fault], suspects: set[str]) -> None:
        super().__init__("; ".join(fault.reason for fault in faults) or f"one of {suspects}")
        self.faults = faults
        self.suspects = suspects


class InterruptedWriteError(Exception):
    """Broker trouble: nothing was written; try again."""


class BrokenError(Exception):
    """It is not known whether the turn was written: start over from the committed checkpoint."""


class Work(NamedTuple):
    """One partition's share of a turn."""

    partition: int
    outcome: Outcome
    record_checkpoint: bool


class Writer(Protocol):
    """How a turn gets into Kafka."""

    def write(self, works: Sequence[Work], group: Any) -> None:
        """Write all of it; on return it stands."""

    def close(self) -> None:
        """Let go of the connection."""


class _Records:
    """The records of a turn, produced one after the other. Collects what goes wrong."""

    def __init__(
        self, config: dict[str, Any], *, topics: TopicNames, rejections_compacted: bool
    ) -> None:
        self._errors: list[tuple[KafkaError, Message]] = []
        self._topics = topics
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
                # default of 100 ms that is what it would take; with 1 ms it takes 4 in all.
                "retry.backoff.ms": 1,
                **config,
                "on_delivery": self._on_error,
            },
            logger=_log,
        )

    def _on_error(self, error: KafkaError | None, message: Message) -> None:
        if error is not None and error.code() not in _PURGED:
            self._errors.append((error, message))

    def produce(self, works: Sequence[Work]) -> None:
        """Hand everything to the client; it is sent while we go on."""
        self._errors.clear()
        for partition, outcome, record_checkpoint in works:
            for delivery in outcome.deliveries:
                plan = delivery.entry.plan
                self._send(
                    plan.destination,
                    delivery.entry.user_key,
                    delivery.entry.value,
                    delivery.headers,
                    -1 if plan.partition is None else plan.partition,
                )
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
            if record_checkpoint:
                text = checkpoints.encode(outcome.checkpoint).encode()
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
        headers: actions.Headers,
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
            _fault(error, message, works)
            for error, message in blamed
            if error.code() in _TOPIC_FAULTS | _MESSAGE_FAULTS
        ]
        if faults:
            return DestinationError(faults, set())
        if {cause.code(), *(error.code() for error, _ in blamed)} & _UNCLEAR_FAULTS:
            topics = {
                delivery.entry.plan.destination
                for work in works
                for delivery in work.outcome.deliveries
            }
            if len(topics) == 1:
                topic = topics.pop()
                return DestinationError([Fault(topic, _code(cause), _reason(topic, cause))], set())
            if topics:
                return DestinationError([], topics)
        told = "; ".join(f"{message.topic()}: {error}" for error, message in self._errors[:3])
        return InterruptedWriteError(f"{cause}{'; ' if told else ''}{told}")

    @property
    def first_error(self) -> KafkaError | None:
        """What went wrong first since `produce` began."""
        return self._errors[0][0] if self._errors else None


class ExactlyOnceWriter:
    """A turn is one Kafka transaction, the checkpoint in it."""

    def __init__(
        self,
        config: dict[str, Any],
        *,
        topics: TopicNames,
        transactional_id: str,
        transaction_timeout_ms: int,
        rejections_compacted: bool,
    ) -> None:
        """Waits for a former owner of the transactional id to be fenced and its work aborted."""
        self._timeout = transaction_timeout_ms / 1000
        self._config = {
            "transactional.id": transactional_id,
            "transaction.timeout.ms": transaction_timeout_ms,
            "message.timeout.ms": min(5_000, transaction_timeout_ms),
            **config,
        }
        self._topics = topics
        self._rejections_compacted = rejections_compacted
        self._records = self._new_records(60)

    def write(self, works: Sequence[Work], group: Any) -> None:
        """One transaction; see the module for what a failure means."""
        producer = self._records.producer
        try:
            producer.begin_transaction()
            self._records.produce(works)
            producer.send_offsets_to_transaction(
                [_offset(self._topics.actions, work) for work in works], group, self._timeout
            )
            _until_done(producer.commit_transaction, self._timeout)
        except KafkaException as error:
            raise self._abort(works, error.args[0]) from error

    def _abort(self, works: Sequence[Work], cause: KafkaError) -> Exception:
        if cause.fatal() or not (cause.txn_requires_abort() or cause.retriable()):
            return BrokenError(str(cause))
        failed = self._records
        try:
            _until_done(failed.producer.abort_transaction, self._timeout)
        except KafkaException as error:
            if not cause.txn_requires_abort():
                return BrokenError(f"{cause}; and the transaction cannot be aborted: {error}")
            # It was not committed, that much is sure. The client cannot abort what the broker
            # never saw begin (the only partition in it was refused): a new one makes sure.
            failed.producer.purge()
            self._records = self._new_records(self._timeout)
        return failed.failure(works, cause)

    def _new_records(self, patience: float) -> _Records:
        records = _Records(
            self._config, topics=self._topics, rejections_compacted=self._rejections_compacted
        )
        _until_done(records.producer.init_transactions, patience)
        return records

    def close(self) -> None:
        """Let go of the connection; an open transaction is aborted by the broker."""
        self._records.producer.purge()
        self._records.producer.close()


class AtLeastOnceWriter:
    """Without transactions: everything is written before the checkpoint moves."""

    def __init__(
        self, config: dict[str, Any], *, topics: TopicNames, rejections_compacted: bool
    ) -> None:
        self._actions = topics.actions
        self._records = _Records(
            {"message.timeout.ms": 5_000, **config},
            topics=topics,
            rejections_compacted=rejections_compacted,
        )

    def write(self, works: Sequence[Work], group: Any) -> None:
        """Write, wait, then commit the checkpoint. `group` is the consumer itself here."""
        try:
            self._records.produce(works)
        except KafkaException as error:
            raise self._records.failure(works, error.args[0]) from error
        self._records.producer.flush()
        cause = self._records.first_error
        if cause is not None:
            raise self._records.failure(works, cause)
        try:
            group.commit(
                offsets=[_offset(self._actions, work) for work in works], asynchronous=False
            )
        except KafkaException as error:
            raise BrokenError(str(error)) from error

    def close(self) -> None:
        """Let go of the connection."""
        self._records.producer.purge()
        self._records.producer.close()


class Sweeper:
    """Writes tombstones of what has fired, outside of any transaction."""

    def __init__(self, config: dict[str, Any], *, topics: TopicNames) -> None:
        self._records = _Records(
            {"message.timeout.ms": 10_000, "linger.ms": 5, **config},
            topics=topics,
            rejections_compacted=False,
        )

    def bury(self, partition: int, orders: Iterable[bytes]) -> bool:
        """Whether all of them are written."""
        try:
            for order in orders:
                self._records.bury(partition, order)
        except KafkaException as error:
            _log.warning("tombstones of delivered messages not written: %s", error)
            return False
        return self._records.producer.flush(5) == 0 and self._records.first_error is None

    def close(self) -> None:
        """Let go of the connection."""
        self._records.producer.purge()
        self._records.producer.close()


def fence(config: dict[str, Any], transactional_id: str) -> None:
    """Abort what a vanished owner left open, without waiting for its transaction to time out."""
    producer = Producer({**config, "transactional.id": transactional_id}, logger=_log)
    _until_done(producer.init_transactions, 10)
    producer.close()


def _until_done(call: Any, patience: float) -> None:
    """Kafka's transactional calls may be resumed after a retriable error."""
    deadline = time.monotonic() + patience
    while True:
        try:
            call(max(deadline - time.monotonic(), 0.5))
            return
        except KafkaException as error:
            if not error.args[0].retriable() or time.monotonic() > deadline:
                raise


def _offset(topic: str, work: Work) -> TopicPartition:
    checkpoint = work.outcome.checkpoint
    return TopicPartition(
        topic, work.partition, checkpoint.position, metadata=checkpoints.encode(checkpoint)
    )


def _fault(error: KafkaError, message: Message, works: Sequence[Work]) -> Fault:
    topic = str(message.topic())
    culprit = _find(message, works) if error.code() in _MESSAGE_FAULTS else None
    return Fault(
        topic, _code(error), _reason(topic, error), None if culprit is None else culprit.key
    )


def _find(message: Message, works: Sequence[Work]) -> Entry | None:
    """The entry behind a failed record; compared by content, as this happens rarely."""
    for work in works:
        for delivery in work.outcome.deliveries:
            entry = delivery.entry
            if (
                entry.plan.destination == message.topic()
                and entry.user_key == message.key()
                and entry.value == message.value()
            ):
                return entry
    return None


def _code(error: KafkaError) -> Code:
    unknown = {KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC}  # noqa: SLF001
    return Code.UNKNOWN_DESTINATION if error.code() in unknown else Code.DELIVERY_FAILED


def _reason(topic: str, error: KafkaError) -> str:
    return f"x-scheduler-deliver-to {topic!r}: {error.str()}"
