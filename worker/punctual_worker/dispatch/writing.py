"""Writing a turn to Kafka: all of it in one transaction, or at least once without.

Knows nothing of partitions' tables. A failed `write` has left nothing behind that a read-committed
consumer could see, unless it is `BrokenError`: then nobody knows, and the owner has to take its
partitions over again.
"""

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

from confluent_kafka import KafkaError, KafkaException, TopicPartition

from punctual_worker.contract.topics import TopicNames
from punctual_worker.dispatch import checkpoint as checkpoints
from punctual_worker.dispatch.deadlines import Answer, Caller, HandOver, HangingCallError
from punctual_worker.dispatch.producing import (
    InterruptedWriteError,
    PartitionCount,
    Records,
    Work,
)

_log = logging.getLogger(__name__)

_MESSAGE_TIMEOUT_MS: Final = 5_000
_FINISHING_SECONDS: Final = 0.1
"""How long a broker may take to finish a transaction that it has called committed or aborted."""


_IDLE_SECONDS: Final = 60.0
"""How long the other producer may go without a transaction while there are any."""


class BrokenError(Exception):
    """It is not known whether the turn was written: start over from the committed checkpoint."""


class Writer(Protocol):
    """How a turn gets into Kafka."""

    def write(
        self, works: Sequence[Work], group: Any, meanwhile: Callable[[], bool] | None = None
    ) -> None:
        """Write all of it; on return it stands. `meanwhile` is called while Kafka works."""

    def close(self) -> None:
        """Let go of the connection."""


def transactional_ids(writer: str) -> tuple[str, str]:
    """Those that a dispatcher of this name uses in turn."""
    return writer, f"{writer}-2"


@dataclass
class _Line:
    """A producer and its transactional id. Transactions of one line follow each other slowly: the
    broker finishes each one, with a marker in every partition, before it lets the next begin."""

    transactional_id: str
    records: Records
    ended_at: float = 0.0

    @property
    def may_be_unfinished(self) -> bool:
        """Whether the broker may still be at the last transaction's markers."""
        return time.monotonic() - self.ended_at < _FINISHING_SECONDS


class ExactlyOnceWriter:
    """A turn is one Kafka transaction, the checkpoint in it.

    Turns that follow each other at once go by two lines, so that none waits for the markers of the
    one before. Never more than one is open: a turn begins when the one before is committed for
    good, and markers may come in any order.
    """

    def __init__(
        self,
        config: dict[str, Any],
        *,
        topics: TopicNames,
        name: str,
        transaction_timeout_ms: int,
        rejections_compacted: bool,
        count_of: PartitionCount,
    ) -> None:
        """Waits for a former life of this name to be fenced and its work aborted."""
        self._timeout = transaction_timeout_ms / 1000
        self._config = {
            "transaction.timeout.ms": transaction_timeout_ms,
            "message.timeout.ms": min(_MESSAGE_TIMEOUT_MS, transaction_timeout_ms),
            **config,
        }
        self._topics = topics
        self._rejections_compacted = rejections_compacted
        self._count_of = count_of
        self._caller = Caller()
        self._lines = [_Line(one, self._new_records(one, 60)) for one in transactional_ids(name)]

    def write(
        self, works: Sequence[Work], group: Any, meanwhile: Callable[[], bool] | None = None
    ) -> None:
        """One transaction; see the module for what a failure means."""
        line = self._free_line()
        records, producer = line.records, line.records.producer
        offsets = _offsets(self._topics.actions, works)
        handed_over = HandOver()
        may_be_committed = False

        def send_offsets() -> None:
            producer.send_offsets_to_transaction(offsets, group, self._timeout)

        def complete() -> None:
            nonlocal may_be_committed
            if apart:
                send_offsets()
            if handed_over.wait():
                may_be_committed = True
                until_done(producer.commit_transaction, self._timeout)
            else:
                # Nothing is committed; but if the broker has refused a record meanwhile, only this
                # says so: `produce` speaks of a wrong state then.
                send_offsets()

        # The broker may still be finishing the transaction before, and then says «later» to both
        # the offsets and the records. The client asks again for the offsets after 1 ms, but for the
        # records after 20, whatever is configured: so the offsets go first, and find out. Where
        # that cannot be, the coordinators work while the records are handed over.
        apart = not line.may_be_unfinished
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
            line.ended_at = time.monotonic()
        except KafkaException as error:
            cause = error.args[0]
            if cause.code() == KafkaError._FENCED and not may_be_committed:  # noqa: SLF001
                # Somebody took us for gone. Whether we are, the group says: with its generation,
                # which goes with the offsets, the next turn is refused or stands.
                self._renew(line)
                raise InterruptedWriteError(str(cause)) from error
            raise self._abort(line, works, cause) from error
        except HangingCallError as error:
            raise BrokenError(str(error)) from error

    def _wait(self, answer: Answer, meanwhile: Callable[[], bool] | None) -> None:
        self._caller.finish(answer, 2 * self._timeout, meanwhile=meanwhile)

    def _free_line(self) -> _Line:
        """The first, so that most of the time only one is in use; the other if it is busy, or has
        long been idle: its first transaction in a partition would take much longer than others."""
        first = self._lines[0]
        idlest = min(self._lines, key=lambda line: line.ended_at)
        if first.may_be_unfinished or time.monotonic() - idlest.ended_at > _IDLE_SECONDS:
            return idlest
        return first

    def _abort(self, line: _Line, works: Sequence[Work], cause: KafkaError) -> Exception:
        if cause.fatal() or not (cause.txn_requires_abort() or cause.retriable()):
            return BrokenError(str(cause))
        failed = line.records
        line.ended_at = time.monotonic()
        try:
            self._caller.call(
                lambda: until_done(failed.producer.abort_transaction, self._timeout),
                self._timeout,
            )
        except HangingCallError as error:
            return BrokenError(f"{cause}; {error}")
        except KafkaException as error:
            if not cause.txn_requires_abort():
                return BrokenError(f"{cause}; and the transaction cannot be aborted: {error}")
            # It was not committed, that much is sure. The client cannot abort what the broker
            # never saw begin (the only partition in it was refused): a new one makes sure.
            self._renew(line)
        return failed.failure(works, cause)

    def _renew(self, line: _Line) -> None:
        line.records.producer.purge()
        line.records = self._new_records(line.transactional_id, self._timeout)

    def _new_records(self, transactional_id: str, patience: float) -> Records:
        records = Records(
            {**self._config, "transactional.id": transactional_id},
            topics=self._topics,
            rejections_compacted=self._rejections_compacted,
            count_of=self._count_of,
        )
        try:
            self._caller.call(
                lambda: until_done(records.producer.init_transactions, patience), patience
            )
        except HangingCallError as error:
            raise BrokenError(str(error)) from error
        return records

    def close(self) -> None:
        """Let go of the connection; an open transaction is aborted by the broker."""
        if self._caller.hangs:
            # closing them, or their end, would hang as well
            _left_behind.extend(line.records for line in self._lines)
            return
        self._caller.close()
        for line in self._lines:
            line.records.producer.purge()
            line.records.producer.close()


_left_behind: Final[list[Records]] = []


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
        self._records = Records(
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
        if meanwhile is not None:
            meanwhile()  # one piece: the client sends by itself
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
        self._records = Records(
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


def until_done(call: Any, patience: float) -> None:
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
