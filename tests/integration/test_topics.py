"""Topics on a real broker."""

import pytest
from punctual_worker.contract.topics import BROKERS_DEFAULT, TopicNames, TopicSpec, topic_specs
from punctual_worker.local.broker import EmbeddedBroker
from punctual_worker.topics.admin import TopicAdmin, TopicsError
from punctual_worker.topics.plan import plan_topics
from support.eventually import eventually
from support.kafka import create_topic


@pytest.fixture
def admin(broker: EmbeddedBroker) -> TopicAdmin:
    return TopicAdmin({"bootstrap.servers": broker.bootstrap_servers})


def test_a_second_run_changes_nothing(admin: TopicAdmin, app_id: str) -> None:
    specs = topic_specs(
        TopicNames(app_id),
        request_partitions=2,
        action_partitions=3,
        replication_factor=1,
        history=True,
    )

    first = admin.ensure(specs)
    assert [(r.plan.create, r.ok) for r in first] == [(True, True)] * 4
    second = admin.ensure(specs, check_only=True)
    assert all(result.plan.in_order and result.ok for result in second)
    state = admin.describe([TopicNames(app_id).requests])[TopicNames(app_id).requests]
    assert state.partitions == 2
    assert state.config["min.compaction.lag.ms"] == str(7 * 24 * 3600 * 1000)


def test_drift_is_repaired_though_the_partition_count_is_refused(
    broker: EmbeddedBroker, admin: TopicAdmin, app_id: str
) -> None:
    names = TopicNames(app_id)
    create_topic(
        broker.bootstrap_servers,
        names.requests,
        1,
        config={"cleanup.policy": "delete", "segment.bytes": "2000000"},
    )
    specs = topic_specs(names, request_partitions=2, action_partitions=2, replication_factor=1)

    checked = admin.ensure(specs, check_only=True)
    assert [result.ok for result in checked] == [False, False, False]
    assert list(admin.describe(names.all)) == [names.requests]

    requests, actions, rejections = admin.ensure(specs)
    assert (requests.ok, actions.ok, rejections.ok) == (False, True, True)
    assert "1 partitions and 2 are wanted" in requests.plan.refusals[0]
    config = admin.describe([names.requests])[names.requests].config
    assert config["cleanup.policy"] == "compact"
    assert config["segment.bytes"] == "2000000"


def test_an_unreachable_broker_is_told_in_a_sentence() -> None:
    admin = TopicAdmin({"bootstrap.servers": "127.0.0.1:1"}, timeout=1)

    with pytest.raises(TopicsError, match=r"Kafka at 127\.0\.0\.1:1 cannot be reached"):
        admin.describe(["t"])


def test_an_entry_that_is_released_gets_the_brokers_default_back(
    admin: TopicAdmin, app_id: str
) -> None:
    (made,) = admin.ensure([TopicSpec(app_id, 1, BROKERS_DEFAULT, {"retention.ms": "1000000"})])
    assert made.ok
    spec = TopicSpec(app_id, 1, BROKERS_DEFAULT)
    state = eventually(lambda: admin.describe([app_id]).get(app_id))
    assert state.overrides == {"retention.ms"}
    (plan,) = plan_topics({app_id: state}, [spec], released={app_id: {"retention.ms"}})
    assert admin.apply(plan).ok
    eventually(lambda: not admin.describe([app_id])[app_id].overrides)


def test_a_deleted_topic_is_gone_and_a_missing_one_is_as_good_as_deleted(
    admin: TopicAdmin, app_id: str
) -> None:
    admin.ensure([TopicSpec(app_id, 1, BROKERS_DEFAULT)])
    eventually(lambda: admin.describe([app_id]))
    admin.delete([app_id, f"{app_id}-never-there"])
    eventually(lambda: not admin.describe([app_id]))
