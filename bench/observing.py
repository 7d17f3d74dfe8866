"""Seeing what arrives without taking the machine away from what is measured.

On two cores a consumer in Python that reads along with 100,000 messages a second would be half of
what is measured. So the end of a burst is seen by the topic's read-committed end offsets, asked for
every 10 ms; the rest by the time at which the broker appended each record, read afterwards.
"""

import time
from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple

from confluent_kafka import (
    OFFSET_BEGINNING,
    OFFSET_END,
    Consumer,
    IsolationLevel,
    KafkaError,
    KafkaException,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, OffsetSpec

from bench.records import PARTITIONS, BenchError, number_of

_ASK_SECONDS: Final = 10
_STANDSTILL_SECONDS: Final = 3.0


class Seen(NamedTuple):
    """A message that has arrived."""

    number: int
    seen_s: float
    """When the reader had it: it was committed by then."""
    appended_ms: int
    """When the broker wrote it, by the broker's clock, which is this machine's."""


class EndOffsets:
    """The sum of a topic's end offsets; markers of transactions count too."""

    def __init__(self, servers: str, topic: str, *, committed: bool = True) -> None:
        self._admin = AdminClient({"bootstrap.servers": servers, "log_level": 2})
        self._places = {TopicPartition(topic, n): OffsetSpec.latest() for n in range(PARTITIONS)}
        self._isolation = (
            IsolationLevel.READ_COMMITTED if committed else IsolationLevel.READ_UNCOMMITTED
        )

    def total(self) -> int:
        """As of now."""
        answers = self._admin.list_offsets(
            self._places, isolation_level=self._isolation, request_timeout=_ASK_SECONDS
        )
        return sum(answer.result(_ASK_SECONDS).offset for answer in answers.values())

    def wait_for(self, total: int, *, patience: float, every: float = 0.01) -> float:
        """When the end got there."""
        deadline = time.time() + patience
        while (now := self.total()) < total:
            if time.time() > deadline:
                raise BenchError(f"{total - now:,} records did not come within {patience:.0f} s")
            time.sleep(every)
        return time.time()

    def follow(self, *, near: int, over: Callable[[], bool], patience: float) -> float:
        """When the last change was, once it stands still and `over` says so.

        Asks every 10 ms when the total is `near` the end, and less often before.
        """
        before, changed_s = -1, time.time()
        deadline = asked_s = changed_s
        deadline += patience
        while time.time() < deadline:
            total, now = self.total(), time.time()
            if total != before:
                before = total
                changed_s = asked_s = now
            elif now - asked_s > 1:
                if over():
                    return changed_s
                asked_s = now
            time.sleep(0.01 if total >= near else 0.04)
        raise BenchError(f"not everything was delivered within {patience:.0f} s")

    def wait_until_still(self, *, patience: float = 300) -> None:
        """Until nobody has written for a while."""
        deadline = time.time() + patience
        before, since = self.total(), time.time()
        while time.time() - since < _STANDSTILL_SECONDS:
            if time.time() > deadline:
                raise BenchError(f"somebody still writes after {patience:.0f} s")
            time.sleep(0.25)
            if (total := self.total()) != before:
                before, since = total, time.time()


class Reader:
    """Reads a topic as its consumers do, committed messages only."""

    def __init__(
        self, servers: str, topic: str, *, from_end: bool = False, **config: str | int
    ) -> None:
        self._consumer = Consumer(
            {
                "bootstrap.servers": servers,
                "group.id": "bench-reader",
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "log_level": 2,
                **config,
            }
        )
        start = OFFSET_END if from_end else OFFSET_BEGINNING
        self._consumer.assign([TopicPartition(topic, n, start) for n in range(PARTITIONS)])
        self._at_end: set[int] = set()
        if from_end:  # what comes from now on is seen
            while len(self._at_end) < PARTITIONS:
                self.poll(0.1)

    def first(self, *, patience: float) -> float:
        """When the first message is there; reads no more after that."""
        deadline = time.time() + patience
        while time.time() < deadline:
            message = self._consumer.poll(0.5)
            if message is not None and message.error() is None:
                now = time.time()
                self._consumer.unassign()
                return now
        raise BenchError(f"nothing was delivered within {patience:.0f} s")

    def poll(self, seconds: float) -> list[Seen]:
        """Wait for a message, then take what else is there."""
        first = self._consumer.poll(seconds)
        if first is None:
            return []
        messages = (first, *self._consumer.consume(10_000, 0))
        now = time.time()
        found = []
        for message in messages:
            error = message.error()
            if error is None:
                found.append(Seen(number_of(message.value()), now, message.timestamp()[1]))
            elif error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001
                self._at_end.add(message.partition())
            else:
                raise KafkaException(error)
        return found

    def read(self, count: int, *, patience: float, settle: float = 1.0) -> list[Seen]:
        """So many, and what comes within `settle` seconds after them: there must be nothing."""
        found: list[Seen] = []
        deadline = time.time() + patience
        while len(found) < count and time.time() < deadline:
            found += self.poll(0.05)
        deadline = time.time() + settle
        while time.time() < deadline:
            found += self.poll(0.05)
        return found

    def read_to_end(self) -> list[Seen]:
        """Everything that was there when the reader was made."""
        found: list[Seen] = []
        while len(self._at_end) < PARTITIONS:
            found += self.poll(0.1)
        return found

    def close(self) -> None:
        """Let go of the connection."""
        self._consumer.close()


def read_all(servers: str, topic: str) -> list[Seen]:
    """Every committed message of a topic that nobody writes to any more."""
    reader = Reader(servers, topic)
    try:
        return reader.read_to_end()
    finally:
        reader.close()


def account(seen: Iterable[Seen], dues_ms: Sequence[int]) -> None:
    """A figure without correctness is none: each message once, and none before its time."""
    times = bytearray(len(dues_ms))
    early = strange = 0
    for number, _, appended_ms in seen:
        if not 0 <= number < len(dues_ms):
            strange += 1
            continue
        times[number] = min(times[number] + 1, 255)
        early += appended_ms < dues_ms[number]
    lost = times.count(0)
    repeated = len(times) - lost - times.count(1)
    if lost or repeated or early or strange:
        raise BenchError(
            f"of {len(dues_ms):,} messages {lost:,} were lost, {repeated:,} repeated, "
            f"{early:,} early, {strange:,} not ours"
        )


def percentile(values: Sequence[float], share: float) -> float:
    """The value that `share` of them do not exceed; of at least one value."""
    ordered = sorted(values)
    return ordered[min(int(len(ordered) * share), len(ordered) - 1)]


def bare_read(servers: str, topic: str) -> tuple[int, float]:
    """Records of a topic, and records per second of a consumer that does nothing with them."""
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "bench-bare",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "log_level": 2,
        }
    )
    consumer.assign([TopicPartition(topic, n, OFFSET_BEGINNING) for n in range(PARTITIONS)])
    while (first := consumer.poll(1)) is None:
        pass
    began = time.monotonic()  # connecting does not count
    ended = int(first.error() is not None)
    count = 1 - ended
    while ended < PARTITIONS:
        messages = consumer.consume(10_000, 0.1)
        ends = sum(message.error() is not None for message in messages)
        ended += ends
        count += len(messages) - ends
    seconds = time.monotonic() - began
    consumer.close()
    return count, count / seconds
