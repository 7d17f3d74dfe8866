"""The chart's own pods run with the chart's own account: its rights are enough, and two are one."""

import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from punctual_worker.local.broker import EmbeddedBroker
from support.eventually import eventually
from support.kubernetes.control_plane import ControlPlane
from support.kubernetes.helm import CHART, Helm
from support.kubernetes.kubectl import Kubectl
from support.kubernetes.node import LocalNode


@pytest.fixture
def watched(control_plane: ControlPlane, node: LocalNode) -> Iterator[str]:
    """A namespace for Schedulers; the workers there are only said to be ready."""
    name = f"watched-{uuid.uuid4().hex[:6]}"
    control_plane.kubectl("create", "namespace", name)
    yield name
    control_plane.kubectl("delete", "namespace", name, "--wait=false")
    node.clear(name)


def scheduler(app_id: str, broker: EmbeddedBroker) -> dict[str, Any]:
    return {
        "apiVersion": "punctual.dev/v1alpha1",
        "kind": "Scheduler",
        "metadata": {"name": app_id},
        "spec": {
            "kafka": {"bootstrapServers": [broker.bootstrap_servers]},
            "topics": {"requests": {"partitions": 1}, "actions": {"partitions": 1}},
        },
    }


def holder(kubectl: Kubectl, lease: str) -> str:
    found = kubectl.find("lease", lease) or {}
    return str(found.get("spec", {}).get("holderIdentity") or "")


def operator_values(release: str, **values: Any) -> dict[str, Any]:
    return {
        "crds": {"enabled": False},
        "fullnameOverride": release,
        "operator": {"leaseSeconds": 6, "resyncSeconds": 1},
        **values,
    }


def bring_up(
    kubectl: Kubectl, name: str, broker: EmbeddedBroker, *, node: LocalNode, home: str
) -> None:
    """Make a Scheduler and see that it gets its topics, its workers and its events."""

    def logs() -> str:
        return "\n".join(node.logs(home).values())

    kubectl.apply(scheduler(name, broker))
    eventually(lambda: kubectl.find("deployment", f"{name}-dispatcher"), 90, logs, interval=0.2)
    kubectl.wait_condition("scheduler", name, "TopicsReady", timeout=90)
    eventually(lambda: kubectl.list("events"), 60, logs, interval=0.2)
    # a right that is lacking; what is being deleted elsewhere refuses new content in other words
    assert "is forbidden: user" not in logs().lower(), logs()


def test_the_rights_for_one_namespace_are_enough_and_a_second_operator_takes_over(
    cluster_helm: Helm,
    kubectl: Kubectl,
    node: LocalNode,
    live_namespace: str,
    watched: str,
    broker: EmbeddedBroker,
    app_id: str,
) -> None:
    values = operator_values(live_namespace, replicaCount=2, watchNamespaces=[watched])
    lease = f"{live_namespace}-operator"
    cluster_helm("install", live_namespace, str(CHART), values=values)
    there = kubectl.inside(watched)
    first = eventually(lambda: holder(kubectl, lease), 90, interval=0.2)
    bring_up(there, f"{app_id}-1", broker, node=node, home=live_namespace)

    (active,) = [pod for pod in node.pods(live_namespace) if first.startswith(pod.name)]
    kubectl("delete", "pod", active.name, "--force", "--grace-period=0")
    eventually(lambda: holder(kubectl, lease) not in ("", first), 90, interval=0.2)
    bring_up(there, f"{app_id}-2", broker, node=node, home=live_namespace)
    cluster_helm("uninstall", live_namespace)


def test_the_rights_for_all_namespaces_are_enough(
    cluster_helm: Helm,
    kubectl: Kubectl,
    node: LocalNode,
    live_namespace: str,
    watched: str,
    broker: EmbeddedBroker,
    app_id: str,
) -> None:
    # nobody translates a Service's name here
    values = operator_values(live_namespace, metrics={"service": {"enabled": False}})
    cluster_helm("install", live_namespace, str(CHART), "--wait", values=values)
    assert "Phase:          Succeeded" in cluster_helm("test", live_namespace, "--timeout", "90s")
    bring_up(kubectl.inside(watched), app_id, broker, node=node, home=live_namespace)
    cluster_helm("uninstall", live_namespace)
