"""A Scheduler becomes topics and workers; changes reach exactly what they touch."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from punctual_worker.contract.topics import TopicNames, TopicSpec
from punctual_worker.local.broker import EmbeddedBroker
from punctual_worker.topics.admin import TopicAdmin
from support.eventually import eventually
from support.kubernetes.kubectl import Kubectl
from support.kubernetes.operator_process import OperatorProcess
from support.kubernetes.schedulers import KIND, scheduler

CHILDREN = "deployments,services,configmaps,serviceaccounts,poddisruptionbudgets,networkpolicies"
OURS = "app.kubernetes.io/managed-by=punctual-operator"


@pytest.fixture
def topics(broker: EmbeddedBroker) -> TopicAdmin:
    return TopicAdmin({"bootstrap.servers": broker.bootstrap_servers})


@pytest.fixture
def apply(kubectl: Kubectl, broker: EmbeddedBroker, app_id: str) -> Callable[..., None]:
    """Applies the Scheduler `demo` with the test's app id, and more spec."""

    def apply(**spec: Any) -> None:
        kubectl.apply(scheduler("demo", broker.bootstrap_servers, appId=app_id, **spec))

    return apply


def children(kubectl: Kubectl) -> dict[str, dict[str, Any]]:
    found = json.loads(kubectl("get", CHILDREN, "-l", OURS, "-o", "json"))["items"]
    return {f"{child['kind']}/{child['metadata']['name']}": child for child in found}


def templates(kubectl: Kubectl) -> dict[str, dict[str, Any]]:
    """The pod templates by part: what rolls is what changes here."""
    return {
        child["metadata"]["name"].removeprefix("demo-"): child["spec"]["template"]
        for child in kubectl.list("deployments")
    }


def wait_observed(kubectl: Kubectl, name: str = "demo") -> dict[str, Any]:
    """The Scheduler, once the operator has dealt with it as it is."""

    def observed() -> dict[str, Any] | None:
        body = kubectl.get(KIND, name)
        seen = body.get("status", {}).get("observedGeneration")
        return body if seen == body["metadata"]["generation"] else None

    return eventually(observed, 60, interval=0.2)


def test_a_scheduler_becomes_topics_and_workers_and_says_that_it_is_ready(
    operator: OperatorProcess,
    kubectl: Kubectl,
    apply: Callable[..., None],
    topics: TopicAdmin,
    app_id: str,
) -> None:
    apply(console={"state": "Enabled"}, networkPolicy="Enabled", history="Enabled")
    kubectl.wait_condition(KIND, "demo", "ConsoleReady")
    kubectl.wait_condition(KIND, "demo", "Ready")
    found = topics.describe(TopicNames(app_id).all)
    assert {name: topic.partitions for name, topic in found.items()} == dict.fromkeys(
        TopicNames(app_id).all, 2
    )
    body, made = kubectl.get(KIND, "demo"), children(kubectl)
    parts = ("intake", "dispatcher", "console")
    assert set(made) == {
        *(f"{kind}/demo-{part}" for part in parts for kind in ("Deployment", "Service")),
        *(f"ConfigMap/demo-{part}" for part in parts),
        "ServiceAccount/demo",
        "PodDisruptionBudget/demo-dispatcher",
        "NetworkPolicy/demo",
    }
    for child in made.values():
        (owner,) = child["metadata"]["ownerReferences"]
        assert (owner["uid"], owner["controller"]) == (body["metadata"]["uid"], True)
        managers = {entry["manager"] for entry in child["metadata"].get("managedFields", [])}
        assert managers <= {"punctual-operator", "kubelite", "kube-controller-manager"}
    status = body["status"]
    assert {c["type"]: c["status"] for c in status["conditions"]} == {
        "Ready": "True",
        "TopicsReady": "True",
        "IntakeReady": "True",
        "DispatchersReady": "True",
        "ConsoleReady": "True",
        "Degraded": "False",
    }
    assert status["appId"] == app_id
    assert (status["replicas"], status["readyReplicas"]) == (1, 1)
    assert [topic["state"] for topic in status["topics"]] == ["Ready"] * 4
    assert status["kafkaClusterId"]
    eventually(lambda: "Ready" in reasons(kubectl), 30)


def reasons(kubectl: Kubectl) -> list[str]:
    """Of the events about the Scheduler, in order."""
    events = [e for e in kubectl.list("events") if e["involvedObject"]["kind"] == "Scheduler"]
    return [e["reason"] for e in sorted(events, key=lambda e: e["metadata"]["creationTimestamp"])]


