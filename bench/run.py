"""What a newcomer should expect of this machine: latency, lateness and a burst, beside its limits.

`make bench`: starts everything, measures for about two minutes, prints a table and writes
bench/results.json. Fails if a message is lost, repeated or early. Measure on a quiet machine.
"""

import argparse
import json
import os
import platform
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from confluent_kafka import Consumer, Producer, TopicPartition, libversion
from punctual_worker.contract import actions
from punctual_worker.contract.actions import Plan, Verb
from punctual_worker.contract.topics import TopicNames, topic_specs
from punctual_worker.local.broker import EmbeddedBroker
from punctual_worker.topics.admin import TopicAdmin
from support.kafka import create_topic, new_producer
from support.processes import Part

APP = "bench"
PARTITIONS = 8
VALUE = os.urandom(200)
USER_HEADER = ("content-type", b"application/octet-stream")
RESULTS = Path(__file__).parent / "results.json"


class BenchError(Exception):
    """A figure without correctness is none."""


class Bench:
    """A running stack and the figures taken from it."""

    def __init__(self, broker: EmbeddedBroker) -> None:
        self.servers = broker.bootstrap_servers
        self.topics = TopicNames(APP)
        self.producer = new_producer(self.servers, **{"linger.ms": 0})
        self.figures: list[dict[str, object]] = []

    def figure(self, name: str, value: float, unit: str, **beside: object) -> None:
        row = {"figure": name, "value": round(value, 2), "unit": unit, **beside}
        self.figures.append(row)
        limit = f"  (limit {beside['limit']})" if beside.get("limit") is not None else ""
        aim = (
            f"  aim {beside['aim']}: {'met' if beside['met'] else 'NOT met'}"
            if "aim" in beside
            else ""
        )
        print(f"{name:<58} {row['value']:>12} {unit}{limit}{aim}", flush=True)

    @contextmanager
    def reader(self, topic: str) -> Iterator[Callable[[int, float], list[tuple[float, bytes]]]]:
        """Reads `count` committed values with the time each was seen."""
        consumer = Consumer(
            {
                "bootstrap.servers": self.servers,
                "group.id": "bench",
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "fetch.wait.max.ms": 500,
                "log_level": 2,
            }
        )
        numbers = consumer.list_topics(topic, timeout=10).topics[topic].partitions
        consumer.assign([TopicPartition(topic, n, 0) for n in numbers])

        def read(count: int, patience: float) -> list[tuple[float, bytes]]:
            seen: list[tuple[float, bytes]] = []
            deadline = time.time() + patience
            while len(seen) < count and time.time() < deadline:
                first = consumer.poll(0.05)
                if first is None:
                    continue
                batch = [first, *consumer.consume(10_000, 0)]
                now = time.time()
                seen += [(now, m.value() or b"") for m in batch if m.error() is None]
            return seen

        try:
            yield read
        finally:
            consumer.close()


def latency_of_immediate(bench: Bench, count: int) -> None:
    topic = create_topic(bench.servers, "bench-now", PARTITIONS)
    took = []
    with bench.reader(topic) as read:
        for number in range(count + 20):
            began = time.time()
            bench.producer.produce(
                bench.topics.requests,
                VALUE,
                b"k%d" % number,
                headers=[
                    USER_HEADER,
                    ("x-scheduler-deliver-to", topic),
                    ("x-scheduler-delay", "0s"),
                ],
            )
            bench.producer.flush()
            seen = read(1, 10)
            if len(seen) != 1:
                raise BenchError("an immediate message did not arrive within 10 s")
            took.append((seen[0][0] - began) * 1000)
            time.sleep(0.02)
    took = sorted(took[20:])  # the first ones find everything cold
    p50, p99 = statistics.median(took), took[int(len(took) * 0.99)]
    bench.figure("request to delivery, due at once: p50", p50, "ms", aim="< 40 ms", met=p50 < 40)
    bench.figure("request to delivery, due at once: p99", p99, "ms")


def lateness(bench: Bench, rate: int, seconds: int) -> None:
    topic = create_topic(bench.servers, f"bench-late-{rate}", PARTITIONS)
    count = rate * seconds
    start = time.time() + 3 + count / 20_000
    due = {}
    for number in range(count):
        moment = round((start + number / rate) * 1000)
        due[b"%d" % number] = moment
        _write_action(bench, topic, number, moment, b"%d" % number)
    bench.producer.flush()
    with bench.reader(topic) as read:
        seen = read(count, seconds + 60)
        seen += read(1, 0.5)
    _check(seen, due)
    late = sorted(moment * 1000 - due[value] for moment, value in seen)
    p50, p99 = statistics.median(late), late[int(len(late) * 0.99)]
    beside = {"aim": "< 10 ms", "met": p50 < 10} if rate == 100 else {}
    bench.figure(f"lateness at {rate}/s: p50", p50, "ms", **beside)
    beside = {"aim": "< 50 ms", "met": p99 < 50} if rate <= 1000 else {}
    bench.figure(f"lateness at {rate}/s: p99", p99, "ms", **beside)


