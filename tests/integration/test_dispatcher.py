"""The dispatcher alone, on a real broker: deciding, firing, taking over, failing destinations."""

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)
from punctual_worker.local.broker import EmbeddedBroker
from punctual_worker.local.ports import claim_port
from support.actions import ActionLog, now_ms
from support.eventually import eventually
from support.kafka import Record, consume_committed, create_topic, produce
from support.processes import Part
from support.proxy import CuttableProxy

NewDispatcher = Callable[..., Part]


@pytest.fixture
def log(broker: EmbeddedBroker, app_id: str) -> ActionLog:
    return ActionLog(broker.bootstrap_servers, app_id, history=True)


@pytest.fixture
def new_dispatcher(broker: EmbeddedBroker, app_id: str, tmp_path: Path) -> Iterator[NewDispatcher]:
    parts: list[Part] = []

    def new(name: str = "d1", **settings: object) -> Part:
        part = Part(
            "dispatcher",
            bootstrap_servers=broker.bootstrap_servers,
            app_id=app_id,
            folder=tmp_path / name,
            **{"retry_backoff_ms": 100, "delivery_attempts": 3, **settings},
        )
        parts.append(part)
        return part

    yield new
    for part in parts:
        part.kill_if_left()


@pytest.fixture
def destination(broker: EmbeddedBroker, app_id: str) -> str:
    return create_topic(broker.bootstrap_servers, f"{app_id}-destination", 3)


def test_what_came_in_twice_is_delivered_once(
    log: ActionLog, destination: str, new_dispatcher: NewDispatcher
) -> None:
    dispatcher = new_dispatcher().start()
    due = now_ms() + 1_000
    records = [log.record(to=destination, due_ms=due, value=b"%d" % i) for i in range(20)]
    log.write(*records)
    log.write(*records[5:])  # intake replays
    eventually(lambda: dispatcher.metric("punctual_delivered_total") == 20)
    log.write(*records)  # and again when all of it was delivered
    eventually(lambda: dispatcher.metric("punctual_replays_total") == 35)
    assert dispatcher.stop() == 0
    dispatcher.start()
    log.write(*records)
    eventually(lambda: dispatcher.metric("punctual_replays_total") == 20)
    delivered = consume_committed(log.bootstrap_servers, destination, 20, settle=0.3)
    assert Counter(r.value for r in delivered) == Counter(b"%d" % i for i in range(20))
    assert all(record.timestamp_ms >= due for record in delivered)


def test_a_killed_dispatcher_is_replaced_with_nothing_lost_and_nothing_twice(
    log: ActionLog, destination: str, new_dispatcher: NewDispatcher
) -> None:
    first, second = new_dispatcher("d1").start(), new_dispatcher("d2").start()
    eventually(lambda: "serving 2" in first.readiness()[1], 30, first.readiness)
    start = now_ms() + 1_000
    records = [
        log.record(to=destination, due_ms=start + 4 * i, request_id=f"id-{i}", value=b"%d" % i)
        for i in range(1500)
    ]
    log.write(*records)
    eventually(lambda: second.metric("punctual_delivered_total") > 100, 30)
    first.kill()
    eventually(lambda: "serving 4" in second.readiness()[1], 60, second.readiness)
    delivered = consume_committed(log.bootstrap_servers, destination, 1500, settle=1)
    assert Counter(r.value for r in delivered) == Counter(b"%d" % i for i in range(1500))
    assert all(r.timestamp_ms >= start + 4 * int(r.value or b"") for r in delivered)


