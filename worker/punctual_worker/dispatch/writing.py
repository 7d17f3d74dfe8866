"""Writing a turn to Kafka: all of it in one transaction, or at least once without.

Knows producers and nothing of partitions' tables. A failed `write` has left nothing behind that a
read-committed consumer could see, unless it is `BrokenError`: then nobody knows, and the owner has
to take its partitions over again.
"""

import logging
import time
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple, Protocol

from confluent_kafka import KafkaError, KafkaException, Message, Producer, TopicPartition

from punctual_worker.contract import actions
from punctual_worker.contract.topics import TopicNames
from punctual_worker.dispatch import blame, entries
from punctual_worker.dispatch import checkpoint as checkpoints
from punctual_worker.dispatch.deadlines import Answer, Caller, HandOver, HangingCallError
from punctual_worker.dispatch.destinations import Fault
from punctual_worker.dispatch.entries import Delivery
from punctual_worker.dispatch.outcome import Outcome
from punctual_worker.dispatch.restoring import tombstone_headers
from punctual_worker.logs import kafka_logger

_log = logging.getLogger(__name__)

_MESSAGE_TIMEOUT_MS: Final = 5_000
_FINISHING_SECONDS: Final = 0.1
"""How long a broker may take to finish a transaction that it has called committed."""
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


class BrokenError(Exception):
    """It is not known whether the turn was written: start over from the committed checkpoint."""


class Work(NamedTuple):
    """One partition's share of a turn."""

    partition: int
    outcome: Outcome
    record_checkpoint: bool
    """Whether to write the checkpoint into the log too: whenever more than the position moved. A
    position that only passed over our own records would otherwise move itself on for ever."""


class Writer(Protocol):
    """How a turn gets into Kafka."""

    def write(
        self, works: Sequence[Work], group: Any, meanwhile: Callable[[], bool] | None = None
    ) -> None:
        """Write all of it; on return it stands. `meanwhile` is called while Kafka works."""

    def close(self) -> None:
        """Let go of the connection."""


class _Records:
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
        for entry, headers, _, place in deliveries:
            plan = entry.plan
            number = -1 if plan.partition is None else plan.partition
            if place is not None and (count := self._count_of(plan.destination)):
                number = place % count
            try:
                produce(plan.destination, entry.value, entry.user_key, number, headers=headers)  # type: ignore[arg-type] # list is invariant
            except BufferError:
                self._send(plan.destination, entry.user_key, entry.value, headers, number)

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
            blame.fault(error, message, _deliveries(works))
            for error, message in blamed
            if error.code() in blame.CLEAR
        ]
        if faults:
            return DestinationError(faults, set())
        if {cause.code(), *(error.code() for error, _ in blamed)} & blame.UNCLEAR:
            topics = {delivery.entry.plan.destination for delivery in _deliveries(works)}
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
        count_of: PartitionCount,
    ) -> None:
        """Waits for a former owner of the transactional id to be fenced and its work aborted."""
        self._timeout = transaction_timeout_ms / 1000
        self._config = {
            "transactional.id": transactional_id,
            "transaction.timeout.ms": transaction_timeout_ms,
            "message.timeout.ms": min(_MESSAGE_TIMEOUT_MS, transaction_timeout_ms),
            **config,
        }
        self._topics = topics
        self._rejections_compacted = rejections_compacted
        self._count_of = count_of
        self._caller = Caller()
        self._committed_at = 0.0
        self._records = self._new_records(60)

    def write(
        self, works: Sequence[Work], group: Any, meanwhile: Callable[[], bool] | None = None
    ) -> None:
        """One transaction; see the module for what a failure means."""
        records = self._records
        producer = records.producer
        offsets = _offsets(self._topics.actions, works)
        handed_over = HandOver()

        def send_offsets() -> None:
            producer.send_offsets_to_transaction(offsets, group, self._timeout)

        def complete() -> None:
            if apart:
                send_offsets()
            if handed_over.wait():
                _until_done(producer.commit_transaction, self._timeout)

        # The broker may still be finishing the transaction before, and then says «later» to both
        # the offsets and the records. The client asks again for the offsets after 1 ms, but for the
        # records after 20, whatever is configured: so the offsets go first, and find out. Where
        # that cannot be, the coordinators work while the records are handed over.
        apart = time.monotonic() - self._committed_at > _FINISHING_SECONDS
        try:
            producer.begin_transaction()
            if not apart:
                self._wait(self._caller.begin(send_offsets), meanwhile)
            answer = self._caller.begin(complete)
            try:
                with handed_over:
                    records.produce(works)
                    records.record_checkpoints(works, offsets)
            finally:
                self._wait(answer, meanwhile)
            self._committed_at = time.monotonic()
        except KafkaException as error:
            raise self._abort(works, error.args[0]) from error
        except HangingCallError as error:
            raise BrokenError(str(error)) from error

    def _wait(self, answer: Answer, meanwhile: Callable[[], bool] | None) -> None:
        self._caller.finish(answer, 2 * self._timeout, meanwhile=meanwhile)

    def _abort(self, works: Sequence[Work], cause: KafkaError) -> Exception:
        if cause.fatal() or not (cause.txn_requires_abort() or cause.retriable()):
            return BrokenError(str(cause))
        failed = self._records
        try:
            self._caller.call(
                lambda: _until_done(failed.producer.abort_transaction, self._timeout),
                self._timeout,
            )
        except HangingCallError as error:
            return BrokenError(f"{cause}; {error}")
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
            self._config,
            topics=self._topics,
            rejections_compacted=self._rejections_compacted,
            count_of=self._count_of,
        )
        try:
            self._caller.call(
                lambda: _until_done(records.producer.init_transactions, patience), patience
            )
        except HangingCallError as error:
            raise BrokenError(str(error)) from error
        return records

    def close(self) -> None:
        """Let go of the connection; an open transaction is aborted by the broker."""
        if self._caller.hangs:
            _left_behind.append(self._records)  # closing it, or its end, would hang as well
            return
        self._caller.close()
        self._records.producer.purge()
        self._records.producer.close()


