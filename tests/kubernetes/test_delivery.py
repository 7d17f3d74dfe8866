"""From `kubectl apply` to a delivered message, on a Kafka with TLS and SCRAM.

The pods' own commands run here as processes, with what a kubelet would give them.
"""

import time
from collections.abc import Callable
from typing import Any

from punctual_worker.contract.topics import TopicNames
from support.eventually import eventually
from support.kafka import Record, consume_committed, create_topic, produce
from support.kubernetes.kubectl import Kubectl
from support.kubernetes.operator_process import OperatorProcess
from support.kubernetes.schedulers import KIND, scheduler
from support.scheduler import at
from support.scram_broker import ScramBroker


def request(destination: str, number: int, seconds: float) -> Record:
    headers = {
        "deliver-to": destination,
        "deliver-at": at(seconds),
        "request-id": f"r{number}",
    }
    return Record(
        value=f"message {number}".encode(),
        key=f"k{number}".encode(),
        headers=[(f"x-scheduler-{name}", text.encode()) for name, text in headers.items()],
    )


def secret(name: str, entries: dict[str, str]) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": name},
        "stringData": entries,
    }


def test_a_message_is_delivered_through_scaling_and_a_rolling_change(
    start_operator: Callable[..., OperatorProcess],
    kubectl: Kubectl,
    live_namespace: str,
    scram_broker: ScramBroker,
    app_id: str,
) -> None:
    start_operator(resync_seconds=2)
    servers, names = scram_broker.open_servers, TopicNames(app_id)
    destination = create_topic(servers, f"{app_id}-reminders", 2)
    kubectl.apply(
        secret("ca", {"ca.crt": scram_broker.authority}),
        secret("user", {"username": "punctual", "password": "change-me"}),
    )
    login = {"mechanism": "ScramSha512", "credentialsSecretRef": {"name": "user"}}
    wanted: dict[str, Any] = {
        "appId": app_id,
        "destinations": [f"{app_id}-*"],
        "kafka": {"tls": {"caSecretRef": {"name": "ca"}}, "sasl": login},
    }
    secured = scram_broker.bootstrap_servers
    kubectl.apply(scheduler("demo", secured, **wanted))
    kubectl.wait_condition(KIND, "demo", "Ready", timeout=150)

    produce(servers, names.requests, [request(destination, 0, 0.5)])
    (first,) = consume_committed(servers, destination, 1, timeout=60)
    assert (first.key, first.value) == (b"k0", b"message 0")

    # due in the middle of what follows, and long after it
    due = time.time() + 20
    produce(servers, names.requests, [request(destination, n, 20) for n in range(1, 21)])
    produce(servers, names.requests, [request(destination, 21, 3600)])
    produce(servers, names.requests, [request("elsewhere", 22, 1)])
    eventually(lambda: status(kubectl).get("pending", 0) >= 21, 60, interval=0.5)
    kubectl("scale", "psched/demo", "--replicas=2")
    eventually(lambda: status(kubectl)["readyReplicas"] == 2, 120, interval=0.5)
    before = {pod["metadata"]["name"] for pod in dispatchers(kubectl)}
    changed = {"dispatchers": {"replicas": 2, "retryBackoffMilliseconds": 500}}
    kubectl.apply(scheduler("demo", secured, **wanted, **changed))

    def are_new() -> bool:
        pods = {pod["metadata"]["name"] for pod in dispatchers(kubectl)}
        return len(pods) == 2 and not pods & before

    eventually(are_new, 150, interval=0.5)
    kubectl.wait_condition(KIND, "demo", "Ready", timeout=60)

    found = consume_committed(servers, destination, 21, settle=1, timeout=90)
    assert sorted(record.value for record in found) == sorted(
        f"message {n}".encode() for n in range(21)
    )
    assert all(record.timestamp_ms >= due * 1000 - 1 for record in found if record.key != b"k0")

    def is_told() -> bool:
        """One is left, one was rejected, nothing lags: the status says what the workers say."""
        now = status(kubectl)
        rejections = {each["code"]: each["count"] for each in now["rejections"]}
        return (
            (now["pending"], now["overdue"], now["intakeLagRecords"]) == (1, 0, 0)
            and rejections == {"destination-not-allowed": 1}
            and "nextDueTime" in now
        )

    eventually(is_told, 60, lambda: status(kubectl), interval=0.5)


def status(kubectl: Kubectl) -> dict[str, Any]:
    found: dict[str, Any] = kubectl.get(KIND, "demo")["status"]
    return found


def dispatchers(kubectl: Kubectl) -> list[dict[str, Any]]:
    return [
        pod
        for pod in kubectl.list("pods", selector=status(kubectl)["selector"])
        if "deletionTimestamp" not in pod["metadata"]
    ]
