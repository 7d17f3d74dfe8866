"""Decisions: what to apply, who has an app id, what the figures are, what to say."""

import math
from collections.abc import Callable
from typing import Any

import pytest
from punctual_operator.api.conditions import Condition, find_transitions, merge_conditions
from punctual_operator.api.names import APPLIED_HASH, SchedulerKey
from punctual_operator.api.types import Scheduler, parse_scheduler
from punctual_operator.errors import InvalidSpecError
from punctual_operator.plan.changes import (
    Differences,
    find_differences,
    needs_apply,
    plan_children,
)
from punctual_operator.plan.conflicts import find_owner
from punctual_operator.plan.figures import LatenessWindow, Sample, build_figures, parse_sample
from punctual_operator.plan.pods import Unready, describe_unready
from punctual_operator.plan.readiness import Facts, PartFacts, decide_conditions
from punctual_operator.plan.status import is_worth_writing
from punctual_operator.plan.topics import (
    describe_topics,
    judge_topics,
    plan_scheduler_topics,
    wanted_topics,
)
from punctual_worker.topics.plan import TopicResult, TopicState

Body = dict[str, Any]
TOPICS_FINE = Condition("TopicsReady", "True", "AsWanted", "fine")


@pytest.mark.parametrize(
    ("wanted", "observed", "paths"),
    [
        ({"a": 1}, {"a": 1, "defaulted": 2}, ()),
        ({"a": 1}, {"a": 2}, (".a",)),
        ({"a": {}}, {}, ()),
        ({"a": []}, {}, ()),
        ({"a": {"b": 1}}, {}, (".a",)),
        ({"cpu": "1000m"}, {"cpu": "1"}, ()),
        ({"memory": "2048Mi"}, {"memory": "2Gi"}, ()),
        ({"cpu": 1}, {"cpu": "1"}, ()),
        ({"text": "abc"}, {"text": "abd"}, (".text",)),
        ({"yes": True}, {"yes": False}, (".yes",)),
        ({"l": [1, 2]}, {"l": [1]}, (".l",)),
        (
            {"l": [{"name": "b", "v": 1}]},
            {"l": [{"name": "injected"}, {"name": "b", "v": 1, "more": 2}]},
            (),
        ),
        ({"l": [{"name": "b", "v": 1}]}, {"l": [{"name": "b", "v": 2}]}, (".l[b].v",)),
        ({"l": [{"key": 1}]}, {"l": [{"key": 2}]}, (".l[0].key",)),
    ],
)
def test_only_what_is_wanted_is_compared(wanted: Any, observed: Any, paths: Any) -> None:
    assert find_differences(wanted, observed) == paths


def child(name: str, digest: str = "d", *, owner: str = "me", **fields: Any) -> Body:
    metadata = {
        "name": name,
        "annotations": {APPLIED_HASH: digest},
        "ownerReferences": [{"uid": owner, "controller": True}],
    }
    return {"kind": "Service", "metadata": metadata, **fields}


def test_a_child_is_applied_when_it_is_missing_changed_or_no_longer_what_we_said() -> None:
    wanted = child("a", spec={"port": 1})
    assert needs_apply(wanted, None, accepted=None)
    assert not needs_apply(wanted, child("a", spec={"port": 1, "ip": "x"}), accepted=None)
    assert needs_apply(wanted, child("a", spec={"port": 2}), accepted=None)
    assert needs_apply(wanted, child("a", "older", spec={"port": 1}), accepted=None)


def test_a_difference_that_applying_did_not_remove_is_not_tried_for_ever() -> None:
    wanted, observed = child("a", spec={"port": 1}), child("a", spec={"port": 2})
    assert not needs_apply(wanted, observed, accepted=Differences((".spec.port",)))
    more = child("a", spec={})
    assert needs_apply(child("a", spec={"port": 1, "x": 1}), more, accepted=Differences((".x",)))


def test_only_our_own_children_are_deleted() -> None:
    observed = {
        ("Service", "old"): child("old"),
        ("Service", "theirs"): child("theirs", owner="somebody"),
    }
    plan = plan_children([], observed, owner_uid="me", accepted={})
    assert [each["metadata"]["name"] for each in plan.delete] == ["old"]


