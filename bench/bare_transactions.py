"""What Kafka itself can do: a transactional producer without a scheduler. The limit of bursts and
of lateness."""

import time
import uuid
from typing import Final

from confluent_kafka import Producer

from bench.observing import Reader, percentile
from bench.records import delivered_headers, key_of, value_of

_BATCH: Final = 10_000
_SMALL: Final = 500
_WARM_TRANSACTIONS: Final = 5
_APART_SECONDS: Final = 0.02
"""Between single transactions: one that follows another at once is told to come back later."""


def _transactional(servers: str) -> Producer:
    producer = Producer(
        {
            "bootstrap.servers": servers,
            "transactional.id": f"bench-{uuid.uuid4().hex}",
            "partitioner": "murmur2_random",
            "queue.buffering.max.messages": 1_000_000,
            "delivery.report.only.error": True,
            "linger.ms": 0,
            "retry.backoff.ms": 1,
            "log_level": 2,
        }
    )
    producer.init_transactions(30)
    return producer


def deliveries_per_second(servers: str, topic: str, count: int) -> float:
    """Records as the dispatcher delivers them, in batches of 10,000, as fast as it goes."""
    producer = _transactional(servers)
    for _ in range(_WARM_TRANSACTIONS):
        _transaction(producer, topic)
    records = [(value_of(number), key_of(number)) for number in range(count)]
    headers = delivered_headers()
    began = time.monotonic()
    for start in range(0, count, _BATCH):
        producer.begin_transaction()
        for value, key in records[start : start + _BATCH]:
            producer.produce(topic, value, key, headers=headers)
        producer.commit_transaction(30)
    return count / (time.monotonic() - began)


def first_transaction_ms(servers: str, topic: str) -> float:
    """How long the first transaction of a producer in a topic takes until it can be read."""
    producer = _transactional(servers)
    reader = Reader(servers, topic, from_end=True)
    began = time.time()
    _transaction(producer, topic)
    took = reader.first(patience=60) - began
    reader.close()
    return took * 1000


def warm_up(servers: str, topic: str, seconds: float) -> None:
    """A broker that has just started is slow: its JVM compiles what it runs often."""
    producer = _transactional(servers)
    began = time.monotonic()
    while time.monotonic() - began < seconds:
        _transaction(producer, topic)


def _transaction(producer: Producer, topic: str) -> None:
    producer.begin_transaction()
    for number in range(_SMALL):
        producer.produce(topic, value_of(number), key_of(number), headers=delivered_headers())
    producer.commit_transaction(30)


def single_record_ms(servers: str, topic: str, count: int) -> float:
    """Median time of a transaction with one record in it."""
    producer = _transactional(servers)
    headers = delivered_headers()
    took = []
    for number in range(count + 20):
        began = time.perf_counter()
        producer.begin_transaction()
        producer.produce(topic, value_of(number), key_of(number), headers=headers)
        producer.commit_transaction(30)
        took.append((time.perf_counter() - began) * 1000)
        time.sleep(_APART_SECONDS)
    return percentile(took[20:], 0.5)  # the first ones find everything cold
