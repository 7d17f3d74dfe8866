"""What is changed about topics, what is left alone and what is refused."""

from dataclasses import replace

from punctual_worker.contract.topics import BROKERS_DEFAULT, TopicSpec
from punctual_worker.topics.plan import Repair, TopicPlan, TopicState, plan_topics

SPEC = TopicSpec("t", 2, 1, {"cleanup.policy": "compact", "max.message.bytes": "10"})
STATE = TopicState(
    "t", 2, {0: 1, 1: 1}, {"cleanup.policy": "compact", "max.message.bytes": "10", "foreign": "1"}
)


def plan(state: TopicState | None) -> TopicPlan:
    (only,) = plan_topics({} if state is None else {"t": state}, [SPEC])
    return only


def test_a_missing_topic_is_created() -> None:
    assert plan(None) == TopicPlan(SPEC, create=True)


def test_a_topic_in_order_is_left_alone_with_foreign_configuration() -> None:
    assert plan(STATE).in_order


def test_only_what_differs_is_repaired() -> None:
    drifted = replace(STATE, config={**STATE.config, "max.message.bytes": "11"})

    assert plan(drifted).repairs == (Repair("max.message.bytes", "11", "10"),)


def test_another_partition_count_is_refused_and_the_rest_still_repaired() -> None:
    state = replace(STATE, partitions=3, replication_factors={0: 1, 1: 1, 2: 1}, config={})

    (refusal,) = plan(state).refusals
    assert "it has 3 partitions and 2 are wanted" in refusal
    assert {repair.key for repair in plan(state).repairs} == set(SPEC.config)


def test_another_replication_factor_is_refused_naming_the_partitions() -> None:
    (refusal,) = plan(replace(STATE, replication_factors={0: 1, 1: 3})).refusals

    assert "replication factor is 3 (partition 1) and 1 is wanted" in refusal


def test_what_is_no_longer_wanted_goes_back_to_the_brokers_default_only_where_it_was_ours():
    state = TopicState(
        "t",
        partitions=1,
        replication_factors={0: 1},
        config={"retention.ms": "5", "segment.ms": "7", "flush.ms": "9"},
        overrides=frozenset({"retention.ms", "segment.ms"}),
    )
    spec = TopicSpec("t", 1, 1)
    (plan,) = plan_topics({"t": state}, [spec], released={"t": ["retention.ms", "flush.ms"]})
    assert plan.repairs == (Repair("retention.ms", "5", None),)


def test_a_replication_factor_left_to_the_brokers_is_never_refused():
    state = TopicState("t", partitions=2, replication_factors={0: 1, 1: 3})
    (plan,) = plan_topics({"t": state}, [TopicSpec("t", 2, BROKERS_DEFAULT)])
    assert plan.in_order
