"""`punctual job audit` on a real broker: it accounts for all, and finds what was planted."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient
from punctual_worker.contract import actions
from punctual_worker.dispatch import checkpoint as checkpoints
from punctual_worker.dispatch.restoring import tombstone_headers
from punctual_worker.local.broker import EmbeddedBroker
from support.audit import Audited, run_audit
from support.eventually import eventually
from support.kafka import Record, consume_committed, produce
from support.scheduler import RunningScheduler, at


class Sent:
    """A mix of requests, each with a known fate, by the scheduler's own doing."""

    def __init__(self, scheduler: RunningScheduler) -> None:
        self.scheduler = scheduler
        self.destination = scheduler.new_destination("audited")
        far = at(3_600)
        self.far = far
        self.soon = [self.add(f"soon-{i}", at(0.5 + 0.01 * i)) for i in range(20)]
        self.pending = [self.add(f"pending-{i}", far) for i in range(12)]
        self.add("replaced", far)
        self.send("REPLACE", "replaced", far, value=b"newer")
        self.add("cancelled", far)
        self.send("CANCEL", "cancelled")
        self.send("CANCEL", "never-there")
        self.add("same", far)
        self.add("same", far)
        for request_id in ("paused", "resumed"):
            self.add(request_id, far)
            self.send("PAUSE", request_id)
        self.send("RESUME", "resumed")
        self.send("PAUSE", "never-there")
        self.in_use = self.add("pending-0", at(7_200))
        self.refused = scheduler.request({"deliver-at": "tomorrow", "deliver-to": self.destination})
        self.expired = scheduler.request(
            {"deliver-to": self.destination, "deliver-at": at(-10), "expires-at": at(-5)}
        )
        # another app delivers to the same topic: none of our business
        foreign = Record(b"v", b"k", [("x-scheduler-source", b"other-schedule-requests/0/7")])
        produce(scheduler.bootstrap_servers, self.destination, [foreign])
        scheduler.delivered(self.destination, 21)
        scheduler.wait_until_decided(self.expired, self.in_use, *self.soon)

    def add(self, request_id: str, when: str) -> Record:
        return self.send("ADD", request_id, when)

    def send(
        self, action: str, request_id: str, when: str = "", value: bytes | None = b"v"
    ) -> Record:
        headers = {"action": action, "request-id": request_id}
        if when:
            headers |= {"deliver-to": self.destination, "deliver-at": when}
        return self.scheduler.request(headers, key=request_id.encode(), value=value)


FATES = {
    "delivered once": 20,
    "pending": 16,
    "cancelled": 1,
    "replaced": 1,
    "unchanged": 1,
    "cancel applied": 1,
    "cancel missed": 1,
    "pause or resume applied": 3,
    "pause or resume missed": 1,
    "rejected": 2,
    "expired": 1,
}


@pytest.fixture(scope="module")
def sent(broker: EmbeddedBroker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sent]:
    folder = tmp_path_factory.mktemp("audited")
    scheduler = RunningScheduler(broker.bootstrap_servers, "audited", folder)
    try:
        scheduler.start()
        yield Sent(scheduler)
    finally:
        scheduler.stop()


def audited(sent: Sent, folder: Path) -> Audited:
    return run_audit(sent.scheduler.bootstrap_servers, "audited", folder)


def test_every_request_of_a_running_system_is_accounted_for(sent: Sent, tmp_path: Path) -> None:
    result = audited(sent, tmp_path)
    assert (result.status, result.report["fates"]) == (0, FATES)
    assert result.report["problems"] == {}


def test_without_history_the_same_is_derived(sent: Sent, tmp_path: Path) -> None:
    scheduler = sent.scheduler
    assert scheduler.dispatcher.stop() == 0
    admin = AdminClient({"bootstrap.servers": scheduler.bootstrap_servers})
    admin.delete_topics([scheduler.topics.history])[scheduler.topics.history].result(10)
    eventually(lambda: scheduler.topics.history not in admin.list_topics(timeout=5).topics)
    result = audited(sent, tmp_path)
    assert (result.status, result.report["fates"]) == (0, FATES)
    assert any("history" in note for note in result.report["notes"])