def test_the_older_scheduler_has_the_app_id(make_body: Callable[..., Body]) -> None:
    old, new = make_body("old", uid="b", appId="x"), make_body("new", uid="a", appId="x")
    new["metadata"]["creationTimestamp"] = "2026-11-18T12:00:01Z"
    assert find_owner(new, [old, new], cluster_id=None) == SchedulerKey("team", "old")
    assert find_owner(old, [old, new], cluster_id=None) is None
    # in the same second the uid decides, for both in the same way
    new["metadata"]["creationTimestamp"] = old["metadata"]["creationTimestamp"]
    assert find_owner(old, [old, new], cluster_id=None) == SchedulerKey("team", "new")
    assert find_owner(new, [old, new], cluster_id=None) is None
    # unless one of them serves already
    old["status"] = {"kafkaClusterId": "one"}
    assert find_owner(new, [old, new], cluster_id="one") == SchedulerKey("team", "old")
    assert find_owner(old, [old, new], cluster_id="one") is None


def test_one_app_id_on_two_clusters_is_no_conflict(make_body: Callable[..., Body]) -> None:
    old, new = make_body("old", uid="a", appId="x"), make_body("new", uid="b", appId="x")
    old["status"] = {"kafkaClusterId": "one"}
    assert find_owner(new, [old], cluster_id="two") is None
    assert find_owner(new, [old], cluster_id="one") is not None
    # by another address, but the same cluster
    new["spec"]["kafka"]["bootstrapServers"] = ["other:9092"]
    assert find_owner(new, [old], cluster_id="one") is not None
    assert find_owner(new, [old], cluster_id=None) is None


METRICS = """
# TYPE punctual_pending gauge
punctual_pending{partition="0"} 3.0
punctual_pending{partition="1"} 4.0
# TYPE punctual_overdue gauge
punctual_overdue{partition="0"} 1.0
# TYPE punctual_next_due_timestamp_seconds gauge
punctual_next_due_timestamp_seconds 1.7950e+09
# TYPE punctual_rejections counter
punctual_rejections_total{code="expired"} 2.0
punctual_rejections_total{code="too-large"} 0.0
# TYPE punctual_dispatcher_state gauge
punctual_dispatcher_state{partition="0",state="active"} 1.0
punctual_dispatcher_state{partition="1",state="checkpoint-lost"} 1.0
# TYPE punctual_lateness_seconds histogram
punctual_lateness_seconds_bucket{le="0.01"} 90.0
punctual_lateness_seconds_bucket{le="0.5"} 99.0
punctual_lateness_seconds_bucket{le="+Inf"} 100.0
punctual_lateness_seconds_count 100.0
punctual_lateness_seconds_sum 1.0
"""


def test_figures_are_read_from_the_workers_metrics() -> None:
    sample = parse_sample(METRICS)
    assert (sample.pending, sample.overdue, sample.lost_partitions) == (7, 1, {"1"})
    figures = build_figures(
        {}, dispatchers={"a": sample, "b": Sample(pending=1)}, intake={}, lateness_p99=0.5
    )
    assert figures == {
        "pending": 8,
        "overdue": 1,
        "nextDueTime": "2026-11-18T11:06:40Z",
        "latenessP99Milliseconds": 500,
        "rejections": [{"code": "expired", "count": 2}],
    }


def test_what_nobody_could_be_asked_about_stays_as_it_was() -> None:
    told = {"pending": 5, "intakeLagRecords": 2, "rejections": [], "conditions": []}
    kept = build_figures(told, dispatchers={}, intake={}, lateness_p99=None)
    assert kept == {"pending": 5, "intakeLagRecords": 2, "rejections": []}


def test_lateness_is_that_of_the_last_minutes_and_survives_a_restart_of_a_worker() -> None:
    def sample(fast: int, slow: int) -> dict[str, Sample]:
        return {"pod": Sample(lateness={0.01: fast, 1.0: fast + slow, math.inf: fast + slow})}

    window = LatenessWindow()
    assert window.p99(0, sample(0, 0)) is None
    assert window.p99(60, sample(0, 10)) == 1.0
    # ten minutes later the slow ones do not count any more
    assert window.p99(120, sample(1000, 10)) == 0.01
    assert window.p99(900, sample(2000, 10)) == 0.01
    assert window.p99(960, sample(5, 0)) == 0.01


