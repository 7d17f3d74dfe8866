"""Intake stopped, killed, and without its broker: each request is answered once."""

import threading
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Self

import pytest
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)
from punctual_worker.local.broker import EmbeddedBroker
from support.eventually import eventually
from support.intake import IntakeProcess
from support.kafka import Record, consume_committed, new_producer, produce
from support.request_rules import PREFIX

pytestmark = pytest.mark.timeout(600)
GOOD: list[tuple[str, bytes | None]] = [
    (PREFIX + "deliver-to", b"reminders"),
    (PREFIX + "deliver-at", b"2027-01-01T00:00:00Z"),
]
BAD = GOOD[:1]


def answers(intake: IntakeProcess) -> tuple[set[str], Counter[str]]:
    """Coordinates of the requests that have an action, and how often each has a rejection."""
    actions = consume_committed(intake.bootstrap_servers, intake.topics.actions)
    rejections = consume_committed(intake.bootstrap_servers, intake.topics.rejections)
    return (
        {(record.key or b"").decode().partition("/")[2] for record in actions},
        Counter(
            (r.header(PREFIX + "source") or b"").decode().partition("/")[2] for r in rejections
        ),
    )


def coordinates(sent: list[Record]) -> set[str]:
    return {f"{record.partition}/{record.offset}" for record in sent}


def requests(count: int, headers: list[tuple[str, bytes | None]]) -> list[Record]:
    return [Record(b"v", key=uuid.uuid4().bytes, headers=headers) for _ in range(count)]


@pytest.mark.parametrize("end", [IntakeProcess.stop, IntakeProcess.kill])
def test_what_is_taken_in_again_after_a_stop_or_a_crash_is_rejected_once(
    broker: EmbeddedBroker, app_id: str, tmp_path: Path, end: Callable[[IntakeProcess], object]
) -> None:
    # batches of minutes: nothing of these has been committed when it ends
    intake = IntakeProcess(broker.bootstrap_servers, app_id, data_dir=tmp_path)
    intake.make_topics()
    servers, topic = intake.bootstrap_servers, intake.topics.requests
    bad: list[Record] = []
    good: list[Record] = []

    def all_answered() -> bool:
        actions, rejections = answers(intake)
        assert rejections.keys() == coordinates(bad), len(rejections)
        assert actions == coordinates(good), len(actions)
        return True

    for life in range(3):
        with intake:
            bad += produce(servers, topic, requests(50, BAD))
            good += produce(servers, topic, requests(50, GOOD))
            eventually(all_answered, 60, intake.log)
            if life < 2:
                end(intake)
    _, rejections = answers(intake)
    assert set(rejections.values()) == {1}, rejections.most_common(3)


def refuse_what_is_older(intake: IntakeProcess, than_ms: int) -> None:
    """The actions topic takes only records that are so young."""
    entry = ConfigEntry(
        *("message.timestamp.before.max.ms", str(than_ms)),
        incremental_operation=AlterConfigOpType.SET,
    )
    resource = ConfigResource(
        ResourceType.TOPIC, intake.topics.actions, incremental_configs=[entry]
    )
    admin = AdminClient({"bootstrap.servers": intake.bootstrap_servers})
    admin.incremental_alter_configs([resource])[resource].result(30)


def test_a_query_that_dies_is_started_again_and_readiness_says_so_meanwhile(
    broker: EmbeddedBroker, app_id: str, tmp_path: Path
) -> None:
    intake = IntakeProcess(broker.bootstrap_servers, app_id, data_dir=tmp_path)
    intake.make_topics()
    servers, topic = intake.bootstrap_servers, intake.topics.requests
    sent = produce(servers, topic, requests(5, GOOD))
    with intake:
        eventually(lambda: answers(intake)[0] == coordinates(sent), 60, intake.log)
        # For good, as far as the client knows: a task of the sink dies of it at its next write.
        refuse_what_is_older(intake, 0)

        def died_twice() -> bool:
            sent.extend(produce(servers, topic, requests(1, GOOD)))
            told = intake.get("/readyz")
            again = "the query died, starting again in 2 s" in intake.log()
            return again and "the query died and is started again: " in told

        eventually(died_twice, 180, intake.log, interval=0.5)
        assert "the query died, starting again in 1 s" in intake.log()

        refuse_what_is_older(intake, 2**63 - 1)
        eventually(lambda: answers(intake)[0] == coordinates(sent), 120, intake.log)
        eventually(lambda: intake.is_ready, 60, intake.log)
        bad = produce(servers, topic, requests(5, BAD))
        eventually(lambda: answers(intake)[1] == Counter(coordinates(bad)), 60, intake.log)


def test_a_checkpoint_that_does_not_work_is_put_aside_where_it_alone_tells_the_place(
    broker: EmbeddedBroker, app_id: str, tmp_path: Path
) -> None:
    intake = IntakeProcess(broker.bootstrap_servers, app_id, data_dir=tmp_path)
    intake.make_topics()
    with intake:
        pass
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    group = f"{app_id}-intake"
    admin.delete_consumer_groups([group])[group].result(30)
    folder = tmp_path / "intake" / app_id
    (folder / "checkpoint" / "metadata").write_text("not what Spark wrote")
    sent = produce(broker.bootstrap_servers, intake.topics.requests, requests(5, GOOD))
    with intake:
        eventually(lambda: answers(intake)[0] == coordinates(sent), 90, intake.log)
        assert "the group has no offsets, so the checkpoint counts" in intake.log()
        assert "because the query died twice with it" in intake.log()
    assert (folder / "unusable" / "metadata").read_text() == "not what Spark wrote"


@pytest.fixture
def own_broker(tmp_path: Path) -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(tmp_path / "broker") as running:
        yield running


class Trickle:
    """Requests that keep coming, good and bad in turn; a broker that is away is waited for."""

    def __init__(self, intake: IntakeProcess) -> None:
        self.good: list[Record] = []
        self.bad: list[Record] = []
        self._intake = intake
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join(60)

    def _run(self) -> None:
        servers, topic = self._intake.bootstrap_servers, self._intake.topics.requests
        producer = new_producer(servers)
        while not self._end.wait(0.05):
            for sent, headers in ((self.good, GOOD), (self.bad, BAD)):
                sent += produce(servers, topic, requests(1, headers), producer=producer)


def test_a_broker_that_crashes_and_comes_back_costs_nothing(
    own_broker: EmbeddedBroker, app_id: str, tmp_path: Path
) -> None:
    intake = IntakeProcess(own_broker.bootstrap_servers, app_id, data_dir=tmp_path / "intake")
    intake.make_topics()
    with intake:
        with Trickle(intake) as trickle:
            eventually(lambda: len(answers(intake)[0]) > 20, 60, intake.log)
            own_broker.kill()
            own_broker.start()
            before = len(trickle.bad)
            eventually(lambda: len(trickle.bad) > before + 20, 60, "requests come again")

        def all_answered() -> bool:
            actions, rejections = answers(intake)
            assert rejections.keys() == coordinates(trickle.bad), len(rejections)
            assert actions == coordinates(trickle.good), len(actions)
            return True

        eventually(all_answered, 90, intake.log)
        assert set(answers(intake)[1].values()) == {1}
        eventually(lambda: intake.is_ready, 30, intake.log)
