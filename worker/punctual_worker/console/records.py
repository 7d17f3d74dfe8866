"""Whole records from the logs, on demand: what the view leaves out, by partition and offset."""

import contextlib
import threading
import time
from collections.abc import Iterable, Iterator
from typing import Any, Final, NamedTuple

from confluent_kafka import Consumer, KafkaError, Message, TopicPartition

from punctual_worker.console.logs import Logs
from punctual_worker.contract import actions

_READ_SECONDS: Final = 10.0
_POLL_SECONDS: Final = 0.5
_IDLE_CONSUMERS: Final = 2
_FAR: Final = 5_000
"""Records that lie further apart than this are sought one by one instead of read through."""


class RecordGoneError(Exception):
    """The log does not have this record any more (or it cannot be read now)."""


class Record(NamedTuple):
    """A record of a log."""

    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: actions.Headers


class Request(NamedTuple):
    """What the user asked for, as it stands in an action."""

    key: bytes | None
    value: bytes | None
    headers: actions.Headers
    plan: actions.Plan


def request_of(record: Record) -> Request:
    """Undo what intake did: the request inside an action; `RecordGoneError` if it is none."""
    try:
        headers, key, raw_plan = actions.split_action_headers(record.headers)
        plan = actions.decode_plan(raw_plan)
    except actions.InvalidPlanError as error:
        raise RecordGoneError("The record is not an action.") from error
    return Request(key, None if plan.null_value else record.value, headers, plan)


class Records:
    """Reads with short-lived assignments; a few consumers are kept for the next question."""

    def __init__(self, logs: Logs) -> None:
        self._logs = logs
        self._idle: list[Consumer] = []
        self._lock = threading.Lock()

    def read(self, topic: str, partition: int, offset: int) -> Record:
        """One record."""
        if found := list(self.read_many(topic, partition, [offset])):
            return found[0]
        raise RecordGoneError(
            f"{topic}/{partition}/{offset} is not in the log any more: it was replaced, cancelled, "
            "delivered or compacted meanwhile."
        )

    def read_many(self, topic: str, partition: int, offsets: Iterable[int]) -> Iterator[Record]:
        """Those of the records at these offsets, given in rising order, that are still there."""
        with self._consumer() as consumer:
            position = -1
            for offset in offsets:
                if position < 0 or offset < position or offset - position > _FAR:
                    consumer.assign([TopicPartition(topic, partition, offset)])
                found = self._next(consumer, offset)
                while found is not None and (found.offset() or 0) < offset:
                    found = self._next(consumer, offset)
                if found is None:
                    position = -1
                    continue
                position = (found.offset() or 0) + 1
                if found.offset() == offset:
                    yield _record(found)
                else:
                    position = -1  # it was compacted away: the next one is sought anew

    def close(self) -> None:
        """Let go of the connections."""
        with self._lock:
            idle, self._idle = self._idle, []
        for consumer in idle:
            consumer.close()

    def _next(self, consumer: Consumer, offset: int) -> Message | None:
        """The next record; None at the end of the log."""
        deadline = time.monotonic() + _READ_SECONDS
        while time.monotonic() < deadline:
            message = consumer.poll(_POLL_SECONDS)
            if message is None:
                continue
            error = message.error()
            if error is None:
                return message
            if error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001 a public constant
                if (message.offset() or 0) > offset:
                    return None
                continue
            if error.code() in (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE):  # noqa: SLF001
                return None
            if not error.retriable():
                raise RecordGoneError(f"The log cannot be read: {error.str()}.")
        raise RecordGoneError("Kafka did not answer in time.")

    @contextlib.contextmanager
    def _consumer(self) -> Iterator[Consumer]:
        with self._lock:
            consumer = self._idle.pop() if self._idle else None
        if consumer is None:
            consumer = self._logs.consumer(**{"queued.min.messages": 1_000})
        try:
            yield consumer
            consumer.unassign()
        except BaseException:  # whatever happened: its assignment is not known any more
            consumer.close()
            raise
        with self._lock:
            if len(self._idle) < _IDLE_CONSUMERS:
                self._idle.append(consumer)
                return
        consumer.close()


def _record(message: Message) -> Record:
    headers: Any = message.headers() or []
    return Record(
        message.partition() or 0,
        message.offset() or 0,
        message.key(),
        message.value(),
        [(name, content) for name, content in headers],
    )