def burst(bench: Bench, count: int) -> None:
    limit = _bare_producer(bench, count)
    topic = create_topic(bench.servers, f"bench-burst-{count}", PARTITIONS)
    moment = round((time.time() + 5 + count / 15_000) * 1000)
    due = {}
    for number in range(count):
        value = b"%d " % number + VALUE
        due[value] = moment
        _write_action(bench, topic, number, moment, value)
    bench.producer.flush()
    with bench.reader(topic) as read:
        seen = read(count, 60 + count / 5_000)
        seen += read(1, 0.5)
    _check(seen, due)
    first, last = min(t for t, _ in seen), max(t for t, _ in seen)
    rate = count / (last - moment / 1000)
    bench.figure(
        f"burst of {count:,} due at one instant",
        rate,
        "deliveries/s",
        limit=f"{limit:,.0f}/s by a bare transactional producer",
        ratio=round(rate / limit, 3),
    )
    bench.figure("  first of them after", first * 1000 - moment, "ms")


def _bare_producer(bench: Bench, count: int) -> float:
    topic = create_topic(bench.servers, f"bench-bare-{count}", PARTITIONS)
    producer = Producer(
        {
            "bootstrap.servers": bench.servers,
            "transactional.id": f"bare-{count}",
            "partitioner": "murmur2_random",
            "queue.buffering.max.messages": 1_000_000,
            "linger.ms": 0,
            "retry.backoff.ms": 1,
            "log_level": 2,
        }
    )
    producer.init_transactions(30)
    headers = [
        USER_HEADER,
        ("x-scheduler-scheduled-for", b"2026-01-01T00:00:00.000Z"),
        ("x-scheduler-source", b"a/1/2"),
    ]
    began = time.time()
    for start in range(0, count, 10_000):
        producer.begin_transaction()
        for number in range(start, min(start + 10_000, count)):
            producer.produce(topic, VALUE, b"k%d" % number, headers=headers)
        producer.commit_transaction(30)
    return count / (time.time() - began)


_next_offset = iter(range(10**9))


def _write_action(bench: Bench, topic: str, number: int, due_ms: int, value: bytes) -> None:
    """Straight to the actions topic: intake is measured on its own."""
    key = actions.action_key(actions.Coordinates("1", 0, next(_next_offset)))
    plan = Plan(Verb.ADD, due_ms, topic)
    while True:
        try:
            bench.producer.produce(
                bench.topics.actions,
                value,
                key,
                number % PARTITIONS,
                headers=actions.action_headers([USER_HEADER], b"k%d" % number, plan),
            )
            return
        except BufferError:
            bench.producer.poll(0.1)


def _check(seen: list[tuple[float, bytes]], due: dict[bytes, int]) -> None:
    values = [value for _, value in seen]
    lost, twice = len(due.keys() - set(values)), len(values) - len(set(values))
    early = sum(moment * 1000 < due[value] for moment, value in seen if value in due)
    if lost or twice or early:
        raise BenchError(f"{lost} lost, {twice} repeated, {early} early")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    quick = parser.parse_args().quick
    with tempfile.TemporaryDirectory() as folder, EmbeddedBroker(Path(folder)) as broker:
        bench = Bench(broker)
        specs = topic_specs(
            bench.topics,
            request_partitions=PARTITIONS,
            action_partitions=PARTITIONS,
            replication_factor=1,
        )
        TopicAdmin({"bootstrap.servers": broker.bootstrap_servers}).ensure(specs)
        common = {"bootstrap_servers": broker.bootstrap_servers, "app_id": APP}
        with (
            Part("dispatcher", folder=Path(folder) / "dispatcher", **common),
            Part("intake", folder=Path(folder) / "intake", **common),
        ):
            latency_of_immediate(bench, 100 if quick else 500)
            for rate in (100, 1_000):
                lateness(bench, rate, 5 if quick else 20)
            burst(bench, 100_000)
    RESULTS.write_text(
        json.dumps(
            {
                "machine": {
                    "cores": os.cpu_count(),
                    "system": platform.platform(),
                    "python": platform.python_version(),
                },
                "librdkafka": libversion()[0],
                "figures": bench.figures,
            },
            indent=2,
        )
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