def deployment(ready: int, wanted: int, *, updated: int | None = None) -> Body:
    return {
        "metadata": {"generation": 1},
        "status": {
            "observedGeneration": 1,
            "replicas": wanted,
            "readyReplicas": ready,
            "updatedReplicas": wanted if updated is None else updated,
        },
    }


def conditions(**changes: Any) -> dict[str, Condition]:
    parts: dict[str, PartFacts] = {
        "intake": PartFacts(1, deployment(1, 1)),
        "dispatcher": PartFacts(2, deployment(2, 2)),
        "console": PartFacts(None),
    }
    parts |= {name: changes.pop(name) for name in list(changes) if name in parts}
    facts = Facts(**{"topics": TOPICS_FINE, "parts": parts, **changes})
    return {condition.type: condition for condition in decide_conditions(facts)}


def test_all_is_well_when_all_is_well() -> None:
    found = conditions()
    assert {name: each.status for name, each in found.items()} == {
        "Ready": "True",
        "TopicsReady": "True",
        "IntakeReady": "True",
        "DispatchersReady": "True",
        "ConsoleReady": "True",
        "Degraded": "False",
    }


@pytest.mark.parametrize(
    ("changes", "ready", "degraded"),
    [
        ({"intake": PartFacts(1, None)}, ("False", "IntakeNotCreated"), "AsExpected"),
        ({"intake": PartFacts(1, deployment(0, 1))}, ("False", "IntakeStarting"), "AsExpected"),
        (
            {"intake": PartFacts(1, deployment(0, 1), Unready(("pod x: OOMKilled",)))},
            ("False", "IntakePodsNotReady"),
            "IntakePodsNotReady",
        ),
        (
            {"dispatcher": PartFacts(2, deployment(1, 2), Unready(("pod y: dead",)))},
            ("True", "Serving"),
            "DispatcherPodsNotReady",
        ),
        (
            {"dispatcher": PartFacts(0, deployment(0, 0))},
            ("False", "DispatchersScaledToZero"),
            "AsExpected",
        ),
        ({"console": PartFacts(1, deployment(0, 1))}, ("True", "Serving"), "AsExpected"),
        (
            {"samples": {"p": Sample(lost_partitions=frozenset({"3"}))}},
            ("True", "Serving"),
            "CheckpointLost",
        ),
        ({"samples": {"p": Sample(overdue=2)}}, ("True", "Serving"), "MessagesOverdue"),
        (
            {"topics": Condition("TopicsReady", "False", "KafkaUnreachable", "gone")},
            ("False", "KafkaUnreachable"),
            "KafkaUnreachable",
        ),
        (
            {"children_error": InvalidSpecError("no")},
            ("False", "InvalidSpec"),
            "InvalidSpec",
        ),
    ],
)
def test_what_is_wrong_is_said(
    changes: dict[str, Any], ready: tuple[str, str], degraded: str
) -> None:
    found = conditions(**changes)
    assert (found["Ready"].status, found["Ready"].reason) == ready
    assert found["Degraded"].reason == degraded


def test_replacing_pods_is_no_outage() -> None:
    found = conditions(dispatcher=PartFacts(2, deployment(2, 2, updated=1)))
    assert found["DispatchersReady"].reason == "RollingOut"
    assert found["Ready"].status == "True"