_left_behind: Final[list[_Records]] = []


def anything_left_behind() -> bool:
    """Whether a hanging client is still in the process, so that it cannot end in the usual way."""
    return bool(_left_behind)


class AtLeastOnceWriter:
    """Without transactions: everything is written before the checkpoint moves."""

    def __init__(
        self,
        config: dict[str, Any],
        *,
        topics: TopicNames,
        rejections_compacted: bool,
        count_of: PartitionCount,
    ) -> None:
        self._actions = topics.actions
        self._records = _Records(
            {"message.timeout.ms": _MESSAGE_TIMEOUT_MS, **config},
            topics=topics,
            rejections_compacted=rejections_compacted,
            count_of=count_of,
        )

    def write(
        self, works: Sequence[Work], group: Any, meanwhile: Callable[[], bool] | None = None
    ) -> None:
        """Write, wait, then commit the checkpoint. `group` is the consumer itself here."""
        try:
            self._records.produce(works)
        except KafkaException as error:
            raise self._records.failure(works, error.args[0]) from error
        left = self._records.producer.flush(2 * _MESSAGE_TIMEOUT_MS / 1000)
        cause = self._records.first_error
        if cause is not None:
            raise self._records.failure(works, cause)
        if left:
            raise BrokenError(f"{left} records were neither written nor refused in time")
        try:
            # Only now: a checkpoint in the log says that all it covers is written. Nobody waits
            # for it; if it is lost, the group's offsets say the same.
            offsets = _offsets(self._actions, works)
            self._records.record_checkpoints(works, offsets)
            group.commit(offsets=offsets, asynchronous=False)
        except KafkaException as error:
            raise BrokenError(str(error)) from error

    def close(self) -> None:
        """Let go of the connection."""
        self._records.producer.flush(1)
        self._records.producer.purge()
        self._records.producer.close()


class TombstoneWriter:
    """Writes tombstones of what has fired, outside of any transaction: a `Sweeper`."""

    def __init__(self, config: dict[str, Any], *, topics: TopicNames) -> None:
        self._records = _Records(
            {"message.timeout.ms": 10_000, "linger.ms": 5, **config},
            topics=topics,
            rejections_compacted=False,
            count_of=lambda _: None,
        )
        self._refusal: KafkaError | None = None

    def bury(self, partition: int, orders: Sequence[bytes]) -> None:
        """Hand the tombstones of these over."""
        try:
            for order in orders:
                self._records.bury(partition, order)
        except KafkaException as error:
            self._refusal = error.args[0]

    def written(self) -> bool | None:
        """Whether all that was handed over is written; None as long as that is not known."""
        self._records.producer.poll(0)
        if len(self._records.producer):
            return None
        error = self._refusal or self._records.first_error
        if error is None:
            return True
        _log.warning("tombstones of delivered messages not written: %s", error)
        self._refusal = None
        self._records.forget_errors()
        return False

    def close(self) -> None:
        """Let go of the connection."""
        self._records.producer.purge()
        self._records.producer.close()


def fence(config: dict[str, Any], transactional_id: str) -> None:
    """Abort what a vanished owner left open, without waiting for its transaction to time out."""
    producer = Producer({**config, "transactional.id": transactional_id}, logger=kafka_logger())
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


def _offsets(topic: str, works: Sequence[Work]) -> list[TopicPartition]:
    """The checkpoints as offsets of the group."""
    return [
        TopicPartition(
            topic,
            partition,
            outcome.checkpoint.position,
            metadata=checkpoints.encode(outcome.checkpoint),
        )
        for partition, outcome, _ in works
    ]


def _deliveries(works: Sequence[Work]) -> list[Delivery]:
    return [delivery for work in works for delivery in work.outcome.deliveries]