def test_a_reconcile_that_finds_nothing_to_do_writes_nothing(
    start_operator: Callable[..., OperatorProcess], kubectl: Kubectl, apply: Callable[..., None]
) -> None:
    operator = start_operator(resync_seconds=0.3)
    apply(console={"state": "Enabled"}, dispatchers={"resources": {"limits": {"cpu": "1000m"}}})
    kubectl.wait_condition(KIND, "demo", "ConsoleReady")
    settled = {"result": "settled"}
    eventually(lambda: operator.metric("punctual_operator_reconciles_total", settled) >= 2, 60)

    def writes() -> dict[str, float]:
        """As the operator counts them, as the API server does, and as the objects show."""
        body = kubectl.get(KIND, "demo")
        versions = {
            name: float(child["metadata"]["resourceVersion"])
            for name, child in {**children(kubectl), "scheduler": body}.items()
        }
        return {
            **versions,
            "api": operator.metric("punctual_operator_api_writes_total"),
            "kafka": operator.metric("punctual_operator_kafka_writes_total"),
            "server": _writes_of_schedulers(kubectl),
        }

    before = writes()
    done = operator.metric("punctual_operator_reconciles_total", settled)
    eventually(
        lambda: operator.metric("punctual_operator_reconciles_total", settled) >= done + 10, 90
    )
    assert writes() == before, operator.page("/metrics")[1]


def _writes_of_schedulers(kubectl: Kubectl) -> float:
    """Writes to Schedulers that the API server has counted; deletions may be those of a
    namespace that an earlier test has left."""
    lines = kubectl("get", "--raw", "/metrics").splitlines()
    return sum(
        float(line.rsplit(" ", 1)[1])
        for line in lines
        if line.startswith("apiserver_request_total")
        and 'resource="schedulers"' in line
        and any(f'verb="{verb}"' in line for verb in ("APPLY", "PATCH", "PUT", "POST"))
    )


def test_a_change_rolls_exactly_what_it_touches(
    operator: OperatorProcess, kubectl: Kubectl, apply: Callable[..., None]
) -> None:
    both: dict[str, Any] = {"console": {"state": "Enabled", "tokenSecretRef": {"name": "token"}}}
    kubectl("create", "secret", "generic", "token", "--from-literal=token=0123456789")
    apply(**both)
    kubectl.wait_condition(KIND, "demo", "Ready")

    def changed_by(change: Callable[[], object]) -> set[str]:
        before = templates(kubectl)
        change()
        eventually(lambda: templates(kubectl) != before, 60, interval=0.2)
        wait_observed(kubectl)  # they are changed one after the other
        after = templates(kubectl)
        return {part for part in after if after[part] != before.get(part)}

    assert changed_by(lambda: apply(**both, horizonDays=30)) == {"intake"}
    slower = {"horizonDays": 30, "dispatchers": {"retryBackoffMilliseconds": 50}}
    assert changed_by(lambda: apply(**both, **slower)) == {"dispatcher"}
    assert changed_by(
        lambda: apply(**both, **slower, podTemplate={"nodeSelector": {"disk": "fast"}})
    ) == {"intake", "dispatcher", "console"}
    # what is no longer wanted goes away again
    apply(**both, **slower)
    eventually(
        lambda: all("nodeSelector" not in each["spec"] for each in templates(kubectl).values()), 60
    )


def test_a_changed_secret_rolls_who_uses_it_and_is_shown_nowhere(
    start_operator: Callable[..., OperatorProcess], kubectl: Kubectl, apply: Callable[..., None]
) -> None:
    operator = start_operator(resync_seconds=0.5)
    kubectl("create", "secret", "generic", "token", "--from-literal=token=first-secret-value")
    apply(console={"state": "Enabled", "tokenSecretRef": {"name": "token"}})
    kubectl.wait_condition(KIND, "demo", "ConsoleReady")
    before = templates(kubectl)
    secret = kubectl(
        *("create", "secret", "generic", "token", "--from-literal=token=second-secret-value"),
        *("--dry-run=client", "-o", "yaml"),
    )
    kubectl.apply(secret)
    after = eventually(lambda: (now := templates(kubectl)) != before and now, 60, interval=0.2)
    assert {part for part in after if after[part] != before[part]} == {"console"}
    everything = "".join(
        (
            kubectl("get", f"{CHILDREN},events,{KIND}", "-o", "yaml"),
            operator.log(),
            operator.page("/metrics")[1],
        )
    )
    assert "first-secret-value" not in everything
    assert "second-secret-value" not in everything