def test_what_a_killed_one_left_open_in_a_destination_holds_no_reader_up(
    log: ActionLog, destination: str, new_dispatcher: NewDispatcher, app_id: str
) -> None:
    first = new_dispatcher("d1").start()
    log.write(log.record(to=destination, due_ms=now_ms(), value=b"before"))
    assert len(consume_committed(log.bootstrap_servers, destination, 1)) == 1
    first.kill()
    name = (first.folder / "dispatcher" / app_id / "instance").read_text()
    # the moment in which only destinations have records of it, made to last
    left_open = Producer(
        {
            "bootstrap.servers": log.bootstrap_servers,
            "transactional.id": f"{app_id}-dispatcher-{name}-2",
            "transaction.timeout.ms": 600_000,
        }
    )
    left_open.init_transactions(30)
    left_open.begin_transaction()
    for partition in range(3):
        left_open.produce(destination, b"never seen", partition=partition)
    left_open.flush()
    second = new_dispatcher("d2").start(wait=False)
    log.write(log.record(to=destination, due_ms=now_ms(), value=b"after"))
    delivered = consume_committed(log.bootstrap_servers, destination, 2, timeout=120)
    assert Counter(r.value for r in delivered) == Counter([b"before", b"after"])
    assert "not in the group any more" in second.log()  # not found out by waiting
    with pytest.raises(KafkaException):
        left_open.commit_transaction(10)


def test_one_that_was_fenced_by_mistake_goes_on_where_it_was(
    log: ActionLog, destination: str, new_dispatcher: NewDispatcher, app_id: str
) -> None:
    dispatcher = new_dispatcher().start()
    name = (dispatcher.folder / "dispatcher" / app_id / "instance").read_text()
    for round_number in range(3):
        for transactional_id in (f"{app_id}-dispatcher-{name}", f"{app_id}-dispatcher-{name}-2"):
            stranger = Producer(
                {
                    "bootstrap.servers": log.bootstrap_servers,
                    "transactional.id": transactional_id,
                }
            )
            stranger.init_transactions(30)
        due = now_ms()
        log.write(*(log.record(to=destination, due_ms=due, value=b"%d" % i) for i in range(20)))
        expected = 20 * (round_number + 1)
        delivered = consume_committed(log.bootstrap_servers, destination, expected, settle=0.5)
        assert len(delivered) == expected
    assert Counter(r.value for r in delivered) == Counter({b"%d" % i: 3 for i in range(20)})
    assert dispatcher.metric("punctual_turns_failed_total") >= 3
    assert "starting over" not in dispatcher.log()


def test_one_that_hands_partitions_over_alive_is_not_taken_for_gone(
    log: ActionLog, destination: str, new_dispatcher: NewDispatcher
) -> None:
    first = new_dispatcher("d1").start()
    log.write(*(log.record(to=destination, due_ms=now_ms(), value=b"%d" % i) for i in range(50)))
    assert len(consume_committed(log.bootstrap_servers, destination, 50)) == 50
    second = new_dispatcher("d2").start()
    eventually(lambda: "serving 2" in first.readiness()[1], 30, first.readiness)
    eventually(lambda: "serving 2" in second.readiness()[1], 30, second.readiness)
    assert "not in the group any more" not in second.log()
    first.stop()
    eventually(lambda: "not in the group any more" in second.log(), 30, second.log)


def test_one_that_was_stopped_and_comes_back_repeats_nothing(
    log: ActionLog, destination: str, new_dispatcher: NewDispatcher
) -> None:
    first, second = new_dispatcher("d1").start(), new_dispatcher("d2").start()
    eventually(lambda: "serving 2" in first.readiness()[1], 30, first.readiness)
    start = now_ms() + 500
    log.write(
        *(log.record(to=destination, due_ms=start + 5 * i, value=b"%d" % i) for i in range(2500))
    )
    eventually(lambda: first.metric("punctual_delivered_total") > 50, 30)
    first.freeze()
    eventually(lambda: "serving 4" in second.readiness()[1], 60, second.readiness)
    first.thaw()
    eventually(lambda: "serving 2" in first.readiness()[1], 30, first.log)
    delivered = consume_committed(log.bootstrap_servers, destination, 2500, settle=1)
    assert Counter(r.value for r in delivered) == Counter(b"%d" % i for i in range(2500))


