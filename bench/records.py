"""The records of every figure: 200-byte values, eight partitions, one header of the user's.

A value begins with its number, so that whoever reads it can tell what is missing or there twice.
Where intake is not what is measured, actions are written straight to their topic, exactly as intake
writes them.
"""

import itertools
import os
from collections.abc import Iterable
from typing import Any, Final

from confluent_kafka import KafkaError, Message, Producer
from punctual_worker.contract import actions, headers
from punctual_worker.contract.actions import Plan, Verb
from punctual_worker.contract.times import format_ms
from punctual_worker.contract.topics import TopicNames

PARTITIONS: Final = 8
USER_HEADER: Final = ("content-type", b"application/octet-stream")
_VALUE_BYTES: Final = 200
_NUMBER_BYTES: Final = 12
_FILLING: Final = os.urandom(_VALUE_BYTES - _NUMBER_BYTES)
_SOME_MS: Final = 1_234_567_890_123


class BenchError(Exception):
    """A figure that cannot be had, or not be trusted: above all after a message went missing, came
    twice or early."""


def value_of(number: int) -> bytes:
    """The value of a message."""
    return b"%0*d%b" % (_NUMBER_BYTES, number, _FILLING)


def number_of(value: bytes | None) -> int:
    """Undo `value_of`."""
    return int((value or b"")[:_NUMBER_BYTES])


def key_of(number: int) -> bytes:
    """The user's key of a message."""
    return b"k%d" % number


def delivered_headers() -> list[tuple[str, bytes]]:
    """What a delivered record has, for those who send the same without a scheduler."""
    return [
        USER_HEADER,
        (headers.SCHEDULED_FOR, format_ms(_SOME_MS).encode()),
        (headers.SOURCE, b"bench-schedule-requests/1/1000000"),
    ]


class BulkProducer:
    """Writes much at once; complains about what was not written."""

    def __init__(self, servers: str) -> None:
        self._failures: list[KafkaError] = []
        self._producer = Producer(
            {
                "bootstrap.servers": servers,
                "partitioner": "murmur2_random",
                "enable.idempotence": True,
                "linger.ms": 10,
                "queue.buffering.max.messages": 500_000,
                "delivery.report.only.error": True,
                "on_delivery": self._on_delivery,
                "log_level": 2,
            }
        )

    def _on_delivery(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self._failures.append(error)

    def produce(self, topic: str, value: bytes, key: bytes, **more: Any) -> None:
        """Hand one record over, as soon as there is room."""
        while True:
            try:
                self._producer.produce(topic, value, key, **more)
                return
            except BufferError:
                self._producer.poll(0.05)

    def flush(self) -> None:
        """Wait until everything is written."""
        if left := self._producer.flush(120):
            raise BenchError(f"{left} records were not written within two minutes")
        if self._failures:
            raise BenchError(f"{len(self._failures)} records refused: {self._failures[0]}")


class ActionWriter:
    """Writes actions as intake would, with request offsets that count up."""

    def __init__(self, servers: str, topics: TopicNames) -> None:
        self._producer = BulkProducer(servers)
        self._topic = topics.actions
        self._offsets = itertools.count()

    def write(self, destination: str, dues_ms: Iterable[int]) -> int:
        """An action for each due time, numbered from 0; how many, once they are written."""
        before, after = _plan_around_due(destination)
        to = (headers.DELIVER_TO, destination.encode())
        number = -1
        for number, due_ms in enumerate(dues_ms):
            partition = number % PARTITIONS
            coordinates = actions.Coordinates(actions.NATIVE_SOURCE, partition, next(self._offsets))
            self._producer.produce(
                self._topic,
                value_of(number),
                actions.action_key(coordinates),
                partition=partition,
                headers=[
                    USER_HEADER,
                    to,
                    (headers.DELIVER_AT, format_ms(due_ms).encode()),
                    (headers.ACTION_USER_KEY, key_of(number)),
                    (headers.ACTION_PLAN, b"%b%d%b" % (before, due_ms, after)),
                ],
            )
        self._producer.flush()
        return number + 1


def _plan_around_due(destination: str) -> tuple[bytes, bytes]:
    """Making each plan anew would take longer than writing it."""
    plan = actions.encode_plan(Plan(Verb.ADD, _SOME_MS, destination))
    before, _, after = plan.partition(str(_SOME_MS).encode())
    return before, after


def write_requests(servers: str, topic: str, *, count: int, destination: str, due_ms: int) -> None:
    """Requests as any producer would write them; returns once they are written."""
    producer = BulkProducer(servers)
    wanted = request_headers(destination, due_ms)
    for number in range(count):
        producer.produce(topic, value_of(number), key_of(number), headers=wanted)
    producer.flush()


def request_headers(destination: str, due_ms: int) -> list[tuple[str, bytes]]:
    """Headers of a request."""
    return [
        USER_HEADER,
        (headers.DELIVER_TO, destination.encode()),
        (headers.DELIVER_AT, format_ms(due_ms).encode()),
    ]