def test_topics_are_repaired_and_partition_changes_refused_while_the_rest_is_applied(
    start_operator: Callable[..., OperatorProcess],
    kubectl: Kubectl,
    apply: Callable[..., None],
    topics: TopicAdmin,
    app_id: str,
) -> None:
    start_operator(resync_seconds=0.5)
    requests = TopicNames(app_id).requests

    def config(key: str) -> str | None:
        return topics.describe([requests])[requests].config.get(key)

    apply(topics={"requests": {"config": {"segment.ms": "600000"}}})
    kubectl.wait_condition(KIND, "demo", "Ready")
    assert config("segment.ms") == "600000"
    default = "604800000"
    apply(topics={"requests": {"partitions": 3, "config": {"retention.bytes": "123456789"}}})
    refused = kubectl.wait_condition(KIND, "demo", "Ready", "False")
    assert refused["reason"] == "ChangeRefused"
    assert "has 2 partitions and 3 are wanted" in refused["message"]
    # the rest was applied, and what is no longer wanted has the broker's default again
    eventually(lambda: (config("retention.bytes"), config("segment.ms")) == ("123456789", default))
    assert topics.describe([requests])[requests].partitions == 2
    apply(topics={"requests": {"config": {"retention.bytes": "123456789"}}})
    kubectl.wait_condition(KIND, "demo", "Ready")
    _set_config(topics, requests, "retention.bytes", "5")
    eventually(lambda: config("retention.bytes") == "123456789", 60)


def _set_config(topics: TopicAdmin, name: str, key: str, value: str) -> None:
    """As an administrator would by hand."""
    state = topics.describe([name])[name]
    (result,) = topics.ensure(
        [TopicSpec(name, state.partitions, min(state.replication_factors.values()), {key: value})]
    )
    assert result.ok


def test_what_others_do_to_the_children_is_undone(
    operator: OperatorProcess, kubectl: Kubectl, apply: Callable[..., None]
) -> None:
    apply()
    kubectl.wait_condition(KIND, "demo", "Ready")
    kubectl.delete("service", "demo-intake")
    kubectl("scale", "deployment/demo-dispatcher", "--replicas=3")
    kubectl("patch", "configmap", "demo-intake", "-p", '{"data": {"config.yaml": "{}"}}')
    eventually(lambda: kubectl.find("service", "demo-intake"), 60, interval=0.2)
    eventually(
        lambda: kubectl.get("deployment", "demo-dispatcher")["spec"]["replicas"] == 1,
        60,
        interval=0.2,
    )
    eventually(
        lambda: "app_id" in kubectl.get("configmap", "demo-intake")["data"]["config.yaml"],
        60,
        interval=0.2,
    )


def test_what_is_switched_off_is_removed_and_what_is_not_ours_stays(
    operator: OperatorProcess, kubectl: Kubectl, apply: Callable[..., None]
) -> None:
    kubectl("create", "configmap", "demo-console", "--from-literal=mine=yes")
    apply(console={"state": "Enabled"}, networkPolicy="Enabled")
    taken = kubectl.wait_condition(KIND, "demo", "Ready", "False")
    eventually(
        lambda: kubectl.condition(KIND, "demo", "Ready")["reason"] == "NameTaken",
        60,
        lambda: taken,
        interval=0.2,
    )
    apply()
    kubectl.wait_condition(KIND, "demo", "Ready")
    eventually(lambda: kubectl.find("networkpolicy", "demo") is None, 60, interval=0.2)
    assert kubectl.find("deployment", "demo-console") is None
    assert kubectl.get("configmap", "demo-console")["data"] == {"mine": "yes"}


def test_dispatchers_are_scaled_by_kubectl_scale(
    operator: OperatorProcess, kubectl: Kubectl, apply: Callable[..., None]
) -> None:
    apply()
    kubectl.wait_condition(KIND, "demo", "Ready")
    kubectl("scale", "psched/demo", "--replicas=3")
    eventually(lambda: kubectl.get(KIND, "demo")["status"]["readyReplicas"] == 3, 60, interval=0.2)
    selector = kubectl.get(KIND, "demo")["status"]["selector"]
    assert len(kubectl.list("pods", selector=selector)) == 3
    kubectl("scale", "psched/demo", "--replicas=0")
    stopped = kubectl.wait_condition(KIND, "demo", "Ready", "False")
    assert stopped["reason"] == "DispatchersScaledToZero"


def test_a_paused_scheduler_is_left_alone(
    operator: OperatorProcess, kubectl: Kubectl, apply: Callable[..., None]
) -> None:
    apply()
    kubectl.wait_condition(KIND, "demo", "Ready")
    kubectl("annotate", "psched", "demo", "punctual.dev/paused=true")
    kubectl.wait_condition(KIND, "demo", "Paused")
    apply(dispatchers={"replicas": 4})
    body = wait_observed(kubectl)
    assert kubectl.get("deployment", "demo-dispatcher")["spec"]["replicas"] == 1
    assert body["status"]["replicas"] == 1
    kubectl("annotate", "psched", "demo", "punctual.dev/paused-")
    eventually(
        lambda: kubectl.get("deployment", "demo-dispatcher")["spec"]["replicas"] == 4,
        60,
        interval=0.2,
    )
    eventually(lambda: kubectl.condition(KIND, "demo", "Paused") == {}, 60, interval=0.2)