def test_one_that_is_cut_off_is_replaced_and_comes_back_without_repeating_anything(
    app_id: str, tmp_path: Path
) -> None:
    """The network between one of two dispatchers and the broker is cut, and healed later."""
    plain, far, controller, proxied = (claim_port("127.0.0.1", 0) for _ in range(4))
    listeners = f"PLAINTEXT://127.0.0.1:{plain},FAR://127.0.0.1:{far}"
    extra = {
        "controller.quorum.voters": f"1@127.0.0.1:{controller}",
        "listeners": f"{listeners},CONTROLLER://127.0.0.1:{controller}",
        "advertised.listeners": listeners.replace(f":{far}", f":{proxied}"),
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,FAR:PLAINTEXT",
    }
    parts: list[Part] = []
    with (
        EmbeddedBroker(tmp_path, plain, extra_config=extra) as broker,
        CuttableProxy(proxied, far) as network,
    ):
        try:
            log = ActionLog(broker.bootstrap_servers, app_id, history=True)
            destination = create_topic(broker.bootstrap_servers, f"{app_id}-destination", 3)
            for name, servers in (("cut", f"127.0.0.1:{proxied}"), ("near", f"127.0.0.1:{plain}")):
                parts.append(
                    Part(
                        "dispatcher",
                        bootstrap_servers=servers,
                        app_id=app_id,
                        folder=tmp_path / name,
                    ).start()
                )
            cut, near = parts
            eventually(lambda: "serving 2" in cut.readiness()[1], 30, cut.readiness)
            start = now_ms() + 500
            log.write(
                *(
                    log.record(to=destination, due_ms=start + 5 * i, value=b"%d" % i)
                    for i in range(2500)
                )
            )
            eventually(lambda: cut.metric("punctual_delivered_total") > 50, 30)
            network.cut()
            eventually(lambda: "serving 4" in near.readiness()[1], 60, near.readiness)
            network.heal()
            eventually(lambda: "serving 2" in cut.readiness()[1], 60, cut.log)
            delivered = consume_committed(broker.bootstrap_servers, destination, 2500, settle=1)
            assert Counter(r.value for r in delivered) == Counter(b"%d" % i for i in range(2500))
        finally:
            for part in parts:
                part.kill_if_left()


def test_a_lost_local_store_costs_time_and_nothing_else(
    log: ActionLog, destination: str, new_dispatcher: NewDispatcher
) -> None:
    dispatcher = new_dispatcher("d1").start()
    soon, later = now_ms() + 500, now_ms() + 18_000
    log.write(*(log.record(to=destination, due_ms=soon, value=b"soon-%d" % i) for i in range(9)))
    log.write(
        *(
            log.record(to=destination, due_ms=later, request_id=f"l{i}", value=b"later-%d" % i)
            for i in range(9)
        )
    )
    log.cancel("l0")
    log.replace(request_id="l1", to=destination, due_ms=later, value=b"replaced")
    eventually(lambda: dispatcher.metric("punctual_delivered_total") == 9)
    eventually(lambda: dispatcher.metric("punctual_replaced_total") == 1)
    dispatcher.kill()
    other = new_dispatcher("empty").start()
    eventually(lambda: other.metric("punctual_pending") == 8, 15, other.log)
    delivered = consume_committed(log.bootstrap_servers, destination, 17, settle=0.5, timeout=60)
    wanted = {b"soon-%d" % i for i in range(9)} | {b"later-%d" % i for i in range(2, 9)}
    assert Counter(r.value for r in delivered) == Counter([*wanted, b"replaced"])


