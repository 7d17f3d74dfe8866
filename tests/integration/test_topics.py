"""Topics on a real broker."""

import pytest
from punctual_worker.contract.topics import TopicNames, topic_specs
from punctual_worker.local.broker import EmbeddedBroker
from punctual_worker.topics.admin import TopicAdmin, TopicsError
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
