"""A consumer that fails, has its messages tried again later, and gives one of them up."""

from collections.abc import Iterator
from datetime import timedelta

import pytest
from confluent_kafka import Consumer, Message
from punctual_worker.client import Backoff, Client, RequestError
from punctual_worker.local.broker import EmbeddedBroker
from punctual_worker.settings import Settings
from support.eventually import eventually
from support.kafka import Record, consume_committed, create_topic, produce
from support.scheduler import RunningScheduler

pytestmark = pytest.mark.timeout(600)
BACKOFF = Backoff(first=timedelta(milliseconds=300), attempts=3)


@pytest.fixture
def scheduler(broker: EmbeddedBroker, app_id: str, tmp_path) -> Iterator[RunningScheduler]:
    running = RunningScheduler(broker.bootstrap_servers, app_id, tmp_path)
    try:
        running.start()
        yield running
    finally:
        running.stop()


@pytest.fixture
def client(scheduler: RunningScheduler) -> Iterator[Client]:
    settings = Settings(
        bootstrap_servers=scheduler.bootstrap_servers, app_id=scheduler.topics.app_id
    )
    with Client(settings) as running:
        yield running


def test_a_failed_message_comes_back_until_it_is_given_up(
    scheduler: RunningScheduler, client: Client, app_id: str
) -> None:
    servers = scheduler.bootstrap_servers
    orders = create_topic(servers, f"{app_id}-orders")
    dead = create_topic(servers, f"{orders}-dead-letter")
    theirs = [("trace", b"\xff"), ("trace", None)]
    (poison, flaky) = produce(
        servers,
        orders,
        [Record(b"poison", key=b"p", headers=theirs), Record(b"flaky", key=b"f", headers=theirs)],
    )
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": app_id,
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe([orders])
    tries: dict[bytes, list[int]] = {b"poison": [], b"flaky": []}

    def handle(message: Message) -> None:
        value = message.value()
        assert isinstance(value, bytes)
        tries[value].append(message.timestamp()[1])
        attempt = dict(message.headers() or []).get("retry-attempt")
        assert attempt == (None if len(tries[value]) == 1 else b"%d" % len(tries[value]))
        if value == b"poison" or len(tries[value]) < 2:
            outcome = client.retry_later(message, backoff=BACKOFF, reason="cannot be parsed")
            assert outcome.given_up == (len(tries[value]) == 3)
        consumer.commit(message, asynchronous=False)

    def settled() -> bool:
        for message in consumer.consume(10, 0.2):
            assert message.error() is None, message.error()
            handle(message)
        return {value: len(times) for value, times in tries.items()} == {b"poison": 3, b"flaky": 2}

    try:
        eventually(settled, 90, lambda: f"{tries} {scheduler.dispatcher.log()}")
    finally:
        consumer.close()
    first, second, third = tries[b"poison"]
    assert second - first >= 300
    assert third - second >= 600
    (letter,) = consume_committed(servers, dead, 1, settle=0.3)
    assert (letter.key, letter.value) == (b"p", b"poison")
    last = [r for r in consume_committed(servers, orders) if r.value == b"poison"][-1]
    assert letter.headers == [
        *theirs,
        ("retry-attempt", b"3"),
        ("retry-source", f"{orders}/0/{last.offset}".encode()),
        ("retry-reason", b"cannot be parsed"),
    ]
    assert poison.offset < flaky.offset < last.offset


def test_asking_twice_for_a_retry_leaves_one(
    scheduler: RunningScheduler, client: Client, app_id: str
) -> None:
    servers = scheduler.bootstrap_servers
    orders = create_topic(servers, f"{app_id}-orders")
    produce(servers, orders, [Record(b"v", key=b"k")])
    consumer = Consumer(
        {"bootstrap.servers": servers, "group.id": app_id, "auto.offset.reset": "earliest"}
    )
    consumer.subscribe([orders])
    try:
        (message,) = eventually(lambda: consumer.consume(1, 1), 60, "the message")
    finally:
        consumer.close()
    slow = Backoff(first=timedelta(seconds=5))
    for _ in range(2):
        assert client.retry_later(message, backoff=slow).attempt == 2
    found = consume_committed(servers, orders, 2, timeout=60, settle=1)
    assert [record.header("retry-attempt") for record in found] == [None, b"2"]
    with pytest.raises(RequestError, match="want a topic for messages that are given up"):
        client.retry_later(message, 9, slow)