def test_a_destination_that_does_not_exist_delays_no_other(
    log: ActionLog, destination: str, new_dispatcher: NewDispatcher
) -> None:
    dispatcher = new_dispatcher().start()
    missing = f"{destination}-missing"
    due = now_ms() + 500
    log.write(
        *(
            log.record(to=topic, due_ms=due, request_id=f"{topic}-{i}", value=b"%d" % i)
            for i in range(10)
            for topic in (missing, destination)
        )
    )
    delivered = consume_committed(log.bootstrap_servers, destination, 10)
    rejected = consume_committed(log.bootstrap_servers, log.topics.rejections, 10, settle=0.3)
    assert {r.header("x-scheduler-error-code") for r in rejected} == {b"unknown-destination"}
    # they did not wait for what was tried again and again
    assert max(r.timestamp_ms for r in delivered) < min(r.timestamp_ms for r in rejected)
    eventually(lambda: dispatcher.metric("punctual_pending") == 0)
    assert (
        missing
        not in AdminClient({"bootstrap.servers": log.bootstrap_servers}).list_topics().topics
    )


def test_a_destination_made_while_it_is_retried_gets_its_messages(
    log: ActionLog, destination: str, new_dispatcher: NewDispatcher
) -> None:
    dispatcher = new_dispatcher(delivery_attempts=30).start()
    late = f"{destination}-late"
    asked_for = now_ms()
    log.add(to=late, due_ms=asked_for, request_id="a", value=b"a")
    log.add(to=late, due_ms=asked_for, request_id="b", value=b"b")
    eventually(lambda: dispatcher.metric("punctual_delivery_failures_total") >= 2)
    log.cancel("b")  # a retrying one can still be cancelled
    eventually(lambda: dispatcher.metric("punctual_cancelled_total") == 1)
    create_topic(log.bootstrap_servers, late)
    (delivered,) = consume_committed(log.bootstrap_servers, late, 1, settle=1)
    assert delivered.value == b"a"
    assert delivered.header("x-scheduler-scheduled-for") is not None


def test_what_is_too_large_for_its_destination_is_rejected_and_the_rest_arrives(
    log: ActionLog, broker: EmbeddedBroker, destination: str, new_dispatcher: NewDispatcher
) -> None:
    new_dispatcher().start()
    small = create_topic(
        broker.bootstrap_servers, f"{destination}-small", config={"max.message.bytes": "2000"}
    )
    due = now_ms() + 500
    log.write(
        log.record(to=small, due_ms=due, value=b"x" * 5000, request_id="large"),
        *(log.record(to=small, due_ms=due, value=b"%d" % i) for i in range(5)),
        *(log.record(to=destination, due_ms=due, value=b"%d" % i) for i in range(5)),
    )
    assert len(consume_committed(broker.bootstrap_servers, destination, 5, settle=0.3)) == 5
    assert len(consume_committed(broker.bootstrap_servers, small, 5, settle=0.3)) == 5
    (rejected,) = consume_committed(broker.bootstrap_servers, log.topics.rejections, 1, settle=0.3)
    assert rejected.header("x-scheduler-error-code") == b"delivery-failed"
    assert rejected.value == b"x" * 5000


def test_when_the_broker_forgets_the_group_the_log_still_tells(
    log: ActionLog, destination: str, new_dispatcher: NewDispatcher
) -> None:
    dispatcher = new_dispatcher("d1").start()
    log.add(to=destination, due_ms=now_ms() + 3_600_000, request_id="pending")
    log.add(to=destination, due_ms=now_ms())
    consume_committed(log.bootstrap_servers, destination, 1)
    dispatcher.kill()
    group = f"{log.topics.app_id}-dispatcher"
    admin = AdminClient({"bootstrap.servers": log.bootstrap_servers})

    def forget() -> bool:
        try:
            admin.delete_consumer_groups([group])[group].result(10)
        except KafkaException as error:
            if error.args[0].code() != KafkaError.NON_EMPTY_GROUP:
                raise
            return False  # the broker has not noticed yet that nobody is left in it
        return True

    eventually(forget, 60, interval=0.5)
    dispatcher.start()
    eventually(lambda: dispatcher.metric("punctual_pending") == 1, 30)
    assert len(consume_committed(log.bootstrap_servers, destination, 1, settle=0.5)) == 1