def test_what_was_planted_is_found_and_named(sent: Sent, tmp_path: Path) -> None:
    scheduler, servers = sent.scheduler, sent.scheduler.bootstrap_servers
    scheduler.stop()
    by_home: dict[int, list[Record]] = {0: [], 1: []}
    for request in sent.pending[1:]:
        by_home[actions.actions_partition(request.key or b"", 2)].append(request)
    buried, early, *_ = by_home[0]
    _bury(sent, buried)
    _deliver_by_hand(sent, early, timestamp_ms=1_700_000_000_000)
    _pass_with_the_cursor(sent, 1)
    copied = next(
        record
        for record in consume_committed(servers, sent.destination, 21)
        if b"audited-" in (record.header("x-scheduler-source") or b"")
    )
    produce(servers, sent.destination, [Record(copied.value, copied.key, copied.headers)])
    _deliver_by_hand(sent, sent.refused)
    skipped = sent.add("skipped", sent.far)
    waiting = sent.add("waiting", sent.far)
    assert skipped.partition != waiting.partition or skipped.offset < waiting.offset
    _claim_taken_in(sent, skipped)
    result = audited(sent, tmp_path)
    assert result.status == 1
    source = (copied.header("x-scheduler-source") or b"").decode()
    assert result.problems_of(source) == ["delivered more than once"]
    assert result.problems_of(_source(early)) == ["delivered early"]
    assert result.problems_of(_source(sent.refused)) == ["delivered and rejected"]
    passed = [request for request in by_home[1] if request is not early]
    for lost in (buried, skipped, *passed):
        assert result.problems_of(_source(lost)) == ["lost"], lost
    assert result.problems_of(_source(waiting)) == []
    assert result.report["fates"]["in flight"] == 1


def _source(request: Record) -> str:
    return f"{request.topic}/{request.partition}/{request.offset}"


def _bury(sent: Sent, request: Record) -> None:
    """A tombstone that nobody decided on."""
    key = actions.action_key(actions.Coordinates("0", request.partition, request.offset))
    order = actions.order_key(0, key)
    home = actions.actions_partition(request.key or b"", 2)
    record = Record(None, key, tombstone_headers(order), partition=home)
    produce(sent.scheduler.bootstrap_servers, sent.scheduler.topics.actions, [record])


def _deliver_by_hand(sent: Sent, request: Record, timestamp_ms: int = -1) -> None:
    headers = [
        ("x-scheduler-scheduled-for", b"2026-01-01T00:00:00.000Z"),
        ("x-scheduler-source", _source(request).encode()),
    ]
    record = Record(request.value, request.key, headers, timestamp_ms=timestamp_ms)
    produce(sent.scheduler.bootstrap_servers, sent.destination, [record])


def _pass_with_the_cursor(sent: Sent, partition: int) -> None:
    """The checkpoint claims that everything up to 2100 has fired."""
    topic = sent.scheduler.topics.actions
    with_group = _consumer(sent, "dispatcher")
    (place,) = with_group.committed([TopicPartition(topic, partition)], timeout=10)
    before = checkpoints.decode(place.metadata or "")
    cursor = actions.order_key(4_102_444_800_000, b"0/0/0")
    after = before.moved(
        position=before.position, cursor=cursor, watermarks=before.watermarks, writer=""
    )
    moved = TopicPartition(topic, partition, place.offset, metadata=checkpoints.encode(after))
    with_group.commit(offsets=[moved], asynchronous=False)
    with_group.close()


def _claim_taken_in(sent: Sent, request: Record) -> None:
    consumer = _consumer(sent, "intake")
    place = TopicPartition(request.topic, request.partition, request.offset + 1)
    consumer.commit(offsets=[place], asynchronous=False)
    consumer.close()


def _consumer(sent: Sent, part: str) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": sent.scheduler.bootstrap_servers,
            "group.id": f"audited-{part}",
            "enable.auto.commit": False,
        }
    )