def test_a_pod_that_only_starts_is_no_trouble_but_one_that_crashes_or_hangs_is() -> None:
    def pod(name: str, since: str, **container: Any) -> Body:
        status = {
            "conditions": [{"type": "Ready", "status": "False", "lastTransitionTime": since}],
            "containerStatuses": [container] if container else [],
        }
        return {"metadata": {"name": name}, "status": status}

    crash = {
        "state": {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 10s"}},
        "lastState": {"terminated": {"message": "line 1\nno memory left\n"}},
    }
    over = {"state": {"terminated": {"reason": "OOMKilled", "exitCode": 137}}}
    executor = pod("x", "2026-11-18T11:59:50Z", **over) | {"spec": {"restartPolicy": "Never"}}
    found = describe_unready(
        [
            pod("a", "2026-11-18T11:59:50Z"),
            pod("b", "2026-11-18T11:59:50Z", **crash),
            pod("c", "2026-11-18T11:00:00Z"),
            pod("d", "2026-11-18T11:59:50Z", **over),  # is started again at once
            executor,
        ],
        {"a": "starting", "c": "waits for Kafka"},
        now=1_795_003_200.0,
    )
    assert found.hints == ("pod a: starting",)
    assert found.troubles == (
        "pod b: CrashLoopBackOff: no memory left",
        "pod c: waits for Kafka",
        "pod x: OOMKilled: exit status 137",
    )


def test_a_condition_keeps_its_time_until_its_status_changes() -> None:
    old = [
        {
            "type": "Ready",
            "status": "False",
            "reason": "Starting",
            "message": "",
            "lastTransitionTime": "then",
        }
    ]
    same = Condition("Ready", "False", "Other", "now otherwise")
    (kept,) = merge_conditions(old, [same], generation=2, now="now")
    assert (kept["lastTransitionTime"], kept["reason"]) == ("then", "Other")
    (moved,) = merge_conditions(
        old, [Condition("Ready", "True", "Serving", "")], generation=2, now="now"
    )
    assert moved["lastTransitionTime"] == "now"
    assert [change.was for change in find_transitions(old, [same])] == ["False"]
    assert find_transitions(old, [Condition("Ready", "False", "Starting", "more")]) == []


def test_figures_alone_are_written_only_now_and_then() -> None:
    old = {"conditions": [1], "pending": 1}
    quiet = {"seconds_since_write": 5.0, "least": 30.0}
    assert not is_worth_writing(old, {**old, "pending": 2}, **quiet)
    assert is_worth_writing(old, {**old, "pending": 2}, seconds_since_write=31, least=30)
    assert not is_worth_writing(old, dict(old), seconds_since_write=999, least=30)
    assert is_worth_writing(old, {**old, "conditions": [2]}, **quiet)


def test_topics_follow_the_spec(make_scheduler: Callable[..., Scheduler]) -> None:
    scheduler = make_scheduler(
        appId="app",
        history="Enabled",
        topics={
            "replicationFactor": 3,
            "requests": {"partitions": 2, "cleanupPolicy": "Delete"},
            "actions": {"partitions": 5, "config": {"min.insync.replicas": "2"}},
            "history": {"retentionDays": 1},
        },
    )
    specs = {spec.name: spec for spec in wanted_topics(scheduler)}
    assert specs["app-schedule-requests"].config["cleanup.policy"] == "delete"
    actions = specs["app-schedule-actions"]
    assert (actions.partitions, actions.replication_factor) == (5, 3)
    assert actions.config["min.insync.replicas"] == "2"
    assert actions.config["cleanup.policy"] == "compact"
    assert specs["app-schedule-history"].config["retention.ms"] == "86400000"


def test_what_is_refused_is_told_with_the_topic(make_scheduler: Callable[..., Scheduler]) -> None:
    scheduler = make_scheduler(topics={"requests": {"partitions": 3}})
    existing = {
        spec.name: TopicState(spec.name, 8, dict.fromkeys(range(8), 1), dict(spec.config))
        for spec in wanted_topics(scheduler)
    }
    plans = plan_scheduler_topics(scheduler, existing, [])
    results = [TopicResult(plan, applied=True) for plan in plans]
    assert judge_topics(results).reason == "ChangeRefused"
    told = {each["name"]: each for each in describe_topics(results, existing)}
    assert told["demo-schedule-requests"]["state"] == "Refused"
    assert told["demo-schedule-actions"] == {
        "name": "demo-schedule-actions",
        "state": "Ready",
        "partitions": 8,
        "replicationFactor": 1,
        "configKeys": sorted(existing["demo-schedule-actions"].config),
    }


def test_a_spec_that_cannot_be_read_is_told_by_field(make_body: Callable[..., Body]) -> None:
    body = make_body(dispatchers={"replicas": "many"})
    with pytest.raises(InvalidSpecError, match=r"spec\.dispatchers\.replicas"):
        parse_scheduler(body)