def test_without_any_checkpoint_a_served_log_is_not_guessed_at(
    log: ActionLog, destination: str, new_dispatcher: NewDispatcher
) -> None:
    served = Record(None, b"0/0/0", partition=0, topic=log.topics.actions)
    produce(log.bootstrap_servers, log.topics.actions, [served])
    log.write(log.record(to=destination, due_ms=now_ms()))
    careful = new_dispatcher("d1").start(wait=False)
    eventually(lambda: "on-lost-checkpoint=deliver" in careful.readiness()[1], 30, careful.log)
    assert consume_committed(log.bootstrap_servers, destination) == []
    assert careful.stop() == 0
    new_dispatcher("d2", on_lost_checkpoint="deliver").start()
    assert len(consume_committed(log.bootstrap_servers, destination, 1)) == 1


def test_at_least_once_delivers_without_transactions(
    log: ActionLog, destination: str, new_dispatcher: NewDispatcher
) -> None:
    dispatcher = new_dispatcher(guarantee="at-least-once").start()
    log.add(to=destination, due_ms=now_ms() + 3_600_000, request_id="far")
    log.cancel("far")
    eventually(lambda: dispatcher.metric("punctual_cancelled_total") == 1)
    due = now_ms() + 500
    log.write(*(log.record(to=destination, due_ms=due + i, value=b"%d" % i) for i in range(50)))
    delivered = consume_committed(log.bootstrap_servers, destination, 50, settle=0.5)
    assert Counter(r.value for r in delivered) == Counter(b"%d" % i for i in range(50))
    eventually(lambda: dispatcher.metric("punctual_pending") == 0)
    log.write(log.record(to=destination, due_ms=now_ms() + 2_000, value=b"taken over"))
    dispatcher.kill()
    second = new_dispatcher("d2", guarantee="at-least-once").start()
    delivered = consume_committed(log.bootstrap_servers, destination, 51, settle=0.5)
    assert b"taken over" in {r.value for r in delivered}
    # whoever has no right to transactions is not kept from taking over
    assert "aborting" not in second.log()


def test_a_forbidden_destination_is_rejected_and_the_rest_arrives(
    app_id: str, tmp_path: Path
) -> None:
    authorizer = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
    config = {"authorizer.class.name": authorizer, "allow.everyone.if.no.acl.found": "true"}
    with EmbeddedBroker(tmp_path, extra_config=config) as broker:
        log = ActionLog(broker.bootstrap_servers, app_id)
        allowed = create_topic(broker.bootstrap_servers, "allowed")
        forbidden = create_topic(broker.bootstrap_servers, "forbidden")
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
        for operation, permission in (
            (AclOperation.DESCRIBE, AclPermissionType.ALLOW),  # else it would seem not to exist
            (AclOperation.WRITE, AclPermissionType.DENY),
        ):
            rule = AclBinding(
                ResourceType.TOPIC,
                forbidden,
                ResourcePatternType.LITERAL,
                "User:ANONYMOUS",
                "*",
                operation,
                permission,
            )
            admin.create_acls([rule])[rule].result(10)
        part = Part(
            "dispatcher",
            bootstrap_servers=broker.bootstrap_servers,
            app_id=app_id,
            folder=tmp_path / "d",
            retry_backoff_ms=100,
            delivery_attempts=3,
        )
        with part:
            due = now_ms() + 500
            log.write(
                *(
                    log.record(to=topic, due_ms=due + i, value=b"%d" % i)
                    for i in range(20)
                    for topic in (allowed, forbidden)
                )
            )
            assert len(consume_committed(broker.bootstrap_servers, allowed, 20, settle=0.3)) == 20
            rejected = consume_committed(
                broker.bootstrap_servers, log.topics.rejections, 20, settle=0.3, timeout=60
            )
            assert {r.header("x-scheduler-error-code") for r in rejected} == {b"delivery-failed"}, (
                part.log()
            )
            assert b"authorization" in (rejected[0].header("x-scheduler-error") or b"")
