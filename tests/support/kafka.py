"""A test's view of Kafka: topics, records in, committed records out. Plain clients, not ours."""

import time
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, NewTopic
from support.eventually import eventually

Headers = Sequence[tuple[str, bytes | None]]
NEVER_THERE = -1
_QUIET = {"log_level": 2}
"""What matters is raised; a client left over when its broker stops need not fill the screen."""


@dataclass(frozen=True)
class Record:
    """A record as it came out of, or stands in, a topic."""

    value: bytes | None
    key: bytes | None = None
    headers: list[tuple[str, bytes | None]] = field(default_factory=list)
    topic: str = ""
    partition: int = NEVER_THERE
    offset: int = NEVER_THERE
    timestamp_ms: int = NEVER_THERE

    def header(self, name: str) -> bytes | None:
        """The last value of a header; None also when it is not there."""
        return dict(self.headers).get(name)


def create_topic(
    bootstrap_servers: str,
    name: str,
    partitions: int = 1,
    *,
    config: Mapping[str, str] | None = None,
) -> str:
    """Make a topic and wait until every partition has a leader; returns its name."""
    admin = AdminClient({"bootstrap.servers": bootstrap_servers, **_QUIET})
    new = NewTopic(name, num_partitions=partitions, replication_factor=1, config=dict(config or {}))
    admin.create_topics([new])[name].result(30)

    def has_leaders() -> bool:
        found = admin.list_topics(timeout=10).topics.get(name)
        return (
            found is not None
            and len(found.partitions) == partitions
            and all(partition.leader >= 0 for partition in found.partitions.values())
        )

    eventually(has_leaders, 30, f"topic {name} has leaders")
    return name


def new_producer(bootstrap_servers: str, **config: str | int) -> Producer:
    """A producer that partitions as Java's does."""
    return Producer(
        {
            "bootstrap.servers": bootstrap_servers,
            "partitioner": "murmur2_random",
            "enable.idempotence": True,
            "linger.ms": 0,
            **_QUIET,
            **config,
        }
    )


def produce(
    bootstrap_servers: str,
    topic: str,
    records: Iterable[Record],
    *,
    config: Mapping[str, str | int] | None = None,
    producer: Producer | None = None,
) -> list[Record]:
    """Produce and wait for the acknowledgements; the same records with where they are."""
    producer = producer or new_producer(bootstrap_servers, **(config or {}))
    placed: dict[int, Record] = {}
    wanted = list(records)
    for index, record in enumerate(wanted):
        where = {} if record.partition == NEVER_THERE else {"partition": record.partition}
        when = {} if record.timestamp_ms == NEVER_THERE else {"timestamp": record.timestamp_ms}
        producer.produce(
            topic,
            value=record.value,
            key=record.key,
            headers=list(record.headers),
            on_delivery=_keep(placed, index, record),
            **where,
            **when,
        )
        producer.poll(0)
    left = producer.flush(30)
    assert not left, f"{left} records not acknowledged by {topic}"
    return [placed[index] for index in range(len(wanted))]


def consume_committed(
    bootstrap_servers: str,
    topic: str,
    count: int | None = None,
    *,
    until: Callable[[list[Record]], bool] | None = None,
    timeout: float = 30,
    settle: float = 0.0,
) -> list[Record]:
    """All committed records from the beginning, in order of partition and offset.

    Returns once there are `count` of them (or `until` says so) and nothing more came for `settle`
    seconds, which is how a test sees that nothing arrives twice. With neither it returns what is
    there at the call. Fails if there are too few after `timeout` seconds.
    """
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "group.id": f"test-{uuid.uuid4().hex}",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "fetch.wait.max.ms": 50,
            **_QUIET,
        }
    )
    try:
        partitions = consumer.list_topics(topic, timeout=10).topics[topic].partitions
        consumer.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for number in partitions])
        if until is None and count is None:
            return _ordered(_read_to_end(consumer, topic, list(partitions), timeout))
        enough = until or (lambda records: len(records) >= (count or 0))
        return _ordered(_read_until(consumer, enough, timeout=timeout, settle=settle))
    finally:
        consumer.close()


def _read_until(
    consumer: Consumer, enough: Callable[[list[Record]], bool], *, timeout: float, settle: float
) -> list[Record]:
    found: list[Record] = []
    deadline = time.monotonic() + timeout
    while not enough(found):
        assert time.monotonic() < deadline, f"after {timeout} s only {len(found)}: {found[-20:]}"
        found += _poll(consumer, 0.1)
    quiet_until = time.monotonic() + settle
    while time.monotonic() < quiet_until:
        found += _poll(consumer, 0.05)
    return found


def _read_to_end(
    consumer: Consumer, topic: str, partitions: list[int], timeout: float
) -> list[Record]:
    ends = {
        number: consumer.get_watermark_offsets(TopicPartition(topic, number), timeout=10)[1]
        for number in partitions
    }

    def at_end() -> bool:
        places = consumer.position([TopicPartition(topic, number) for number in partitions])
        return all(p.offset >= ends[p.partition] or not ends[p.partition] for p in places)

    found: list[Record] = []
    deadline = time.monotonic() + timeout
    while not at_end():
        assert time.monotonic() < deadline, f"end of {topic} not reached in {timeout} s"
        found += _poll(consumer, 0.05)
    return found


def _poll(consumer: Consumer, seconds: float) -> list[Record]:
    records = []
    for message in consumer.consume(500, seconds):
        error = message.error()
        if error is None:
            records.append(_record(message))
        elif error.code() != KafkaError._PARTITION_EOF:
            raise KafkaException(error)
    return records


def _ordered(records: list[Record]) -> list[Record]:
    return sorted(records, key=lambda record: (record.partition, record.offset))


def _keep(
    placed: dict[int, Record], index: int, record: Record
) -> Callable[[KafkaError | None, Message], None]:
    def on_delivery(error: KafkaError | None, message: Message) -> None:
        if error is not None:
            raise KafkaException(error)
        # the report has no headers: those are the ones that went in
        placed[index] = replace(_record(message), headers=list(record.headers))

    return on_delivery


def _record(message: Message) -> Record:
    return Record(
        value=message.value(),
        key=message.key(),
        headers=list(message.headers() or []),
        topic=message.topic(),
        partition=message.partition(),
        offset=message.offset(),
        timestamp_ms=message.timestamp()[1],
    )
